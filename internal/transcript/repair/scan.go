package repair

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

const (
	stepBytes = 8 << 20  // read between two looks at the context
	peekBytes = 64 << 10 // of what lies between records, at once
	maxListed = 1000     // bad lines, holes and open calls that are listed; all are counted in the changes
)

// place is where something stands in the original.
type place struct {
	line int64
	off  int64
	size int64
}

func (p place) end() int64 { return p.off + p.size }

// scan is one way through a file.
type scan struct {
	form Form
	r    io.ReaderAt
	x    *Examined
	survey
	at     int64 // all before it is accounted for
	line   int64 // lines before it
	err    error
	isTorn bool
	stub   []byte // the first line, when it is no record
}

// Lines examines a file of lines. Seen is called now and then with how much of it has been read; it may be nil.
func Lines(ctx context.Context, path string, form Form, seen func(bytes int64)) (*Examined, error) {
	s := &scan{form: form, x: &Examined{file: path, path: path}}
	s.survey = newSurvey()
	f := lines.Open(path)
	defer f.Close() // read only
	size, err := f.Size()
	if err != nil {
		return nil, err
	}

	h, _, err := lines.OpenRegular(path)
	if err != nil {
		return nil, err
	}

	defer h.Close() // read only
	s.r = h
	s.x.Agent, s.x.File, s.x.Bytes, s.x.Generations = form.Agent, path, size, 1
	ended := int64(0)
	for pos, more := (lines.Pos{}), true; more; {
		span, err := f.Read(pos, lines.Options{Final: true, Max: stepBytes}, func(l lines.Line) bool {
			s.account(l)
			return s.err == nil && ctx.Err() == nil
		})

		switch {
		case err != nil:
			return nil, err
		case s.err != nil:
			return nil, fmt.Errorf("read %s: %w", path, s.err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case span.Changed:
			return nil, fmt.Errorf("read %s: it is being rewritten", path)
		}

		pos, more, ended = span.Pos, span.More, span.Pos.Off
		if torn := span.Losses.Torn; torn > 0 {
			s.isTorn, size = true, ended+torn
		}
		if seen != nil {
			seen(ended)
		}
	}

	s.x.Bytes = size
	if err := s.rest(ended, size); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if err := s.judge(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}

	return s.x, nil
}

// account takes one line into account, and for what lies between it and the last one.
func (s *scan) account(l lines.Line) {
	s.gap(l.Off, l.Num-1)
	end := l.End
	if !l.Rest {
		end-- // its newline
	}

	at := place{l.Num, l.Off, int64(len(l.Data))}
	if pad := end - l.Off - at.size; pad > 0 {
		at.off += s.lead(l.Off, end)
		s.nuls(place{l.Num, l.Off, at.off - l.Off}, TrimBefore)
		s.nuls(place{l.Num, at.end(), end - at.end()}, TrimAfter)
	}

	s.data(l.Data, at, place{l.Num, l.Off, l.End - l.Off})
	if l.Rest {
		s.edit(edit{place: place{l.Num, l.End, 0}, with: []byte("\n"), action: EndLine,
			what: "the last record gets its line end"})
	}

	s.at, s.line = l.End, l.Num
}

// data takes what stands on a line at a place; whole is the line with its end.
func (s *scan) data(data []byte, at, whole place) {
	if f, ok := s.fact(data); ok {
		s.record(f, at, whole)
		return
	}

	found, _ := lines.Rescue(data, s.form.Keys...)
	var records []place
	var facts []Fact
	for _, r := range found {
		if f, ok := s.fact(r); ok {
			// The slices share one array: their capacities tell where each begins.
			records = append(records, place{at.line, at.off + int64(cap(data)-cap(r)), int64(len(r))})
			facts = append(facts, f)
		}
	}

	if s.stub == nil && s.x.Records == 0 {
		s.stub = bytes.Clone(data[:min(len(data), peekBytes)])
	}

	if len(records) == 0 {
		s.bad(at, "no record")
		s.edit(edit{place: whole, action: CutBad, what: "no record can be read in it"})
		return
	}

	s.fused(facts, records, at)
}

// fused takes the records of a line that holds more than one, or a stub beside one.
func (s *scan) fused(facts []Fact, records []place, at place) {
	lost := int64(0)
	for i, r := range records {
		from, with := at.off, ""
		if i > 0 {
			from, with = records[i-1].end(), "\n"
		}

		gone := r.off - from
		lost += gone
		if gone > 0 {
			s.edit(edit{place: place{at.line, from, gone}, with: []byte(with), action: CutStub,
				what: "a record that was never finished stands before a whole one"})
		} else if i > 0 {
			s.edit(edit{place: place{at.line, from, 0}, with: []byte(with), action: Split,
				what: "another record begins here"})
		}

		s.x.Rescued++
		s.record(facts[i], r, r)
	}

	if gone := at.end() - records[len(records)-1].end(); gone > 0 {
		lost += gone
		s.edit(edit{place: place{at.line, at.end() - gone, gone}, action: CutStub,
			what: "something that is no record stands behind a whole one"})
	}

	if lost > 0 {
		s.bad(at, "a stub beside a record")
	}
}

func (s *scan) bad(at place, why string) {
	if len(s.x.Bad) < maxListed {
		s.x.Bad = append(s.x.Bad, checkpoint.BadLine{Line: at.line, Offset: at.off, Bytes: at.size, Why: why})
	}
}

func (s *scan) fact(data []byte) (Fact, bool) {
	if len(data) == 0 || data[0] != '{' {
		return Fact{}, false
	}
	return s.form.Fact(data)
}

// gap accounts for the lines up to an offset that hold no text: blank ones, holes, and those that are too long to be
// read.
func (s *scan) gap(to, last int64) {
	for s.at < to && s.err == nil {
		end := s.newline(s.at, to)
		s.line++
		s.empty(place{s.line, s.at, end - s.at}, true)
		s.at = end
	}
	s.line = max(last, s.line)
}

// empty takes a line without a record. Ended says that it has a newline.
func (s *scan) empty(p place, ended bool) {
	text := p.size
	if ended {
		text--
	}

	lead := s.lead(p.off, p.off+text)
	if lead < text {
		s.bad(p, fmt.Sprintf("longer than %d MB: not read", lines.MaxLine>>20))
		return
	}
	if s.hasNUL(p.off, p.off+lead) {
		s.hole(place{p.line, p.off, lead})
		s.edit(edit{place: p, action: TrimHole, what: "nothing but NUL bytes"})
	}
}

func (s *scan) hole(p place) {
	if len(s.x.Holes) < maxListed {
		s.x.Holes = append(s.x.Holes, Hole{p.line, p.off, p.size})
	}
}

// nuls cuts the padding of a record when NULs are in it. Blanks alone are no damage.
func (s *scan) nuls(p place, a Action) {
	if p.size <= 0 || !s.hasNUL(p.off, p.end()) {
		return
	}
	if a == TrimBefore {
		s.hole(p)
	}
	s.edit(edit{place: p, action: a, what: "NUL bytes beside a record"})
}

// rest accounts for what follows the last line that was given: up to ended are whole lines, the file ends at size.
func (s *scan) rest(ended, size int64) error {
	s.gap(ended, s.line)
	if s.err != nil || s.at >= size {
		return s.err
	}

	p := place{s.line + 1, s.at, size - s.at}
	if !s.isTorn {
		s.empty(p, false)
		return s.err
	}

	s.x.TornBytes = p.size
	if p.size <= lines.MaxLine {
		data, err := s.read(p)
		if err != nil {
			return err
		}

		if found, _ := lines.Rescue(data, s.form.Keys...); len(found) > 0 {
			s.data(data, p, p)
			s.edit(edit{place: place{p.line, size, 0}, with: []byte("\n"), action: EndLine,
				what: "the last record gets its line end"})
			return s.err
		}
	}

	s.edit(edit{place: p, action: CutTorn, what: "the last line was never finished"})
	return s.err
}

// newline is the offset behind the first newline in a range, or the range's end.
func (s *scan) newline(from, to int64) int64 {
	return s.find(from, to, 1, func(b []byte) int { return bytes.IndexByte(b, '\n') })
}

// lead is how many bytes at the beginning of a range are no text.
func (s *scan) lead(from, to int64) int64 {
	if from == 0 {
		var b [3]byte
		if n, _ := s.r.ReadAt(b[:], 0); n == 3 && string(b[:]) == mark { // a shorter file has none
			from += 3
			return 3 + s.lead(from, to)
		}
	}
	return s.find(from, to, 0, func(b []byte) int { return len(b) - len(bytes.TrimLeft(b, " \t\r\x00")) }) - from
}

const mark = "\xef\xbb\xbf"

func (s *scan) hasNUL(from, to int64) bool {
	return s.find(from, to, 0, func(b []byte) int { return bytes.IndexByte(b, 0) }) < to
}

// find gives the offset of the first byte in a range that at finds, plus add; the range's end when there is none. A
// block in which nothing is found is said by -1 or by its length.
func (s *scan) find(from, to, add int64, at func(b []byte) int) int64 {
	buf := make([]byte, min(peekBytes, max(to-from, 0)))
	for from < to {
		n, err := s.r.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if i := at(buf[:n]); i >= 0 && i < n {
			return min(from+int64(i)+add, to)
		}

		from += int64(n)
		if n == 0 {
			if err != io.EOF {
				s.err = err
			}
			return to
		}
	}

	return to
}

// read gives the bytes of a place.
func (s *scan) read(p place) ([]byte, error) {
	if p.size > math.MaxInt32 {
		return nil, fmt.Errorf("a record of %d bytes", p.size)
	}

	data := make([]byte, p.size)
	_, err := s.r.ReadAt(data, p.off)
	if err == io.EOF {
		err = nil
	}

	return data, err
}
