package lines

import (
	"bytes"
	"encoding/json"

	"belay/checkpoint"
)

// whole says whether data is one JSON object.
func whole(data []byte) bool {
	return len(data) > 0 && data[0] == '{' && json.Valid(data)
}

// splitter cuts a stream of chunks into lines. Only a line that crosses a chunk's border is copied.
type splitter struct {
	off      int64 // where the current line begins
	num      int64 // lines before it
	numKnown bool
	losses   *checkpoint.Losses
	fn       func(Line) bool

	// The current line so far, when it began in an earlier chunk. Outer NULs are counted, not kept.
	buf    []byte
	length int64
	lead   int64
	trail  int64
	over   bool
}

// feed takes the next chunk and says whether to stop: fn had enough, or the line ends have passed limit.
func (s *splitter) feed(chunk []byte, limit int64) (stop bool) {
	for {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			s.add(chunk)
			return false
		}

		var goOn bool
		if s.length == 0 {
			seg := chunk[:i]
			lead := leadingNULs(seg)
			goOn = s.give(seg[lead:], int64(i)+1, int64(lead), false)
		} else {
			s.add(chunk[:i])
			goOn = s.give(s.buf, s.length+1, s.lead, false)
		}

		chunk = chunk[i+1:]
		if !goOn || s.off >= limit {
			return true
		}
	}
}

// add keeps a part of a line whose end is not in the chunk.
func (s *splitter) add(part []byte) {
	s.length += int64(len(part))
	if len(s.buf) == 0 && s.trail == 0 {
		n := leadingNULs(part)
		s.lead += int64(n)
		part = part[n:]
	}

	body := part[:len(part)-trailingNULs(part)]
	if len(body) > 0 && !s.over {
		if int64(len(s.buf))+s.trail+int64(len(body)) > MaxLine {
			s.over, s.buf = true, nil
		} else {
			s.buf = append(append(s.buf, make([]byte, s.trail)...), body...)
		}
		s.trail = 0
	}

	s.trail += int64(len(part) - len(body))
}

// give ends the current line, which has size bytes in the file with its newline.
func (s *splitter) give(data []byte, size, lead int64, rest bool) (goOn bool) {
	line := Line{Data: trim(data, s.off+lead), Off: s.off, End: s.off + size, Rest: rest}
	if s.numKnown {
		line.Num = s.num + 1
	}
	if lead > 0 {
		s.losses.Holes++
		s.losses.HoleBytes += lead
	}
	if s.over {
		s.losses.Oversized++
	}

	goOn = true
	if len(line.Data) > 0 && !s.over {
		goOn = s.fn(line)
	}
	if !rest {
		s.off = line.End
		s.num++
	}

	s.buf, s.length, s.lead, s.trail, s.over = s.buf[:0], 0, 0, 0, false
	return goOn
}

// rest deals with what follows the last newline. Hole is the end of a hole there that was counted before, or 0; the new
// one is returned.
func (s *splitter) rest(final bool, hole int64) int64 {
	data := trim(s.buf, s.off+s.lead)
	switch end := s.off + s.length; {
	case s.length == 0:
	case final && !s.over && whole(data):
		s.give(s.buf, s.length, s.lead, true)
	case final && !s.over && len(data) == 0 && s.lead > 0:
		if end != hole {
			s.losses.Holes++
			s.losses.HoleBytes += s.lead
		}
		return end

	default:
		s.losses.Torn = s.length
	}

	return hole
}

// zeros is never written. Comparing whole blocks passes over a hole as fast as it can be read.
var zeros [4096]byte

func leadingNULs(b []byte) int {
	n := 0
	for len(b)-n >= len(zeros) && bytes.Equal(b[n:n+len(zeros)], zeros[:]) {
		n += len(zeros)
	}

	for n < len(b) && b[n] == 0 {
		n++
	}

	return n
}

func trailingNULs(b []byte) int {
	n := len(b)
	for n >= len(zeros) && bytes.Equal(b[n-len(zeros):n], zeros[:]) {
		n -= len(zeros)
	}

	for n > 0 && b[n-1] == 0 {
		n--
	}

	return len(b) - n
}
