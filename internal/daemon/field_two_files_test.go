package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// newestSaid is a session's last message; how many times each text stands in it is checked on the way.
func (r *running) newestSaid(id string) string {
	r.t.Helper()
	seen, last := map[string]int{}, ""
	key := findKey(r.t, r, id)
	_, _ = ask(r.t.Context(), r.d.session(key), func(s *session) bool {
		for _, m := range s.state.Messages {
			seen[m.Text]++
			last = m.Text
		}
		return true
	})
	for text, n := range seen {
		if n > 1 {
			r.t.Errorf("%q stands there %d times", text, n)
		}
	}
	return last
}

// S06: while a compaction runs the agent writes to two files of one session, then to the new one alone. What was copied counts
// once, and the newest turn is always the last, whether hooks name the file or are silent.
func TestS06TwoFilesGrowAtOnce(t *testing.T) {
	said := func(n int) string {
		return fmt.Sprintf("%s %d", map[bool]string{true: "wish", false: "answer"}[n%2 == 0], n)
	}
	line := func(n int) string {
		return record(sessionA, map[bool]string{true: "user", false: "assistant"}[n%2 == 0], said(n), n)
	}
	for name, hooks := range map[string]bool{"hooks name the file": true, "hooks are silent": false} {
		t.Run(name, func(t *testing.T) {
			old := transcriptPath(t, sessionA)
			now := filepath.Join(filepath.Dir(old), sessionB+".jsonl")
			r := start(t, tempDir(t))
			for n := range 20 {
				appendLines(t, old, line(n))
			}
			r.claude(old, startOf(sessionA, "startup", "/proj"))
			until(t, "the old file is read", func() bool { return r.newestSaid(sessionA) == said(19) })
			for n := range 20 {
				appendLines(t, now, line(n))
			}
			r.claude(now, startOf(sessionA, "compact", "/proj"))
			for n := 20; n < 40; n++ {
				path := now
				if n < 30 && n%2 == 0 {
					path = old
				}
				appendLines(t, path, line(n))
				if hooks && n%2 == 0 {
					r.claude(path, promptOf(sessionA, said(n), "/proj"))
				} else if hooks {
					r.claude(path, stopOf(sessionA, said(n), "/proj"))
				}
				until(t, fmt.Sprintf("record %d is the last", n), func() bool { return r.newestSaid(sessionA) == said(n) })
			}
			if res := r.recover("claude-code", sessionA); !strings.Contains(res.Text, said(39)) || !strings.Contains(res.Text, said(38)) {
				t.Errorf("the newest turn is not in\n%s", res.Text)
			}
		})
	}
}
