package all

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/agenttest"
)

// places are where the agents keep the files of lineForms, below a home.
var places = map[string]string{
	"claude-code": ".claude/projects/-proj", "codex": ".codex", "gemini": ".gemini/tmp/ab/chats",
	"openclaw": ".openclaw/agents/main/sessions", "pi": ".pi/agent/sessions/--proj--",
	"oh-my-pi": ".omp/agent/sessions/-proj", "droid": ".factory/sessions/-proj",
}

// M01: the sessions of every agent are listed from the heads of their files, whatever their size. N05: by id alone,
// too.
func TestM01N05LocateOfEveryAgent(t *testing.T) {
	const files, size = 122, 40 << 20
	everyLineForm(t, func(t *testing.T, f lineForm) {
		home := t.TempDir()
		var last string
		for n := range files {
			last = fmt.Sprintf("%08d-1111-4111-8111-111111111111", n)
			name := strings.ReplaceAll(strings.ReplaceAll(f.file, session, last), "11111111.jsonl", last[:8]+".jsonl")
			if f.agent != "gemini" {
				name = strings.ReplaceAll(f.file, session, last)
			}

			path := filepath.Join(home, places[f.agent], name)
			lines, _ := f.records(1, 2)
			rewrite(t, path, strings.ReplaceAll(f.all(lines...), session, last))
			if err := os.Truncate(path, size); err != nil { // sparse: the rest is a hole
				t.Fatal(err)
			}
		}

		a, _ := ByName(agenttest.Host(home), f.agent)
		before := allocated()
		found, err := a.Locate(t.Context(), agent.Query{Most: 1000})
		if err != nil || len(found) != files {
			t.Errorf("found %d sessions, %v, want %d", len(found), err, files)
		}
		if got, most := allocated()-before, int64(150<<20); got > most {
			t.Errorf("%d bytes were allocated for the list, want %d at most", got, most)
		}

		one, err := a.Locate(t.Context(), agent.Query{Session: last})
		if err != nil || len(one) != 1 || one[0].Session != last {
			t.Errorf("by id: %v, %v, want %s", one, err, last)
		}
	})
}
