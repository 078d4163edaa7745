package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"

	"golang.org/x/sys/unix"
)

func look(pid int) (seen, error) {
	if pid <= 0 {
		return seen{}, ErrGone
	}

	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return seen{}, exists(pid)
	}

	return parseStat(line)
}

// parseStat reads the line of /proc/PID/stat: pid (name) state parent ... start as field 22. The name may hold
// anything, blanks, brackets and newlines too, so the fields count from the last bracket.
func parseStat(line []byte) (seen, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return seen{}, fmt.Errorf("read process state: no name in %.40q", line)
	}

	fields := bytes.Fields(line[end+1:])
	const state, parent, start = 0, 1, 19 // fields 3, 4 and 22 of the line
	if len(fields) <= start {
		return seen{}, fmt.Errorf("read process state: %d fields after the name", len(fields))
	}

	ppid, err := strconv.ParseUint(string(fields[parent]), 10, 31)
	if err != nil {
		return seen{}, fmt.Errorf("read process state: parent: %w", err)
	}

	began, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return seen{}, fmt.Errorf("read process state: start: %w", err)
	}

	s := string(fields[state])
	return seen{
		name:   strings.ToValidUTF8(string(line[open+1:end]), "?"),
		parent: int(ppid),
		start:  began,
		zombie: s == "Z" || s == "X" || s == "x",
	}, nil
}

// bootID is new with each boot; empty when it cannot be read.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// waitExit waits for the exit of p on a descriptor of the process: the runtime's poller wakes this goroutine, no thread
// waits. An error other than ctx's means that this way is not open.
func waitExit(ctx context.Context, p checkpoint.Proc) error {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.10
		if fd, err = unix.PidfdOpen(p.PID, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}

	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}

	f := os.NewFile(uintptr(fd), "pidfd") // non-blocking, so it joins the poller
	defer f.Close()                       // nothing was written

	// Only now: the descriptor may have been opened on a later process with the same number.
	if alive, known := Alive(p); !alive && known {
		return nil
	}

	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("watch process %d: %w", p.PID, err) // not in the poller: reading would spin
	}

	stop := context.AfterFunc(ctx, func() {
		_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only when f is closed, and then nobody waits
	})
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n > 0
	})

	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", p.PID, err)
	}

	return nil
}

// Descendants gives the living children of a process, their children and so on, the nearest first, at most most of
// them. It reads all of /proc once.
func Descendants(pid, most int) []checkpoint.Proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}

	defer dir.Close() // read only
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}

	found, children := make(map[int]seen), make(map[int][]int)
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil {
			continue
		}

		s, err := look(n)
		if err != nil {
			continue // it has just ended
		}

		found[n] = s
		children[s.parent] = append(children[s.parent], n)
	}

	var all []checkpoint.Proc
	boot := bootID()
	for queue, done := children[pid], map[int]bool{pid: true}; len(queue) > 0 && len(all) < most; queue = queue[1:] {
		n := queue[0]
		if done[n] {
			continue // numbers were used again while we read
		}

		done[n] = true
		if s := found[n]; !s.zombie {
			all = append(all, checkpoint.Proc{PID: n, Start: s.start, Boot: boot, Name: s.name})
		}

		queue = append(queue, children[n]...)
	}

	return all
}
