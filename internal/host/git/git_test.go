package git

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
)

// repository makes a work tree with one commit.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here")
	}

	dir := t.TempDir()
	t.Setenv("HOME", dir)
	run(t, dir, "init", "-q", "-b", "trunk", "tree")
	tree := filepath.Join(dir, "tree")
	write(t, filepath.Join(tree, "a.txt"), "a")
	run(t, tree, "add", ".")
	run(t, tree, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "one")
	return tree
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStatus(t *testing.T) {
	tree := repository(t)
	write(t, filepath.Join(tree, "a.txt"), "changed")
	write(t, filepath.Join(tree, "new file.txt"), "n")
	run(t, tree, "-c", "core.quotePath=false", "add", "-N", "new file.txt")
	write(t, filepath.Join(tree, "unknown"), "u")
	before := snapshot(t, tree)

	// As below a git hook: the repository meant there is another one.
	t.Setenv("GIT_DIR", filepath.Join(tree, "nowhere"))
	got := Status(t.Context(), tree)
	if got == nil || got.Branch != "trunk" || len(got.Head) != 40 {
		t.Fatalf("status %+v, want branch trunk and a commit", got)
	}

	want := []string{".M a.txt", ".A new file.txt", "?? unknown"}
	slices.Sort(want)
	slices.Sort(got.Changed)
	if !slices.Equal(got.Changed, want) {
		t.Errorf("changed %q, want %q", got.Changed, want)
	}
	if after := snapshot(t, tree); after != before {
		t.Errorf("the work tree changed from\n%s\nto\n%s", before, after)
	}
	if got := Status(t.Context(), t.TempDir()); got != nil {
		t.Errorf("a folder that is no work tree: %+v, want nil", got)
	}
}

// snapshot tells names, sizes and times of everything below a folder.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := e.Info()
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano())
		}

		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return b.String()
}

func TestStatusIsBounded(t *testing.T) {
	tree := repository(t)
	for i := range checkpoint.MaxChanged + 30 {
		write(t, filepath.Join(tree, fmt.Sprintf("%03d", i)), "x")
	}

	got := Status(t.Context(), tree)
	if got == nil || len(got.Changed) != checkpoint.MaxChanged || got.More != 30 {
		t.Fatalf("%d names and %d more, want %d and 30", len(got.Changed), got.More, checkpoint.MaxChanged)
	}
}

func TestStatusEndsInTime(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "git"), "#!/bin/sh\nsleep 60\n")
	if err := os.Chmod(filepath.Join(dir, "git"), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	began := time.Now()
	got := Status(t.Context(), dir)
	if got == nil || got.Error == "" {
		t.Errorf("status %+v, want the reason", got)
	}
	if took := time.Since(began); took > 5*timeLimit {
		t.Errorf("it took %s, want %s", took, timeLimit)
	}
}

func TestParseStatus(t *testing.T) {
	got := parseStatus(
		[]byte(
			"# branch.oid abc\x00# branch.head main\x002 R. N... 1 2 3 a b R100 new\x00old\x001 .M N... 1 2 3 a b with blank\x00u UU N... 1 2 3 4 a b c both\x00? loose\x00! ignored\x00",
		),
	)

	want := []string{"R. new", ".M with blank", "UU both", "?? loose"}
	if got.Branch != "main" || got.Head != "abc" || !slices.Equal(got.Changed, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("# branch.head main\x001 .M N... 1 2 3 a b c\x00"))
	f.Add([]byte("2 \x00"))
	f.Add([]byte("? \xff\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := parseStatus(in)
		if len(got.Changed) > checkpoint.MaxChanged {
			t.Errorf("%d names", len(got.Changed))
		}

		for _, name := range got.Changed {
			if !utf8.ValidString(name) || len(name) > maxEntry {
				t.Errorf("name %q", name)
			}
		}
	})
}
