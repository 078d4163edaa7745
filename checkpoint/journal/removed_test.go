package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"belay/internal/vfs"
)

// What somebody takes away from under a journal that is being written: no record is called durable that nobody can
// find.
func TestRemovedWhileItIsWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		take func(dir, segment string) error
		left []uint64 // of the records before it
	}{
		{"folder", func(dir, _ string) error { return os.RemoveAll(dir) }, nil},
		{"folder moved away", func(dir, _ string) error { return os.Rename(dir, dir+".old") }, nil},
		{"segment", func(_, segment string) error { return os.Remove(segment) }, nil},
		{"segment copied and put back", func(_, segment string) error {
			data, err := os.ReadFile(segment)
			return errors.Join(err, os.Rename(segment, segment+".old"), os.WriteFile(segment, data, 0o600))
		}, []uint64{1, 2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			j, err := Open(vfs.OS{}, dir, Options{})
			if err != nil {
				t.Fatal(err)
			}

			stop := run(j)
			put(t, j, 3)
			if err := tc.take(dir, segmentName(dir, 1)); err != nil {
				t.Fatal(err)
			}

			put(t, j, 2)
			if want := []Segment{{1, 3}}; !slices.Equal(j.Sealed(), want) {
				t.Errorf("sealed %v, want %v: the states must keep what was in it", j.Sealed(), want)
			}
			if h := j.Health(); h.Err != nil {
				t.Errorf("health %+v, want a disk that is well", h)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}

			var got []uint64
			if _, err := Scan(vfs.OS{}, dir, 0, collect(t, &got)); err != nil {
				t.Fatal(err)
			}
			if want := append(tc.left, 4, 5); !slices.Equal(got, want) {
				t.Errorf("records %v are found, want %v", got, want)
			}
		})
	}
}

func TestLookNoticesWithoutARecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	j, err := Open(vfs.OS{}, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}

	stop := run(j)
	put(t, j, 3)
	j.Look()
	put(t, j, 1) // it looks before it writes, or after: nothing is wrong either way
	if len(j.Sealed()) != 0 {
		t.Errorf("sealed %v of a journal that is there, want none", j.Sealed())
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}

	j.Look()
	select {
	case <-j.Changed():
	case <-time.After(20 * time.Second):
		t.Fatal("nobody noticed that the folder is gone")
	}

	if want := []Segment{{1, 4}}; !slices.Equal(j.Sealed(), want) {
		t.Errorf("sealed %v, want %v", j.Sealed(), want)
	}

	put(t, j, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(segmentName(dir, 5)); err != nil {
		t.Errorf("the next segment: %v", err)
	}
}
