package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestReplaceIsOldOrNew fails each step in turn and cuts the power after it: the file is never anything but whole, and what
// was reported as replaced is replaced.
func TestReplaceIsOldOrNew(t *testing.T) {
	for k := 0; ; k++ {
		m := vfstest.NewMem()
		if err := errors.Join(m.MkdirAll("/d", vfs.DirMode), m.SyncDir("/"), vfs.Replace(m, "/d/f", []byte("old"))); err != nil {
			t.Fatal(err)
		}
		fault := vfstest.NewFault(m, k, syscall.ENOSPC)
		err := vfs.Replace(fault, "/d/f", []byte("new"))
		if fault.Fired() && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d (%s): fault swallowed: %v", k, fault.Op(), err)
		}
		for seed := range uint64(20) {
			data, rerr := vfs.ReadFile(m.CrashClone(seed), "/d/f", 100)
			got := string(data)
			if rerr != nil || got != "old" && got != "new" || err == nil && got != "new" {
				t.Errorf("operation %d (%s, %v): %q, %v after power loss", k, fault.Op(), err, got, rerr)
			}
		}
		if !fault.Fired() {
			return
		}
		if s := m.String(); strings.Contains(s, vfs.TempSuffix) {
			t.Errorf("operation %d (%s): temporary file left: %s", k, fault.Op(), s)
		}
	}
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
	left := filepath.Join(dir, ".g"+vfs.TempSuffix)
	if err := os.WriteFile(left, nil, vfs.FileMode); err != nil {
		t.Fatal(err)
	}
	if err := vfs.SweepTemps(vfs.OS{}, dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "f" {
		t.Errorf("after sweeping: %v, %v, want only f", entries, err)
	}
	if err := vfs.SweepTemps(vfs.OS{}, filepath.Join(dir, "missing")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}
