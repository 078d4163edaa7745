package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/daemon/session"
)

// newestSaid is a session's last message; how many times each text stands in it is checked on the way.
func (r *running) newestSaid(id string) string {
	r.t.Helper()
	seen, last := map[string]int{}, ""
	key := findKey(r.t, r, id)
	_, _ = session.Ask(r.t.Context(), r.active(key), func(st *checkpoint.State) bool {
		for _, m := range st.Messages {
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

// S06: while a compaction runs the agent writes to two files of one session, then to the new one alone. What was copied
// counts once, and the newest turn is always the last, whether hooks name the file or are silent.
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

				until(
					t, fmt.Sprintf("record %d is the last", n),
					func() bool { return r.newestSaid(sessionA) == said(n) },
				)
			}

			if res := r.recover(
				"claude-code", sessionA,
			); !strings.Contains(res.Text, said(39)) ||
				!strings.Contains(res.Text, said(38)) {
				t.Errorf("the newest turn is not in\n%s", res.Text)
			}
		})
	}
}

// What the older of two files holds is told as the newer one's is: each record goes to the session that it names, and a
// line that is none is counted. Once the older file is rewritten it is followed no longer, and rounds go on to count.
func TestTheOlderOfTwoFilesIsReadAsTheNewer(t *testing.T) {
	old := transcriptPath(t, sessionA)
	now := filepath.Join(filepath.Dir(old), sessionB+".jsonl")
	r := start(t, tempDir(t))
	appendLines(t, old, record(sessionA, "user", "wish 0", 0), record(sessionA, "assistant", "answer 1", 1))
	r.claude(old, startOf(sessionA, "startup", "/proj"))
	until(t, "the old file is read", func() bool { return r.newestSaid(sessionA) == "answer 1" })
	appendLines(t, now, record(sessionA, "user", "wish 2", 2))
	r.claude(now, startOf(sessionA, "compact", "/proj"))
	until(t, "the new file is read", func() bool { return r.newestSaid(sessionA) == "wish 2" })

	const third = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
	appendLines(
		t, old, record(third, "user", "a wish of another session", 3), "{no record",
		record(sessionA, "assistant", "answer 4", 4),
	)

	until(t, "the old file's record is there", func() bool { return r.newestSaid(sessionA) == "answer 4" })
	if got := r.newestSaid(third); got != "a wish of another session" {
		t.Errorf("the other session's last word is %q, want its own record", got)
	}
	if st := r.session("claude-code", sessionA); st.Lost.BadLines != 1 {
		t.Errorf("%d bad lines are counted, want the one in the older file", st.Lost.BadLines)
	}

	if err := os.WriteFile(old, []byte(record(sessionA, "user", "from the past", 5)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	until(t, "the rewritten file is let go", func() bool {
		return len(r.l.watchers.readers(old)) == 0
	})
	before := r.session("claude-code", sessionA).MessageCount
	for n := 6; n < 10; n++ {
		appendLines(
			t, now,
			record(sessionA, map[bool]string{true: "user", false: "assistant"}[n%2 == 0], fmt.Sprint("word ", n), n),
		)
	}

	until(t, "the new file is read on", func() bool { return r.newestSaid(sessionA) == "word 9" })
	if got := r.session("claude-code", sessionA).MessageCount; got <= before {
		t.Errorf("%d rounds after two more turns, %d before them", got, before)
	}

	counting, _ := session.Ask(
		t.Context(), r.active(findKey(t, r, sessionA)), func(st *checkpoint.State) bool { return !st.Reread },
	)

	if !counting {
		t.Error("turns of the newer file count as history because the older one was rewritten")
	}
}
