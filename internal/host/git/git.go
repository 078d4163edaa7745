// Package git asks git what a work tree looks like, without leaving a trace in it.
package git

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/redact"
)

const (
	timeLimit = 2 * time.Second
	maxOutput = 1 << 20 // bytes of git's answer that are read
	maxEntry  = 300     // bytes of one changed name that are kept
)

// Status asks git about a folder: branch, HEAD and changed names, read only, without locks, hooks or a file-system
// monitor, two seconds at most. nil when the folder is no work tree or there is no git.
func Status(ctx context.Context, folder string) *checkpoint.WorkTree {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	cmd := exec.CommandContext(
		ctx, "git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false",
		"-C", folder, "status", "--porcelain=v2", "--branch", "-z",
	)

	cmd.Env = append(
		environment(os.Environ()), "BELAY_INTERNAL=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C",
		"GIT_TERMINAL_PROMPT=0",
	)

	cmd.WaitDelay = timeLimit / 2
	var out head
	cmd.Stdout = &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return &checkpoint.WorkTree{At: time.Now().UTC(), Error: "git took over 2 seconds"}
	}
	if err != nil {
		return nil
	}

	t := parseStatus(out.b.Bytes())
	t.At = time.Now().UTC()
	t.Branch = redact.Text(t.Branch)
	for i, name := range t.Changed {
		t.Changed[i] = redact.Text(name)
	}

	return t
}

// environment leaves out what a git hook sets for its children: the daemon may have been started below one, and the
// repository meant there is not the one asked about.
func environment(all []string) []string {
	return slices.DeleteFunc(all, func(v string) bool { return strings.HasPrefix(v, "GIT_") })
}

// head keeps the beginning of what is written to it: a work tree may have a million changed names.
type head struct{ b bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := maxOutput - h.b.Len(); room > 0 {
		h.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// parseStatus reads `git status --porcelain=v2 --branch -z` (git-status(1), "Porcelain Format Version 2").
func parseStatus(out []byte) *checkpoint.WorkTree {
	t := &checkpoint.WorkTree{}
	skip := false
	for field := range bytes.SplitSeq(out, []byte{0}) {
		line := string(field)
		if skip || line == "" {
			skip = false
			continue
		}

		switch {
		case strings.HasPrefix(line, "# branch.oid "):
			t.Head = strings.TrimPrefix(line, "# branch.oid ")
		case strings.HasPrefix(line, "# branch.head "):
			t.Branch = strings.TrimPrefix(line, "# branch.head ")
		case line[0] == '#':
		default:
			skip = line[0] == '2' // a rename: the old name is a field of its own
			name := changedName(line)
			if name == "" {
				continue
			}
			if len(t.Changed) == checkpoint.MaxChanged {
				t.More++
				continue
			}

			name, _ = checkpoint.Shorten(strings.ToValidUTF8(name, "\uFFFD"), maxEntry)
			t.Changed = append(t.Changed, name)
		}
	}

	return t
}

// changedName makes "XY path" of one entry.
func changedName(line string) string {
	fields := map[byte]int{'1': 8, '2': 9, 'u': 10} // fields before the path
	if n, ok := fields[line[0]]; ok {
		parts := strings.SplitN(line, " ", n+1)
		if len(parts) <= n {
			return ""
		}
		return parts[1] + " " + parts[n]
	}

	if path, ok := strings.CutPrefix(line, "? "); ok {
		return "?? " + path
	}

	return ""
}
