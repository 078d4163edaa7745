package mirror

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	records "belay/internal/transcript/lines"
)

const (
	headBytes = 1 << 10 // of the source, for its fingerprint
	tailBytes = 4 << 10 // before the mirrored end
)

// identity is what one stat says of a source.
type identity struct {
	dev, ino uint64
	size     int64
	mtime    time.Time
}

func identityOf(st fs.FileInfo) identity {
	id := identity{size: st.Size(), mtime: st.ModTime()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		id.dev, id.ino = uint64(sys.Dev), sys.Ino
	}
	return id
}

func (a identity) sameFile(b identity) bool { return a.dev == b.dev && a.ino == b.ino }

// source is the agent's file, opened for reading only.
type source struct {
	f  *os.File
	id identity
	// No line end lies between the mirrored end and here: a long unfinished line is not read over and over.
	scanned int64
}

func openSource(path string) (*source, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe in its place would be waited for
	if err != nil {
		return nil, err
	}

	s := &source{f: f}
	if err := s.refresh(); err != nil {
		_ = f.Close() // read only
		return nil, err
	}

	return s, nil
}

func (s *source) refresh() error {
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("stat transcript: %w", err)
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("read transcript: it is not a regular file: %w", fs.ErrInvalid)
	}

	id := identityOf(st)
	if id.size <= s.id.size && !id.mtime.Equal(s.id.mtime) {
		s.scanned = 0 // rewritten: what was looked at is not there any more
	}

	s.id = id
	return nil
}

func (s *source) close() {
	if s != nil {
		_ = s.f.Close() // read only: nothing can be lost
	}
}

// continues says whether the source still holds, unchanged as far as can be told, what was mirrored up to t.
func (s *source) continues(t trailer) (bool, error) {
	if s.id.size < t.To {
		return false, nil
	}

	head, err := s.fingerprint(0, int64(t.Head.Len))
	if err != nil || head != t.Head {
		return false, err
	}

	tail, err := s.fingerprint(t.To-int64(t.Tail.Len), int64(t.Tail.Len))
	return tail == t.Tail, err
}

func (s *source) fingerprint(at, n int64) (fingerprint, error) {
	b := make([]byte, n)
	if m, err := records.ReadSteady(s.f, b, at); err != nil && err != io.EOF {
		return fingerprint{}, fmt.Errorf("read transcript: %w", err)
	} else {
		b = b[:m]
	}
	return fingerprintOf(b), nil
}

// lineEnd is the place behind the first line end in [at, hi), -1 when there is none.
func (s *source) lineEnd(at, hi int64) (int64, error) {
	buf := make([]byte, min(256<<10, max(hi-at, 0)))
	for at < hi {
		n, err := s.f.ReadAt(buf[:min(int64(len(buf)), hi-at)], at)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}

		at += int64(n)
		if err == io.EOF || n == 0 && err == nil {
			return -1, nil
		}
		if err != nil {
			return -1, fmt.Errorf("read transcript: %w", err)
		}
	}

	return -1, nil
}

// wholeLines reads the whole lines that begin at from and end at or before hi: as many as fit in about size bytes, and
// one at least. It returns no bytes when none is whole yet. A line over limit comes back as its length alone.
func (s *source) wholeLines(buf []byte, from, hi, size, limit int64) (lines []byte, over int64, err error) {
	n := min(size, hi-from)
	if n <= 0 || s.scanned >= hi && s.scanned > from {
		return nil, 0, nil
	}

	if s.scanned <= from { // no long line was begun
		lines, err = s.read(buf, from, n)
		if err != nil {
			return nil, 0, err
		}
		if i := bytes.LastIndexByte(lines, '\n'); i >= 0 {
			return lines[:i+1], 0, nil
		}

		s.scanned = from + int64(len(lines))
	}

	end, err := s.lineEnd(s.scanned, hi)
	if err != nil {
		return nil, 0, err
	}
	if end < 0 {
		s.scanned = hi
		return nil, 0, nil
	}

	s.scanned = 0
	if end-from > limit {
		return nil, end - from, nil
	}

	lines, err = s.read(buf, from, end-from)
	return lines, 0, err
}

func (s *source) read(buf []byte, at, n int64) ([]byte, error) {
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}

	m, err := s.f.ReadAt(buf[:n], at)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read transcript: %w", err)
	}

	return buf[:m], nil
}
