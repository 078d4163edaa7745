package run

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"belay/checkpoint"
	"belay/internal/host/proc"
	"belay/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		end   End
		code  int
		text  string
		clean bool
	}{
		{End{}, 0, "exit code 0", true},
		{End{Code: 3}, 3, "exit code 3", false},
		{End{Signal: syscall.SIGTERM}, 143, "killed by SIGTERM", false},
		{End{Signal: syscall.SIGKILL, OOM: proc.OOMOwn}, 137, "killed by SIGKILL: out of memory", false},
		{End{Signal: syscall.SIGKILL, OOM: proc.OOMElsewhere}, 137, "killed by SIGKILL, perhaps out of memory: the kernel killed for that meanwhile", false},
	} {
		if c.end.ExitCode() != c.code || c.end.String() != c.text || c.end.Clean() != c.clean {
			t.Errorf(
				"%+v: got %d, %q, clean %v, want %d, %q, %v", c.end, c.end.ExitCode(), c.end, c.end.Clean(),
				c.code, c.text, c.clean,
			)
		}
	}
}

// TestFamily: whoever was seen below the head belongs to it for good, whatever it calls itself; a process whose start
// is not known cannot be told from a later one.
func TestFamily(t *testing.T) {
	head := checkpoint.Proc{PID: 10, Start: 100, Boot: "b", Name: "launcher"}
	child := checkpoint.Proc{PID: 11, Start: 110, Boot: "b", Name: "node"}
	f := NewFamily(head)
	f.look = func() []checkpoint.Proc { return []checkpoint.Proc{child, {PID: 12}} }
	renamed := head
	renamed.Name = "agent"
	if !f.Has(renamed) || f.Has(child) {
		t.Errorf("before a look: head %v, child %v, want the head alone", f.Has(renamed), f.Has(child))
	}

	f.note()
	f.look = func() []checkpoint.Proc { return nil }
	f.note()
	again := child
	again.Start++
	if !f.Has(child) || f.Has(again) || f.Has(checkpoint.Proc{PID: 12}) {
		t.Errorf("after a look: child %v, another with its number %v, one without a start %v, want the child alone",
			f.Has(child), f.Has(again), f.Has(checkpoint.Proc{PID: 12}))
	}
}

// TestFollowWithoutADaemon ends with its context.
func TestFollowWithoutADaemon(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	NewFamily(checkpoint.Proc{PID: 1, Start: 1}).Follow(ctx, func(context.Context) (*wire.Conn, error) {
		if tries++; tries == 2 {
			cancel()
		}
		return nil, errors.New("no daemon")
	})

	if tries != 2 {
		t.Errorf("%d tries, want 2: it goes on until its context ends", tries)
	}
}

func TestConcerns(t *testing.T) {
	self, err := proc.Self(syscall.Getpid())
	if err != nil {
		t.Fatal(err)
	}

	gone := self
	gone.Start++ // the number was used again: this one is dead
	key := func(session string) checkpoint.Key { return checkpoint.NewKey("mine", "", session, "/w") }
	f := NewFamily(gone)
	w := Witness{Family: f, Marker: Marker{Agent: "mine", Session: "s1"}}
	for _, c := range []struct {
		name  string
		state checkpoint.State
		want  bool
	}{
		{"the named session, of no process", checkpoint.State{Key: key("s1")}, true},
		{"the named session, which we began", checkpoint.State{Key: key("s1"), Proc: &self}, true},
		{"another one, of no process", checkpoint.State{Key: key("s2")}, false},
		{"one of the agent that is gone", checkpoint.State{Key: key("s2"), Proc: &gone}, true},
		{"one of a process that lives", checkpoint.State{Key: key("s2"), Proc: &self}, false},
	} {
		if got := w.concerns(&c.state); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
