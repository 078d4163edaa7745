package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"belay/checkpoint"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// child starts a process that lives until it is killed, at the latest when the test ends.
func child(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gone already in most tests
		_ = cmd.Wait()                                      // the same
	})

	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func needIdentity(t *testing.T) checkpoint.Proc {
	t.Helper()
	p, err := Self(os.Getpid())
	if err != nil {
		t.Fatalf("Self: %v", err)
	}
	if p.Start == 0 || p.Boot == "" {
		t.Skipf("%s tells no start time or boot id", runtime.GOOS)
	}

	return p
}

func TestSelf(t *testing.T) {
	p := needIdentity(t)
	if p.PID != os.Getpid() || p.Name == "" {
		t.Errorf("Self gives %+v, want pid %d and a name", p, os.Getpid())
	}
	if alive, known := Alive(p); !alive || !known {
		t.Errorf("Alive(self) = %v, %v; want true, true", alive, known)
	}

	for _, pid := range []int{0, -1, 1 << 30} {
		if _, err := Self(pid); !errors.Is(err, ErrGone) {
			t.Errorf("Self(%d): %v, want ErrGone", pid, err)
		}
	}
}

// A note with the pid of the test itself, left by another process or another boot, is no life.
func TestD05PIDUsedAgain(t *testing.T) {
	me := needIdentity(t)
	for _, c := range []struct {
		name         string
		change       func(p *checkpoint.Proc)
		alive, known bool
	}{
		{"itself", func(p *checkpoint.Proc) {}, true, true},
		{"another start", func(p *checkpoint.Proc) { p.Start-- }, false, true},
		{"another boot", func(p *checkpoint.Proc) { p.Boot = "0f0f" }, false, true},
		{"another boot, start unknown", func(p *checkpoint.Proc) { p.Boot, p.Start = "0f0f", 0 }, false, true},
		{"another start, boot unknown", func(p *checkpoint.Proc) { p.Boot = ""; p.Start-- }, false, true},
		{"same start, boot unknown", func(p *checkpoint.Proc) { p.Boot = "" }, true, false},
		{"pid only", func(p *checkpoint.Proc) { p.Boot, p.Start = "", 0 }, true, false},
		{"no such pid", func(p *checkpoint.Proc) { p.PID = 1 << 30 }, false, true},
		{"no such pid, pid only", func(p *checkpoint.Proc) { *p = checkpoint.Proc{PID: 1 << 30} }, false, true},
		{"no pid", func(p *checkpoint.Proc) { p.PID = 0 }, false, false},
	} {
		p := me
		c.change(&p)
		if alive, known := Alive(p); alive != c.alive || known != c.known {
			t.Errorf("%s: Alive = %v, %v; want %v, %v", c.name, alive, known, c.alive, c.known)
		}

		if !c.alive {
			if err := Wait(t.Context(), p); err != nil {
				t.Errorf("%s: Wait = %v, want nil at once", c.name, err)
			}
		}
	}
}

func TestJudgeHidden(t *testing.T) {
	p := checkpoint.Proc{PID: 7, Start: 5, Boot: "b"}
	for _, c := range []struct {
		name         string
		s            seen
		err          error
		boot         string
		alive, known bool
	}{
		{"details hidden", seen{}, errors.ErrUnsupported, "b", true, false},
		{"boot id hidden", seen{start: 5}, nil, "", true, false},
		{"boot id hidden, other start", seen{start: 6}, nil, "", false, true},
		{"start hidden", seen{}, nil, "b", true, false},
		{"zombie", seen{start: 5, zombie: true}, nil, "b", false, true},
	} {
		if alive, known := judge(p, c.s, c.err, c.boot); alive != c.alive || known != c.known {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, alive, known, c.alive, c.known)
		}
	}
}

func TestZombieIsDead(t *testing.T) {
	needIdentity(t)
	cmd := child(t, "sleep", "60")
	p, err := Self(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}

	kill(t, cmd) // and nobody reaps it
	eventually(t, "the zombie is dead", func() bool { alive, known := Alive(p); return !alive && known })
	if _, err := Self(p.PID); !errors.Is(err, ErrGone) {
		t.Errorf("Self of a zombie: %v, want ErrGone", err)
	}
	if err := Wait(t.Context(), p); err != nil {
		t.Errorf("Wait for a zombie: %v, want nil", err)
	}
}

