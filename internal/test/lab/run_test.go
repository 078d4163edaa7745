//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestClaudeUnderRun: a day with `belay run`. A good run says nothing of belay's; a killed one says how to go on, and
// the next session is told.
func TestClaudeUnderRun(t *testing.T) {
	h := newHome(t)
	h.by = []string{filepath.Join(os.Getenv(binVar), "belay"), "run", "--"}
	h.model.Script(Turn{Text: "The first round is done."})
	a := h.start("hello there")
	if code := a.wait(); code != 0 || strings.Contains(a.printed(), "belay") {
		t.Errorf("a good run: exit %d, printed %q, want 0 and nothing of belay's", code, a.printed())
	}
	if st := h.status(h.newest()); st.State != "ended" || st.MessageCount != 1 {
		t.Errorf("after a good run: %s with %d rounds, want ended with 1", st.State, st.MessageCount)
	}

	a = h.inTool()
	session := h.newest()
	if code := a.signal(syscall.SIGKILL); code != 128+int(syscall.SIGKILL) {
		t.Errorf("exit after kill -9: got %d, want 137", code)
	}

	for _, want := range []string{"killed by SIGKILL", "Session " + session, "in the middle of its work", "claude --resume " + session} {
		if !strings.Contains(a.printed(), want) {
			t.Errorf("after kill -9: no %q in\n%s", want, a.printed())
		}
	}

	h.died(session)
	h.killTools()
	h.model.Script(Turn{Text: "I look at what was done."})
	toldInDoubt(t, h.run("please go on"))
}
