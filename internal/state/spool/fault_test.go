package spool

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// swept is a spool that meets the faults of a disk.
type swept struct {
	*vfstest.Point
	t       *testing.T
	written map[string]bool // events that are kept, as Write said
	got     map[string]bool
	lost    int // events that were told as dropped
}

var errRefused = errors.New("not an event")

const sweptDir = "/state/spool"

// take is the daemon: one event is none that it can use.
func (s *swept) take(h, p []byte) error {
	if !bytes.Equal(h, header(string(p))) {
		s.Errorf("header %s and payload %q are not of one event", h, p)
	}

	s.got[string(p)] = true
	if string(p) == "refused" {
		return errRefused
	}

	return nil
}

func (s *swept) write(limits Limits, events ...string) {
	for i, p := range events {
		n, err := Write(s, sweptDir, limits, header(p), []byte(p), start.Add(time.Duration(i)*time.Second))
		_ = s.Hear(err) // Hear has looked at it
		s.lost += n
		s.written[p] = err == nil
	}
}

// drain takes events from a disk and says what it cannot use.
func (s *swept) drain(disk vfs.FS) error {
	_, err := Drain(s.t.Context(), disk, sweptDir, s.take)
	if errors.Is(err, errRefused) && (s.Err == nil || !errors.Is(err, s.Err)) {
		return nil
	}
	return err
}

// check looks at a disk that is well again: it holds events and left-overs alone, and all that was kept is given out.
func (s *swept) check(disk vfs.FS, when string) {
	Check(disk, sweptDir, DefaultLimits(), func(name string, err error) { s.Errorf("%s: %s: %v", when, name, err) })
	before := s.got
	s.got = map[string]bool{}
	for p := range before {
		s.got[p] = true
	}

	for range 3 {
		if err := s.drain(disk); err != nil {
			s.Errorf("%s: drain: %v", when, err)
		}
	}

	missing := 0
	for p, kept := range s.written {
		if kept && !s.got[p] {
			missing++
		}
	}

	if missing > s.lost {
		s.Errorf("%s: %d written events are gone, %d were told", when, missing, s.lost)
	}
	if n, _, err := Pending(disk, sweptDir); n > 0 || err != nil {
		s.Errorf("%s: %d events are still there, %v", when, n, err)
	}

	s.got = before
}

// TestEveryFault: whatever operation fails or takes the power away, the caller is told, what was kept is given out, and
// what lies there is whole.
func TestEveryFault(t *testing.T) {
	vfstest.Sweep{Least: 60}.Run(t, func(p *vfstest.Point) {
		if err := errors.Join(p.Mem.MkdirAll("/state", vfs.DirMode), p.Mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}

		s := &swept{Point: p, t: t, written: map[string]bool{}, got: map[string]bool{}}
		s.write(Limits{Bytes: 2 * block, Age: time.Hour}, "one", "two", "three")
		for seed, left := range p.Crashes() {
			s.check(left, "after a power cut ("+string(rune('a'+seed%26))+")")
		}

		s.write(DefaultLimits(), "four", "refused")
		for range 3 {
			_ = p.Hear(s.drain(p))
		}

		p.Tell(p.Op() == "stat dropped") // the loss is counted nevertheless
		n, err := Dropped(p, sweptDir)
		_ = p.Hear(err)
		for _, left := range p.Crashes() {
			s.check(left, "after a power cut at the end")
		}

		if p.Dies {
			return
		}

		s.check(p.Mem, "as it goes on")
		more, err := Dropped(p.Mem, sweptDir)
		if err != nil {
			p.Errorf("dropped: %v", err)
		}
		if p.Err == nil && n+more != s.lost+1 {
			p.Errorf("%d dropped, want the %d that had no room and the one that was refused", n+more, s.lost)
		}
		if left := p.Mem.String(); strings.Contains(left, vfs.TempSuffix) || strings.Count(left, "\n") > 1 {
			p.Errorf("left behind:\n%s", left)
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add("1775000000000-abc-1.0")
	f.Add(".1775000000000-abc.2" + vfs.TempSuffix)
	f.Add("dropped")
	f.Add("0000000000000-.99")
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := parseName(name)
		if ok && (got.name != name || got.at < 0 || got.tries < 0 || len(got.stem) < 14) {
			t.Errorf("%q: got %+v", name, got)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("{\"v\":1}\npayload"))
	f.Add([]byte("\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		err := give(data, func(h, p []byte) error {
			if joined := append(append(bytes.Clone(h), '\n'), p...); !bytes.Equal(joined, data) {
				t.Errorf("file %q was given as %q and %q", data, h, p)
			}
			return nil
		})
		if err != nil && !errors.Is(err, ErrNoHeader) {
			t.Errorf("%q: %v", data, err)
		}
	})
}

// A power cut after a drain brings only a few events back: a session knows the ids of its newest ones alone.
func TestFewEventsComeAgainAfterAPowerCut(t *testing.T) {
	const events = 200
	mem := vfstest.NewMem()
	for i := range events {
		if _, err := Write(
			mem, sweptDir, DefaultLimits(), header("x"), []byte("x"), start.Add(time.Duration(i)*time.Second),
		); err != nil {
			t.Fatal(err)
		}
	}

	n, err := Drain(t.Context(), mem, sweptDir, func(_, _ []byte) error { return nil })
	if n != events || err != nil {
		t.Fatalf("drained %d, %v; want %d", n, err, events)
	}

	for seed := range uint64(8) {
		if left, _, err := Pending(mem.CrashClone(seed), sweptDir); left > mayComeAgain || err != nil {
			t.Errorf("seed %d: %d events come again, %v; want %d at most", seed, left, err, mayComeAgain)
		}
	}
}
