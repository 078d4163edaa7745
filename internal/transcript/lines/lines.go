// Package lines reads transcripts that another program writes as a file of JSON lines.
//
// It has two levels. A File finds lines: it knows positions, torn ends, holes and rewrites, and not what a line means
// (lines.go, position.go, file.go, split.go, backward.go; decode.go and rescue.go help with the JSON of one line). A
// Reader turns lines into the entries of a checkpoint.Transcript: an agent says in a Format what its records mean, and
// everything else is done once, here (reader.go, page.go, firstsight.go, seen.go).
//
// A File promises:
//   - The file is opened read-only, never locked, and must be a regular file. A link to one is fine; a FIFO cannot
//     hang us.
//   - Lines end at 0x0A alone. A position never lies inside a line; what follows the last newline waits.
//   - Content alone identifies a file: a position holds when the bytes at the file's start and just before the position
//     are the same as before. Inode, size and times prove nothing; the inode only tells that a path leads to another
//     file now.
//   - Work is linear and memory bounded whatever the file holds: lines over MaxLine are counted and skipped, and runs
//     of NUL of any length are never buffered.
//
// A Reader promises on top of that:
//   - A record is given once, and a cursor continues exactly where it was made, in whichever process.
//   - One bad line costs that line only and is counted. Records that a crash left glued on one line are found again.
//   - A file whose past changed is reported by a Reset. Records given before the change are not given again.
//   - First sight of a large file costs the same whatever its size.
//
// Neither waits nor watches: the caller says when to look.
package lines

import (
	"bytes"
	"errors"
	"fmt"

	"belay/checkpoint"
)

// ErrNotRegular is returned for a path that is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

const (
	// MaxLine is the longest line that is given to a caller; longer ones are counted as Oversized.
	MaxLine = 64 << 20
	// ReadMax is how many bytes one Read takes at most when Options.Max is not set.
	ReadMax = 4 << 20

	chunkMax = 256 << 10 // one read() going forward
	chunkMin = 4 << 10
	pieceMin = 64 << 10 // one read() going backward, growing
	pieceMax = 1 << 20
)

// Line is one line that may be a record.
type Line struct {
	// Data is the line without its end, byte-order mark, outer blanks and outer NULs; never empty. It is the caller's
	// only until its function returns.
	Data []byte
	Off  int64 // of the line's first byte in the file
	End  int64 // just after its newline, where the next line begins
	Num  int64 // physical line, from 1; 0 when not known
	// Rest is set for a whole object at the end of the file that has no newline yet (Options.Final), or whose file was
	// replaced before it got one. The position stays before it.
	Rest bool
}

// Options control one Read.
type Options struct {
	// Final says that no writer lives: a whole JSON object after the last newline is a line too.
	Final bool
	// Max stops the read at the first line end after so many bytes. 0 means ReadMax.
	Max int64
	// Changed, when set, is called before the first line that is read from a new beginning (Span.Changed).
	Changed func()
}

// Span is what one Read did.
type Span struct {
	Pos Pos // where the next Read goes on
	// Changed is set when the position does not hold in the file any more (shrunk, rewritten, replaced): the lines of
	// this Read begin at the start of what is there now.
	Changed bool
	// More is set when there is more to read at once.
	More bool
	// Losses holds Torn, Holes, HoleBytes, Oversized, and BadLines for a torn end that no writer can finish any more.
	Losses checkpoint.Losses
}

// CountBad counts a line that is no record.
func CountBad(l *checkpoint.Losses, line Line, why string) {
	l.Add(checkpoint.Losses{
		BadLines: 1, Torn: l.Torn,
		Bad: []checkpoint.BadLine{{Line: line.Num, Offset: line.Off, Bytes: int64(len(line.Data)), Why: why}},
	})
}

var bom = []byte("\xef\xbb\xbf")

// blank are the bytes that may lie around a record and mean nothing. NUL is what a crash leaves of a block that never
// reached the disk.
const blank = " \t\r\x00"

func trim(line []byte, off int64) []byte {
	if off == 0 {
		line = bytes.TrimPrefix(line, bom)
	}
	return bytes.Trim(line, blank)
}

func wrap(verb, path string, err error) error { return fmt.Errorf("%s %s: %w", verb, path, err) }