func TestWaitSeesDeath(t *testing.T) {
	for _, c := range []struct {
		name string
		cut  func(p *checkpoint.Proc)
	}{
		{"known", func(p *checkpoint.Proc) {}},
		{"pid only", func(p *checkpoint.Proc) { p.Start, p.Boot = 0, "" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := child(t, "sleep", "60")
			p, err := Self(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}

			c.cut(&p)
			gone := make(chan error, 1)
			go func() { gone <- Wait(t.Context(), p) }()
			select {
			case err := <-gone:
				t.Fatalf("Wait = %v while the process lives", err)
			case <-time.After(50 * time.Millisecond):
			}

			kill(t, cmd)
			killed := time.Now()
			select {
			case err := <-gone:
				if err != nil {
					t.Errorf("Wait = %v, want nil", err)
				}
				t.Logf("death noticed after %v", time.Since(killed))
			case <-time.After(patience):
				t.Fatalf("death not noticed within %v", patience)
			}
		})
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	me := needIdentity(t)
	before := openFiles()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Wait(ctx, me) }()
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("Wait = %v, want context.Canceled", err)
			}
		case <-time.After(patience):
			t.Fatalf("Wait goes on %v after its context ended", patience)
		}
	}

	if after := openFiles(); after > before+10 {
		t.Errorf("%d open files after 100 waits, %d before", after, before)
	}
}

// openFiles counts this process's descriptors; 0 where the system does not list them.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// Where the system cannot tell of an exit, Wait looks each second.
func TestWaitFallsBackToPolling(t *testing.T) {
	cmd := child(t, "sleep", "60")
	p, err := Self(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		gone := make(chan error, 1)
		go func() {
			gone <- wait(t.Context(), p, func(context.Context, checkpoint.Proc) error {
				asked.Add(1)
				return syscall.ENOSYS
			})
		}()

		time.Sleep(10500 * time.Millisecond)
		if n := asked.Load(); n != 11 {
			t.Errorf("%d looks in 10.5 s, want 11", n)
		}

		select {
		case err := <-gone:
			t.Fatalf("Wait = %v while the process lives", err)
		default:
		}

		kill(t, cmd)
		_ = cmd.Wait() // says that it was killed
		time.Sleep(time.Second)
		select {
		case err := <-gone:
			if err != nil {
				t.Errorf("Wait = %v, want nil", err)
			}
		default:
			t.Error("death not noticed within a second")
		}
	})
}

func TestDescendants(t *testing.T) {
	if runtime.GOOS != "linux" {
		if got := Descendants(os.Getpid(), 10); got != nil {
			t.Errorf("Descendants = %v, want nil where it is not known", got)
		}
		return
	}

	sh := child(t, "sh", "-c", "sleep 60 & sleep 60 & wait")
	var got []checkpoint.Proc
	eventually(t, "a shell and its two children", func() bool {
		got = Descendants(os.Getpid(), 100)
		return len(got) == 3 && got[1].Name == "sleep" && got[2].Name == "sleep"
	})

	if got[0].PID != sh.Process.Pid || got[0].Name != "sh" {
		t.Errorf("first is %+v, want the shell %d", got[0], sh.Process.Pid)
	}

	for _, p := range got {
		if alive, known := Alive(p); !alive || !known {
			t.Errorf("%+v: Alive = %v, %v; want true, true", p, alive, known)
		}
	}

	if got := Descendants(os.Getpid(), 2); len(got) != 2 || got[0].PID != sh.Process.Pid {
		t.Errorf("with a limit of 2: %+v", got)
	}
	if got := Descendants(got[2].PID, 100); len(got) != 0 {
		t.Errorf("a leaf has descendants %+v", got)
	}
	if got := Descendants(1<<30, 100); len(got) != 0 {
		t.Errorf("nobody has descendants %+v", got)
	}

	kill(t, sh) // a zombie now; its children go to another parent
	eventually(t, "no living descendants", func() bool { return len(Descendants(os.Getpid(), 100)) == 0 })
}

func BenchmarkAlive(b *testing.B) {
	p, err := Self(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Alive(p)
	}
}

func BenchmarkDescendants(b *testing.B) {
	for b.Loop() {
		Descendants(os.Getpid(), 100)
	}
}
