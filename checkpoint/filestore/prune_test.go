package filestore

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// gauge counts the bytes of all files of a file system at every moment.
type gauge struct {
	vfs.FS
	used, most int64
}

func (g *gauge) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &gaugeFile{f, g}, nil
}

func (g *gauge) Remove(name string) error {
	info, err := g.FS.Lstat(name)
	if err != nil {
		return err
	}
	g.used -= info.Size()
	return g.FS.Remove(name)
}

type gaugeFile struct {
	vfs.File
	g *gauge
}

func (f *gaugeFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.g.used += int64(n)
	f.g.most = max(f.g.most, f.g.used)
	return n, err
}

// Ten thousand checkpoints with a budget of 5 MB: at no byte that is written, temporary files included, does the store
// hold more; and the newest FULL is there after each.
func TestG04BudgetWithTemps(t *testing.T) {
	const budget = 5_000_000
	g := &gauge{FS: vfstest.NewMem()}
	s := Open(g, "/state")
	p := checkpoint.Policy{Bytes: budget}
	for n := uint64(1); n <= 10_000; n++ {
		m := meta(n, checkpoint.Sparse)
		if n%5 == 1 {
			m.Level = checkpoint.Full
		}

		data := bytes.Repeat([]byte{byte(n)}, int(10_000+n*7919%60_000))
		prune(t, s, p.Room(int64(len(data))))
		if err := s.Put(t.Context(), testKey, m, data); err != nil {
			t.Fatalf("put %d: %v", n, err)
		}
		if g.most > budget {
			t.Fatalf("at checkpoint %d the store held %d bytes, budget %d", n, g.most, budget)
		}

		if full := n - (n-1)%5; n%50 == 0 || m.Level == checkpoint.Full {
			if _, err := s.Get(t.Context(), testKey, full); err != nil {
				t.Fatalf("at checkpoint %d the last good FULL %d is gone: %v", n, full, err)
			}
		}
	}

	if g.most < budget/2 {
		t.Errorf("never more than %d bytes of %d were used", g.most, budget)
	}
}

func prune(t *testing.T, s *Store, p checkpoint.Policy) {
	t.Helper()
	list, err := s.List(t.Context(), testKey)
	if err != nil {
		t.Errorf("list: %v", err)
	}

	for _, n := range checkpoint.Prune(list, p, time.Now()) {
		if err := s.Delete(t.Context(), testKey, n); err != nil {
			t.Errorf("delete %d: %v", n, err)
		}
	}
}

// A reader that meets pruning finds the newest checkpoint and the FULL below it, whole, each time.
func TestG05ReadWhilePruning(t *testing.T) {
	s := Open(vfstest.NewMem(), "/state")
	content := func(n uint64) []byte { return []byte(strings.Repeat(string(rune('a'+n%26)), 500)) }
	if err := s.Put(t.Context(), testKey, meta(1, checkpoint.Full), content(1)); err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer close(done)
		for n := uint64(2); n <= 1500; n++ {
			m := meta(n, checkpoint.Sparse)
			if n%4 == 1 {
				m.Level = checkpoint.Full
			}
			if err := s.Put(t.Context(), testKey, m, content(n)); err != nil {
				t.Errorf("put %d: %v", n, err)
			}

			prune(t, s, checkpoint.Policy{Count: 8})
		}
	})

	defer writer.Wait()
	for reads := 0; ; reads++ {
		select {
		case <-done:
			t.Logf("%d reads", reads)
			return
		default:
		}

		list, err := s.List(t.Context(), testKey)
		if err != nil || len(list) == 0 {
			t.Fatalf("list: got %v, %v, want checkpoints", list, err)
		}

		sawFull := false
		for _, m := range list {
			got, err := s.Get(t.Context(), testKey, m.Number)
			if errors.Is(err, checkpoint.ErrNotFound) {
				sawFull = true // pruned since: the reader begins again
				break
			}
			if err != nil || !bytes.Equal(got, content(m.Number)) {
				t.Fatalf("get %d: got %q, %v", m.Number, got, err)
			}
			if sawFull = m.Level == checkpoint.Full; sawFull {
				break
			}
		}

		if !sawFull {
			t.Fatalf("no FULL below the newest checkpoint in %+v", list)
		}
	}
}
