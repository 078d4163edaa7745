package lines

import (
	"bytes"
	"errors"
	"hash/fnv"
	"io"
)

// Pos is a place in a file: 0, or just after a newline. It is small and made to be kept as JSON. The zero Pos is the
// beginning.
type Pos struct {
	Off  int64  `json:"o"`           // bytes before it
	Line int64  `json:"l,omitempty"` // lines before it; 0 with Off > 0: not known
	Head uint64 `json:"h,omitempty"` // fingerprint of the file's first bytes
	Tail uint64 `json:"t,omitempty"` // fingerprint of the bytes just before Off
	// File tells files apart for a Source that has several. A File neither sets nor reads it.
	File uint32 `json:"r,omitempty"`
}

// Position is the place itself: it makes a struct that embeds a Pos the state of a Reader.
func (p *Pos) Position() *Pos { return p }

const printLen = 256 // bytes of each of the two fingerprints of a Pos

// ReadSteady reads at a place in a file, and blanks a first line that the agent writes again and again in place: one
// that is padded to a fixed length, and says nothing of the records that follow. What is read is steady as long as
// those are.
func ReadSteady(r io.ReaderAt, b []byte, off int64) (n int, err error) {
	n, err = r.ReadAt(b, off)
	if off >= printLen-1 {
		return n, err
	}

	var first [printLen]byte
	if _, short := r.ReadAt(first[:], 0); short == nil && isSlot(first[:]) {
		clear(b[:min(n, int(printLen-1-off))]) // but for its newline
	}

	return n, err
}

func isSlot(line []byte) bool {
	return bytes.Contains(line, []byte(`"pad":"`)) && bytes.HasSuffix(line, []byte("\"}\n")) &&
		bytes.Count(line, []byte("\n")) == 1
}

// fingerprint hashes the n bytes at off.
func fingerprint(r io.ReaderAt, off, n int64) (sum uint64, last byte, err error) {
	var buf [printLen]byte
	b := buf[:n]
	if _, err := ReadSteady(r, b, off); err != nil {
		return 0, 0, err
	}

	h := fnv.New64a()
	h.Write(b) // cannot fail
	return h.Sum64(), b[n-1], nil
}

// mark fills in the fingerprints of a position in a file. A head that was taken over its full length before stays: it
// is what the file began with when the first lines were read.
func mark(r io.ReaderAt, p Pos) (Pos, error) {
	n := min(p.Off, printLen)
	if n == 0 {
		return Pos{}, nil
	}

	var err error
	if p.Head, _, err = fingerprint(r, 0, n); err != nil {
		return p, err
	}

	p.Tail, _, err = fingerprint(r, p.Off-n, n)
	return p, err
}

// holds says whether a position is one of this file's content.
func holds(r io.ReaderAt, p Pos) (bool, error) {
	n := min(p.Off, printLen)
	if n <= 0 {
		return p.Off == 0, nil
	}

	head, _, err := fingerprint(r, 0, n)
	if errors.Is(err, io.EOF) || err == nil && head != p.Head {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	tail, last, err := fingerprint(r, p.Off-n, n)
	if errors.Is(err, io.EOF) || err == nil && (tail != p.Tail || last != '\n') {
		return false, nil
	}

	return err == nil, err
}
