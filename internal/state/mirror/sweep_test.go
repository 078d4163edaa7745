package mirror

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/vfs/vfstest"
)

// The conversations of a sweep: the first is seen late and big, then grows; the second takes its place in the file.
var (
	firstTalk  = lines(0, 81, 60)
	secondTalk = lines(1000, 10, 60)
)

// swept is a mirror that meets the faults of a disk.
type swept struct {
	*vfstest.Point
	r       *rig
	flushed map[string]int // bytes of a conversation that are on stable storage, as Flush said
}

// TestEveryFault: whatever operation fails or takes the power away, the error is told, what was flushed can be read,
// every copy is whole, and the mirror comes up to date again: growth, a flush, compaction, a big first sight, a
// replaced file.
func TestEveryFault(t *testing.T) { bothKinds(t, testEveryFault) }

func testEveryFault(t *testing.T, key *Key) {
	step := 1
	if key != nil {
		step = 9 // the same code decides, and each batch costs a key exchange
	}

	src := filepath.Join(t.TempDir(), "s.jsonl")
	vfstest.Sweep{Least: 100, Step: step}.Run(t, func(p *vfstest.Point) {
		s := &swept{
			Point:   p,
			flushed: map[string]int{},
			r: &rig{
				t:    t,
				src:  src,
				dir:  "/s",
				fsys: p.Fault,
				opt:  Options{FirstSight: 1 << 10, Budget: 2 << 10, Codec: codec(), Key: key},
			},
		}

		if s.open() {
			s.script()
		}

		for _, left := range p.Crashes() {
			s.check(left, "after a power cut")
		}

		if s.r.m == nil {
			return
		}

		err := s.r.m.Close()
		_ = p.Hear(err) // Hear has looked at it
		if p.Dies {
			return
		}
		if got := readAll(t, p.Mem, s.r.file()); got != secondTalk {
			p.Errorf("the mirror holds %s", brief(got))
		}
		if got := readAll(t, p.Mem, s.older()); got != firstTalk {
			p.Errorf("the older copy holds %s", brief(got))
		}
	})
}

func (s *swept) older() string {
	return filepath.Join(s.r.dir, "transcript.g001.jsonl"+s.r.opt.Key.ext())
}

func (s *swept) open() bool {
	for range 2 {
		m, err := Open(s.Fault, s.r.dir, s.r.opt)
		if s.Hear(err) == nil {
			s.r.m = m
			return true
		}
	}
	return false
}

// sync copies all that is there, or gives up where the disk is gone.
func (s *swept) sync() {
	for range 100 {
		p, err := s.r.m.Sync(context.Background(), s.r.src)
		if s.Hear(err) == nil && p.Done || err != nil && s.Dies {
			return
		}
	}
	s.Errorf("sync never ends")
}

// flush notes how much of a conversation is safe now.
func (s *swept) flush(talk string) {
	err := s.Hear(s.r.m.Flush())
	if c := s.r.m.cur; err == nil && c != nil && !c.broken && c.size > 0 && s.r.m.Status().Missing == 0 {
		s.flushed[talk] = int(c.last.To)
	}
}

func (s *swept) script() {
	late := len(lines(0, 60, 60))
	s.r.write(firstTalk[:late])
	s.sync()
	s.flush(firstTalk)
	for line := range strings.Lines(firstTalk[late:]) {
		s.r.append(line)
		s.sync()
	}

	_ = s.Hear(s.r.m.Compact(context.Background())) // what counts is what can be read
	s.sync()
	s.flush(firstTalk)
	cut := len(lines(1000, 9, 60))
	s.r.write(secondTalk[:cut])
	s.sync()
	s.r.append(secondTalk[cut:])
	s.sync()
	s.flush(secondTalk)
}

// check looks at a disk that is well again: what was flushed is in one of the copies, each is whole, and a new mirror
// comes up to date.
func (s *swept) check(disk *vfstest.Mem, when string) {
	held := ""
	for _, name := range []string{s.r.file(), s.older()} {
		if err := Check(disk, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Errorf("%s: %v", when, err)
		}
		text, _ := tryRead(disk, name) // what a power cut took of it is no damage
		held += "\x00" + text
	}

	for talk, n := range s.flushed {
		if !strings.Contains(held, "\x00"+talk[:n]) {
			s.Errorf("%s: %d bytes were flushed of %s; there is %s", when, n, brief(talk), brief(held))
		}
	}

	again := &swept{Point: s.Point, r: &rig{t: s.r.t, src: s.r.src, dir: s.r.dir, fsys: disk, opt: s.r.opt}}
	again.r.open()
	defer again.close(when)
	again.r.sync()
	if again.r.m.Status().State == Replaced {
		return // it waits for the second talk to grow
	}
	if got, want := readAll(s.r.t, disk, s.r.file()), s.source(); got != want {
		s.Errorf("%s: then the mirror holds %s, want %s", when, brief(got), brief(want))
	}
}

func (s *swept) close(when string) {
	if err := s.r.m.Close(); err != nil {
		s.Errorf("%s: close: %v", when, err)
	}
}

// source is what the agent's file holds now; nothing before the script began.
func (s *swept) source() string {
	data, err := os.ReadFile(s.r.src)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.r.t.Fatal(err)
	}
	return string(data)
}
