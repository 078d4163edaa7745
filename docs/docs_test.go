package docs

import (
	"slices"
	"testing"
)

func TestTried(t *testing.T) {
	const page = `# Agents
| agent | version | case | result | day |
| --- | --- | --- | --- | --- |
| mine | 1.0 | one | passed | 2026-11-30 |
| mine | 1.0 | two | passed | 2026-11-30 |
| mine | 2.0 | one | failed | 2026-11-30 |
| mine | 2.0 | two | passed | 2026-11-30 |
| yours | 3.0 | one | passed | 2026-11-30 |
`
	for agent, want := range map[string][]string{"mine": {"1.0"}, "yours": {"3.0"}, "agent": nil, "": nil} {
		if got := tried(page, agent); !slices.Equal(got, want) {
			t.Errorf("tried(%q) = %v, want %v", agent, got, want)
		}
	}
}
