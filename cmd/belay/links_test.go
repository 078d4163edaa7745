package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/vfs"
	"belay/internal/wire"
)

const victimWord = "victim-words-that-nobody-may-see"

// victims is a folder of somebody's files, to which links in the state folder lead.
type victims struct {
	dir string
	n   int
	// was is what lay there: name, mode, size, time and bytes.
	was map[string]string
}

// path gives a new victim: a file or folder that is none of belay's, or, with nothing, a name that must not appear.
func (v *victims) path(kind fs.FileMode, nothing bool) (string, error) {
	v.n++
	path := filepath.Join(v.dir, fmt.Sprint(v.n))
	switch {
	case nothing:
		return path, nil
	case kind.IsDir():
		return path, errors.Join(
			os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "state.json"), []byte(victimWord), 0o644),
		)
	}

	return path, os.WriteFile(path, []byte(victimWord+"\n"), 0o644)
}

func (v *victims) look(t *testing.T) map[string]string {
	t.Helper()
	now := map[string]string{}
	err := filepath.WalkDir(v.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err != nil {
			return err
		}

		text := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}

		now[path] = fmt.Sprint(info.Mode(), info.ModTime(), text)
		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	return now
}

// used makes a home whose state folder holds one of everything that a working belay leaves there.
func used(t *testing.T) home {
	t.Helper()
	h := newHome(t)
	_, _ = h.daemon(t)
	data, err := os.ReadFile("../../recovery/testdata/O01-many-turns.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(string(h), "transcript.jsonl")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}

	h.work(t)
	until := func(pattern string) {
		if !wait(func() bool {
			found, _ := filepath.Glob(filepath.Join(h.state(), pattern)) // the pattern is right
			return len(found) > 0
		}) {
			t.Fatalf("no %s in the state folder", pattern)
		}
	}

	until("sessions/claude-code/*/transcript.jsonl.zst")
	until("sessions/claude-code/*/checkpoints/*-full.md")
	stopDaemon(h.state())
	if !wait(func() bool {
		_, err := os.Lstat(filepath.Join(h.state(), "belay.sock"))
		return errors.Is(err, fs.ErrNotExist)
	}) {
		t.Fatal("the daemon does not end")
	}

	until("sessions/claude-code/*/state.json")
	for name, text := range map[string]string{
		"spool/dropped": "1\n", "spool/1700000000000-x1.0": "{}\n", "start.stamp": "", "breaker.json": "{}",
		"drain.lock": "",
	} {
		path := filepath.Join(h.state(), name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}

	return h
}

const linkSession = "44444444-4444-4444-8444-444444444444"

// work sends what an agent sends. No hook says a word or fails, whatever state the folder is in.
func (h home) work(t *testing.T) (said string) {
	t.Helper()
	for _, event := range []string{"SessionStart", "UserPromptSubmit", "Stop"} {
		payload := fmt.Sprintf(
			`{"session_id":%q,"hook_event_name":%q,"cwd":%q,"transcript_path":%q,"source":"startup","prompt":"go on with it"}`,
			linkSession, event, string(h), filepath.Join(string(h), "transcript.jsonl"),
		)
		said += h.run(t, "belay-hook", payload, "claude-code", event)
	}

	return said
}

// run gives all that a program prints. One that does not end is a fault.
func (h home) run(t *testing.T, program, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(place.bin, program), args...)
	cmd.Dir, cmd.Env, cmd.Stdin = string(h), h.env(), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		t.Errorf("%s %q does not end", program, args)
	} else if ee := (*exec.ExitError)(nil); err != nil && (program == "belay-hook" || !errors.As(err, &ee)) {
		t.Errorf("%s %q: %v: %s", program, args, err, out)
	}

	return string(out)
}

