package vfstest

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"syscall"
	"testing"

	"belay/internal/vfs"
)

// crashes is how many outcomes of a power cut are looked at where the disk dies.
const crashes = 4

// Errors are the faults that a sweep makes: a full disk, a broken one, a used-up quota, one that was mounted read-only
// after a fault, and a write of which half arrives.
func Errors() []error {
	return []error{syscall.ENOSPC, syscall.EIO, syscall.EDQUOT, syscall.EROFS, io.ErrShortWrite}
}

// Sweep is the one form of a fault test. A script does its work on the disk of a Point; the sweep runs it once without
// a fault to learn its operations, and then once for every fault at every operation: the operation alone fails with
// each of Errors and the disk is well again (a short write hits writes only), and the disk dies there for good, after
// which the power is cut. A fault that no call of the script told of (Point.Hear) fails the test.
type Sweep struct {
	// Least is how many operations the script makes without a fault, at the least: a script that does nothing proves
	// nothing.
	Least int
	// Disk gives the disk of one run; nil means a new Mem each time. On another disk the power cannot be cut.
	Disk func() vfs.FS
	// Step goes over the operations in strides, for scripts that take long; 0 means every one.
	Step int
}

// Point is one run of a sweep's script: a disk, and the one fault that it has.
type Point struct {
	*Fault
	Mem  *Mem  // the disk below, without the fault; nil where Sweep.Disk gave another
	Err  error // what the operation fails with; nil in the run without a fault
	Dies bool  // the disk does not come back
	t    testing.TB
	k    int
	told bool
}

// Run sweeps. It stops after the first bad point, and logs how many there were.
func (s Sweep) Run(t *testing.T, script func(p *Point)) {
	t.Helper()
	clean := s.point(t, -1, nil, false)
	script(clean)
	ops := clean.Ops()
	if len(ops) < s.Least {
		t.Errorf(
			"%d operations on the disk, want %d at least: does the script use the disk it was given?", len(ops),
			s.Least,
		)
	}

	points := 0
	hit := func(k int, err error, dies bool) {
		if t.Failed() {
			return
		}

		p := s.point(t, k, err, dies)
		points++
		script(p)
		switch {
		case !p.Fired():
			p.Errorf("the operation did not come again: the script does not do the same each time")
		case !p.told:
			p.Errorf("fault swallowed")
		}
	}

	for k := 0; k < len(ops); k += max(s.Step, 1) {
		for _, err := range Errors() {
			if err != io.ErrShortWrite || strings.HasPrefix(ops[k], "write ") {
				hit(k, err, false)
			}
		}
		if clean.Mem != nil {
			hit(k, syscall.EIO, true)
		}
	}

	t.Logf("%d points: %d operations with each fault", points, len(ops))
}

func (s Sweep) point(t *testing.T, k int, err error, dies bool) *Point {
	p := &Point{Err: err, Dies: dies, t: t, k: k}
	var disk vfs.FS
	if s.Disk != nil {
		disk = s.Disk()
	} else {
		p.Mem = NewMem()
		disk = p.Mem
	}

	p.Fault = NewFault(disk, k, err)
	if dies {
		p.FailFrom(k, err)
	}

	return p
}

// Hear notes that an error tells of the fault, and gives it back. An error while nothing has failed is a fault of the
// test's own.
func (p *Point) Hear(err error) error {
	switch {
	case err == nil:
	case p.Err != nil && errors.Is(err, p.Err):
		p.told = true
	case !p.Fired():
		p.Errorf("an error without a fault: %v", err)
	}
	return err
}

// Tell notes that the fault was told by other means than an error: a count, a log line, a status.
func (p *Point) Tell(told bool) { p.told = p.told || told && p.Fired() }

// Errorf fails the test and names the point.
func (p *Point) Errorf(format string, args ...any) {
	p.t.Helper()
	where := "without a fault"
	if p.Err != nil {
		where = fmt.Sprintf("operation %d (%s), %v", p.k, p.Op(), p.Err)
	}
	if p.Dies {
		where += ", then the power is cut"
	}

	p.t.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

// Crashes cuts the power now and gives several outcomes, each a disk that is well again. Where the disk goes on it is
// one, another for each operation, and none for all but the first of Errors: faults of other names leave the same. The
// run itself goes on unchanged.
func (p *Point) Crashes() iter.Seq2[uint64, *Mem] {
	first, n := uint64(p.k+1), uint64(1)
	switch {
	case p.Dies:
		first, n = 0, crashes
	case p.Err != nil && p.Err != Errors()[0] && p.Err != io.ErrShortWrite:
		n = 0
	}

	return func(yield func(uint64, *Mem) bool) {
		for seed := first; seed < first+n; seed++ {
			if !yield(seed, p.Mem.CrashClone(seed)) {
				return
			}
		}
	}
}
