package daemon

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/wire"
)

// living plays sessions of one workspace, all of one process that lives.
func (r *running) living(n int, cwd string) {
	r.t.Helper()
	c := r.dial()
	for i := range n {
		req := eventRequest(
			fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i),
			wire.Event{Kind: "prompt", Text: "a wish", PID: os.Getpid()},
		)

		req.Agent, req.Workspace, req.Early = "claude-code", cwd, true
		if reply, _, err := tryDo(c, req, nil); err != nil || !reply.OK {
			r.t.Fatalf("prompt %d: %+v, %v", i, reply, err)
		}
	}
}

// starting is how long a new session's start takes, and what it is told.
func (r *running) starting(session, cwd string) (time.Duration, string) {
	r.t.Helper()
	began := time.Now()
	_, text := r.hook(os.Getpid(), startOf(session, "startup", cwd))
	return time.Since(began), text
}

// A start in a workspace where a thousand sessions live looks at one process, and asks none of them.
func TestStartBesideAThousand(t *testing.T) {
	home(t)
	r, cwd := start(t, tempDir(t)), tempDir(t)
	began := time.Now()
	r.living(1000, cwd)
	t.Logf("a thousand sessions are there after %s", time.Since(began).Round(time.Millisecond))
	alone, _ := r.starting(sessionB, tempDir(t))
	took, text := r.starting(sessionA, cwd)
	t.Logf("start beside a thousand: %s; in a folder of its own: %s", took, alone)
	if text != "" {
		t.Errorf("a start beside living sessions was told %q", text)
	}
	if took > r.d.times.brief {
		t.Errorf("it took %s, want %s at most", took, r.d.times.brief)
	}
}

// One session that is held up, by a disk for example, keeps no other from starting; and nothing is proven beside it.
func TestStartBesideAStuckSession(t *testing.T) {
	home(t)
	for _, tc := range []struct {
		name  string
		crash bool // the stuck one's process is gone
	}{{"that lives", false}, {"that died", true}} {
		t.Run(tc.name, func(t *testing.T) {
			r, cwd := start(t, tempDir(t)), tempDir(t)
			end := r.atWork(sessionB, cwd)
			r.crashed(sessionA, cwd)
			if tc.crash {
				end()
				until(
					t, "the death is noticed",
					func() bool { return r.session("claude-code", sessionB).State == "died" },
				)
			}

			stuck, goOn := make(chan struct{}), make(chan struct{})
			for _, s := range r.l.sessions.Active() {
				if s.Key.Session == sessionB {
					go session.Ask(t.Context(), s, func(*checkpoint.State) bool { close(stuck); <-goOn; return true })
				}
			}

			<-stuck
			took, text := r.starting(sessionC, cwd)
			close(goOn)
			if took > r.d.times.brief {
				t.Errorf("the start took %s, want %s at most", took, r.d.times.brief)
			}
			if !strings.Contains(text, sessionA) || strings.Contains(text, "deploy the thing for") {
				t.Errorf("the start was told %q, want a list with %s and no content", text, sessionA)
			}
		})
	}
}