// TestO05NothingIsFollowedOutOfTheStateFolder: every file and every folder that belay keeps is replaced by a link to
// somebody's file, to nothing, or by a pipe, level by level; then an agent works, a daemon starts and every command
// looks. The victims are neither shown nor touched, nothing appears where a link leads, and nothing hangs.
func TestO05NothingIsFollowedOutOfTheStateFolder(t *testing.T) {
	seed := used(t)
	var files, folders []string
	err := filepath.WalkDir(seed.state(), func(path string, e fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(seed.state(), path)
		switch {
		case err != nil || rerr != nil:
			return errors.Join(err, rerr)
		case e.IsDir() && rel != ".":
			folders = append(folders, rel)
		case e.Type().IsRegular():
			files = append(files, rel, filepath.Join(filepath.Dir(rel), "."+filepath.Base(rel)+vfs.TempSuffix))
		}

		return nil
	})

	if err != nil || len(files) < 20 || len(folders) < 5 {
		t.Fatalf("%d files, %d folders, %v: this holds too little", len(files), len(folders), err)
	}

	t.Logf("files: %q, folders: %q", files, folders)
	depth := func(n int) (list []string) {
		for _, f := range folders {
			if strings.Count(f, "/") == n {
				list = append(list, f)
			}
		}
		return list
	}

	for _, c := range []replaced{
		{"files", files, false, false, false}, {"files that lead nowhere", files, false, true, false}, {"pipes", files, false, false, true},
		{"folders", depth(0), true, false, false}, {"folders that lead nowhere", depth(0), true, true, false}, {"folders of agents", depth(1), true, false, false},
		{"folders of sessions", depth(2), true, false, false}, {"folders of checkpoints", depth(3), true, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.look(t, seed)
		})
	}
}

// replaced is a set of paths in the state folder, and what stands in their place.
type replaced struct {
	name    string
	paths   []string
	folder  bool
	nothing bool // the links lead nowhere
	pipe    bool
}

func (c replaced) plant(t *testing.T, h home, v *victims) {
	t.Helper()
	for _, rel := range c.paths {
		at := filepath.Join(h.state(), rel)
		mode := fs.FileMode(0)
		if c.folder {
			mode = fs.ModeDir
		}

		err := os.RemoveAll(at)
		if c.pipe {
			err = errors.Join(err, syscall.Mkfifo(at, 0o600))
		} else {
			to, perr := v.path(mode, c.nothing)
			err = errors.Join(err, perr, os.Symlink(to, at))
		}

		if err != nil {
			t.Fatal(err)
		}
	}
}

// look does it for one kind of replacement.
func (c replaced) look(t *testing.T, seed home) {
	t.Helper()
	h := newHome(t)
	v := &victims{dir: filepath.Join(string(h), "victims")}
	if err := errors.Join(
		os.CopyFS(h.state(), os.DirFS(seed.state())), os.Chmod(h.state(), 0o700), os.Mkdir(v.dir, 0o755),
		os.WriteFile(filepath.Join(string(h), "transcript.jsonl"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.Remove(strings.TrimSuffix(wire.SocketPlaces(h.state())[1], "sock") + "lock") })
	c.plant(t, h, v)
	v.was = v.look(t)
	said := h.work(t) // starts a daemon, if one can be started here
	for _, args := range [][]string{{"checkpoint", "--session", linkSession}, {"list"}, {"status"}, {"status", "--session", linkSession}, {"show", "--session", linkSession},
		{"show", "--session", linkSession, "--raw"}, {"show", "--session", linkSession, "--mirror"}, {"recover", "--session", linkSession}, {"doctor"}, {"doctor", "store"},
		{"reset"}} {
		said += h.run(t, "belay", "", args...)
	}

	stopDaemon(h.state())
	if strings.Contains(said, victimWord) {
		t.Errorf("a victim's words are shown:\n%s", said)
	}

	for path, now := range v.look(t) {
		if was, ok := v.was[path]; !ok || was != now {
			t.Errorf("%s: was %q, is %q", path, was, now)
		}
		delete(v.was, path)
	}

	if len(v.was) > 0 {
		t.Errorf("gone: %v", slices.Sorted(maps.Keys(v.was)))
	}
}
