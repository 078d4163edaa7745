package openclaw

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
)

// TestExamineFile: what keeps OpenClaw from a session's file is not what keeps pi from it: it makes itself a header
// that is lost, and goes round no circle.
func TestExamineFile(t *testing.T) {
	const talk = `{"type":"message","id":"aaaaaaaa","parentId":null,"timestamp":"2026-11-30T15:00:00.000Z","message":{"role":"user","content":"one","timestamp":1}}` + "\n" +
		`{"type":"message","id":"bbbbbbbb","parentId":"aaaaaaaa","timestamp":"2026-11-30T15:00:01.000Z","message":{"role":"assistant","content":[{"type":"text","text":"two"}],"stopReason":"stop","timestamp":2}}` + "\n"
	for name, c := range map[string]struct{ text, changes, why string }{
		"whole":                     {header + "\n" + talk, "", ""},
		"no header":                 {talk, "", ""},
		"torn header":               {header[:40] + "\n" + talk, "cut bad line", ""},
		"torn header with a folder": {strings.TrimSuffix(header, "}") + `,"pare` + "\n" + talk, "make header, cut bad line", "it makes another header"},
		"mark":                      {"\xef\xbb\xbf" + header + "\n" + talk, "cut byte-order mark", "it makes another header"},
		"circle":                    {header + "\n" + strings.Replace(talk, "null", `"bbbbbbbb"`, 1), "break cycle", "lost to the model: the parents"},
	} {
		file := filepath.Join(t.TempDir(), "copy.jsonl") // its name tells no id
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}

		x, err := New(agent.Host{}).Examine(t.Context(), agent.Source{Path: file}, nil)
		if err != nil {
			t.Fatal(err)
		}

		var changes []string
		for _, change := range x.Changes {
			changes = append(changes, string(change.Action))
		}

		why := strings.Join(x.WhyNot, "; ")
		if got := strings.Join(
			changes, ", ",
		); got != c.changes || x.Resumable != (c.why == "") ||
			!strings.Contains(why, c.why) {
			t.Errorf("%s: got changes %q, not taken up because %q, want %q and %q", name, got, why, c.changes, c.why)
		}
	}
}
