package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestReplaceIsOldOrNew: the file is never anything but whole, what was reported as replaced is replaced, and nothing
// of a failed try stays.
func TestReplaceIsOldOrNew(t *testing.T) {
	vfstest.Sweep{Least: 7}.Run(t, func(p *vfstest.Point) {
		m := p.Mem
		if err := errors.Join(
			m.MkdirAll("/d", vfs.DirMode), m.SyncDir("/"), vfs.Replace(m, "/d/f", []byte("old")),
		); err != nil {
			t.Fatal(err)
		}

		err := p.Hear(vfs.Replace(p, "/d/f", []byte("new")))
		for seed := range uint64(20) {
			data, rerr := vfs.ReadFile(m.CrashClone(seed), "/d/f", 100)
			got := string(data)
			if rerr != nil || got != "old" && got != "new" || err == nil && got != "new" {
				p.Errorf("%v: %q, %v after power loss", err, got, rerr)
			}
		}

		if s := m.String(); !p.Dies && strings.Contains(s, vfs.TempSuffix) {
			p.Errorf("temporary file left: %s", s)
		}
	})
}

func TestOnTheRealDisk(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	for _, want := range []string{"one", "", "three"} {
		if err := vfs.Replace(vfs.OS{}, name, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := vfs.ReadFile(vfs.OS{}, name, 5); string(got) != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}

	if info, err := os.Lstat(name); err != nil || info.Mode() != vfs.FileMode {
		t.Errorf("mode %v, %v, want %v", info.Mode(), err, vfs.FileMode)
	}
	if _, err := vfs.ReadFile(vfs.OS{}, name, 4); err == nil {
		t.Error("a file over the limit was read")
	}

	// A left-over of a crash does not hand its mode on, nor does the umask take anything away.
	for _, mode := range []os.FileMode{0o755, 0o622, vfs.FileMode} {
		if err := os.WriteFile(filepath.Join(dir, ".f"+vfs.TempSuffix), []byte("left-over"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceMode(vfs.OS{}, name, []byte("three"), mode); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(name); err != nil || info.Mode() != mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, mode)
		}
	}

	left := filepath.Join(dir, ".g"+vfs.TempSuffix)
	if err := os.WriteFile(left, nil, vfs.FileMode); err != nil {
		t.Fatal(err)
	}
	if err := vfs.SweepTemps(vfs.OS{}, dir, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(left); err != nil {
		t.Errorf("a temporary file that somebody is at: %v", err)
	}
	if err := vfs.SweepTemps(vfs.OS{}, dir, time.Time{}); err != nil {
		t.Fatal(err)
	}

	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "f" {
		t.Errorf("after sweeping: %v, %v, want only f", entries, err)
	}
	if err := vfs.SweepTemps(vfs.OS{}, filepath.Join(dir, "missing"), time.Time{}); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}
