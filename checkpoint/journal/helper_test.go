package journal

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/state/journal"

// newMem is a disk with a state folder.
func newMem(t *testing.T) *vfstest.Mem {
	t.Helper()
	m := vfstest.NewMem()
	if err := m.MkdirAll("/state", vfs.DirMode); err != nil {
		t.Fatal(err)
	}
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}

	return m
}

func payload(seq uint64) string { return fmt.Sprintf(`{"record":%d}`, seq) }

func open(t *testing.T, fsys vfs.FS, opt Options) *Journal {
	t.Helper()
	j, err := Open(fsys, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// run starts the committer; the function it returns stops it and gives its error.
func run(j *Journal) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// add appends the next record.
func add(t *testing.T, j *Journal) uint64 {
	t.Helper()
	seq, err := j.Append(t.Context(), []byte(payload(j.Health().Last+1)))
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// put appends n records and waits for each.
func put(t *testing.T, j *Journal, n int) (last uint64) {
	t.Helper()
	for range n {
		last = add(t, j)
		if err := j.Wait(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}

	return last
}

// fill makes a journal of n records and closes it.
func fill(t *testing.T, fsys vfs.FS, opt Options, n int) {
	t.Helper()
	j := open(t, fsys, opt)
	stop := run(j)
	put(t, j, n)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// replay gives the numbers of all records and fails the test for a payload that is not its record's.
func replay(t *testing.T, j *Journal, from uint64) ([]uint64, Report) {
	t.Helper()
	var got []uint64
	r, err := j.Replay(t.Context(), from, collect(t, &got))
	if err != nil {
		t.Fatal(err)
	}
	return got, r
}

func scan(t *testing.T, fsys vfs.FS, from uint64) ([]uint64, Report) {
	t.Helper()
	var got []uint64
	r, err := Scan(fsys, dir, from, collect(t, &got))
	if err != nil {
		t.Fatal(err)
	}
	return got, r
}

func collect(t *testing.T, into *[]uint64) func(uint64, []byte) error {
	return func(seq uint64, p []byte) error {
		if string(p) != payload(seq) {
			t.Errorf("record %d holds %q, want %q", seq, p, payload(seq))
		}
		if n := len(*into); n > 0 && (*into)[n-1] >= seq {
			t.Errorf("record %d after record %d", seq, (*into)[n-1])
		}

		*into = append(*into, seq)
		return nil
	}
}

// numbers is first..last.
func numbers(first, last uint64) (out []uint64) {
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

func readFile(t *testing.T, fsys vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
