//go:build linux

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/daemon"
	"belay/internal/wire"
)

// busy are settings with gates and bounds so small that an hour meets them all.
var busy = []string{
	"BELAY_GATES_FULL_TIME=2m",
	"BELAY_GATES_SPARSE_TIME=2m",
	"BELAY_HEARTBEAT_EVERY=@every 1m",
	"BELAY_RETENTION_COUNT=20",
	"BELAY_RETENTION_BYTES=1MB",
	"BELAY_JOURNAL_SEGMENT=4MB",
	"BELAY_IDLE_EXIT=2h",
}

func (f *fleet) environment() []string {
	return append(
		[]string{
			"PATH=" + os.Getenv("PATH"),
			"HOME=" + f.root,
			"XDG_CONFIG_HOME=" + f.root,
			"BELAY_STATE_DIR=" + f.state,
			fmt.Sprintf("BELAY_RETENTION_TOTAL_BYTES=%dKB", f.total>>10),
		},
		f.settings...)
}

// build makes the real programs.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if have := os.Getenv("BELAY_SOAK_BIN"); have != "" {
		return have
	}

	for _, name := range []string{"belay", "belay-hook"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), "belay/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, out)
		}
	}

	return dir
}

// launch starts a daemon, unless one answers already, and says which process it is.
func (f *fleet) launch(ctx context.Context) (int, error) {
	cmd := exec.Command(filepath.Join(f.bin, "belay"), "daemon")
	cmd.Env = f.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}

	go func() { _ = cmd.Wait() }() // killed, or another one was first
	return f.daemon(ctx, time.Minute)
}

// daemon asks who answers on the socket.
func (f *fleet) daemon(ctx context.Context, patience time.Duration) (int, error) {
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		var hello struct {
			PID int `json:"pid"`
		}
		if last = f.ask(ctx, "hello", &hello); last == nil {
			return hello.PID, nil
		}
	}

	return 0, fmt.Errorf("no daemon answers: %w", errors.Join(last, ctx.Err()))
}

func (f *fleet) ask(ctx context.Context, op string, v any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	conn, err := wire.Dial(ctx, f.state, "")
	if err != nil {
		return err
	}

	defer conn.Close()
	reply, _, err := conn.Do(ctx, wire.Request{Op: op}, nil)
	if err == nil && !reply.OK {
		err = errors.New(reply.Message)
	}
	if err != nil {
		return err
	}

	return json.Unmarshal(reply.Body, v)
}

// sample is what the daemon takes at a moment.
type sample struct {
	At         time.Time `json:"at"`
	PID        int       `json:"pid"`
	Private    int64     `json:"private"` // bytes of memory that are the process's own
	Files      int64     `json:"files"`
	Goroutines int64     `json:"goroutines"`
	Active     int64     `json:"active"`   // sessions in memory
	Kept       int64     `json:"kept"`     // bytes below sessions/
	Journal    int64     `json:"journal"`  // bytes
	Spool      int64     `json:"spool"`    // bytes
	Spooled    int64     `json:"spooled"`  // files
	Rest       int64     `json:"rest"`     // bytes of all else
	Segments   int64     `json:"segments"` // of the journal
	Counted    int64     `json:"counted"`  // what the daemon believes of Kept
	Events     int64     `json:"events"`
	Taken      int64     `json:"taken"` // checkpoints
}

// look takes a sample; false when no daemon answers just now.
func (f *fleet) look(ctx context.Context) (sample, bool) {
	s := sample{At: time.Now()}
	disk(&s, f.state)
	var st daemon.Status
	if err := f.ask(ctx, "status", &st); err != nil {
		return s, false
	}

	s.PID, s.Active, s.Goroutines = st.PID, int64(len(st.Sessions)), st.Counts["goroutines"]
	s.Counted, s.Events, s.Taken = st.Counts["kept_bytes"], st.Counts["events"], st.Counts["checkpoints"]
	s.Private = private(st.PID)
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", st.PID))
	s.Files = int64(len(fds))
	return s, err == nil && s.Private > 0
}

// disk measures a state folder. What goes while it is measured is not there.
func disk(s *sample, state string) {
	_ = filepath.WalkDir(state, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}

		info, err := d.Info()
		if err != nil {
			return nil
		}

		rel, _ := filepath.Rel(state, p)
		switch top, _, _ := strings.Cut(rel, "/"); top {
		case "sessions":
			s.Kept += info.Size()
		case "journal":
			s.Journal += info.Size()
			s.Segments++
		case "spool":
			s.Spool += info.Size()
			if !strings.HasSuffix(p, ".lock") && info.Size() > 0 {
				s.Spooled++
			}

		default:
			s.Rest += info.Size()
		}

		return nil
	})
}

// private is how many bytes of memory no other process shares. Pages of the program's file count while this process
// alone runs it.
func private(pid int) int64 {
	return (procField(pid, "smaps_rollup", "Private_Clean:") + procField(pid, "smaps_rollup", "Private_Dirty:")) << 10
}

// procField reads a number from one of a process's files in /proc; 0 when it cannot.
func procField(pid int, file, name string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}

	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64) // the kernel writes a number
			return n
		}
	}

	return 0
}

// left lists the processes that belong to a state folder.
func left(state string) (pids []int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		env, err := os.ReadFile(filepath.Join(p, "environ"))
		if err == nil && bytes.Contains(env, []byte("BELAY_STATE_DIR="+state+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(p)) // the pattern leaves numbers only
			pids = append(pids, pid)
		}
	}

	return pids
}
