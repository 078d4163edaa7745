package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// crashes is how many different outcomes of one power cut are looked at.
const crashes = 4

// Faults checks a store that keeps its data on a vfs.FS. It runs one script again and again: the first time operation 0
// on the disk fails, then operation 1, and so on, once with the disk well again after it (a fault) and once with the disk
// gone for good (a power cut in the middle). Each time it looks at the store as it goes on, and at what a power cut
// leaves: what was acknowledged is there to the byte, what was refused is there whole or not at all, and no fault of a
// write is swallowed.
//
// open must open the store in the same place of whatever file system it is given.
func Faults(t *testing.T, open func(fsys vfs.FS) (checkpoint.Store, error)) {
	for _, mode := range []struct {
		name string
		dead bool
		err  error
	}{
		{"Fault", false, syscall.ENOSPC},
		{"PowerCut", true, syscall.EIO},
	} {
		t.Run(mode.name, func(t *testing.T) {
			points := 0
			for ; ; points++ {
				d := &sweep{t: t, open: open, mem: vfstest.NewMem(), injected: mode.err, dead: mode.dead, held: make(map[place]*record)}
				d.fault = vfstest.NewFault(d.mem, points, mode.err)
				if mode.dead {
					d.fault.FailFrom(points, mode.err)
				}
				d.run(t.Context())
				if !d.fault.Fired() {
					break
				}
				if t.Failed() {
					t.Fatalf("first bad point: operation %d, %s", points, d.fault.Op())
				}
			}
			if points < 20 {
				t.Errorf("only %d operations on the disk: does the store use the file system it was given?", points)
			}
			t.Logf("%d points, %d outcomes of each power cut", points, crashes)
		})
	}
}

// place names one checkpoint.
type place struct {
	key    checkpoint.Key
	number uint64
}

// record is what the script knows of one checkpoint.
type record struct {
	m       checkpoint.Meta
	data    []byte
	must    bool // it was acknowledged
	mustNot bool // its deletion was acknowledged
}

type sweep struct {
	t        *testing.T
	open     func(vfs.FS) (checkpoint.Store, error)
	mem      *vfstest.Mem
	fault    *vfstest.Fault
	injected error
	dead     bool // the disk stays gone: one look at the end is enough
	held     map[place]*record
}

// run is the script: first steps of two sessions, a deletion, more after it.
func (d *sweep) run(ctx context.Context) {
	var s checkpoint.Store
	if err := d.step("open", func() (err error) {
		s, err = d.open(d.fault)
		return err
	}); err != nil {
		d.afterCrash(ctx)
		return
	}
	a, b := key("a"), checkpoint.Key{Agent: "other", Session: "b"}
	d.put(ctx, s, a, full(1))
	d.put(ctx, s, a, sparse(2))
	_ = d.step("probe", func() error { return s.Probe(ctx) }) // step has looked at it
	d.put(ctx, s, b, full(1))
	d.remove(ctx, s, a, 2)
	d.put(ctx, s, a, full(3))
	d.remove(ctx, s, a, 1)
	d.check(ctx, s, "as it goes on")
	d.afterCrash(ctx)
}

// step runs one act that writes: where the fault hits it, it must say so.
func (d *sweep) step(name string, act func() error) error {
	before := d.fault.Fired()
	err := act()
	if d.fault.Fired() && !before && !errors.Is(err, d.injected) {
		d.t.Errorf("%s: fault of %q swallowed: got %v", name, d.fault.Op(), err)
	}
	if err != nil && !d.fault.Fired() {
		d.t.Errorf("%s without a fault: %v", name, err)
	}
	return err
}

func (d *sweep) put(ctx context.Context, s checkpoint.Store, k checkpoint.Key, m checkpoint.Meta) {
	r := &record{m: m, data: bytes.Repeat([]byte(fmt.Sprintf("%s %d\n", k, m.Number)), 300)}
	d.held[place{k, m.Number}] = r
	name := fmt.Sprintf("put %d of %s", m.Number, k)
	err := d.step(name, func() error { return s.Put(ctx, k, m, r.data) })
	r.must = err == nil
	if err == nil {
		return
	}
	if d.dead {
		return
	}
	d.check(ctx, s, "after the failed "+name)
	d.afterCrash(ctx)
	// Once more: the number is free, or it is taken by the whole one, which is not overwritten.
	err = s.Put(ctx, k, m, r.data)
	r.must = err == nil
	if err != nil && !errors.Is(err, checkpoint.ErrExists) && !errors.Is(err, d.injected) {
		d.t.Errorf("%s once more: %v", name, err)
	}
}

func (d *sweep) remove(ctx context.Context, s checkpoint.Store, k checkpoint.Key, n uint64) {
	r := d.held[place{k, n}]
	name := fmt.Sprintf("delete %d of %s", n, k)
	r.must = false
	err := d.step(name, func() error { return s.Delete(ctx, k, n) })
	if err != nil && !d.dead {
		d.check(ctx, s, "after the failed "+name)
		d.afterCrash(ctx)
		err = s.Delete(ctx, k, n)
	}
	r.mustNot = err == nil
}

// afterCrash looks at several outcomes of a power cut now.
func (d *sweep) afterCrash(ctx context.Context) {
	for seed := range uint64(crashes) {
		left := d.mem.CrashClone(seed)
		s, err := d.open(left)
		if err != nil {
			d.t.Errorf("open after the power cut (seed %d): %v", seed, err)
			continue
		}
		when := fmt.Sprintf("after the power cut (seed %d)", seed)
		d.check(ctx, s, when)
		for p := range d.held {
			if err := s.Put(ctx, p.key, full(100+p.number), []byte("next")); err != nil {
				d.t.Errorf("%s, operation %q: put the next: %v", when, d.fault.Op(), err)
			}
		}
		if err := s.Close(); err != nil {
			d.t.Errorf("%s: close: %v", when, err)
		}
	}
}

// check compares what a store answers with what is known. Answers that the fault reaches itself (reads of a disk that is
// gone) say nothing.
func (d *sweep) check(ctx context.Context, s checkpoint.Store, when string) {
	listed := make(map[place]checkpoint.Meta)
	for p := range d.held {
		list, err := s.List(ctx, p.key)
		if errors.Is(err, d.injected) {
			return
		}
		if err != nil {
			d.t.Errorf("%s, operation %q: list %s: %v", when, d.fault.Op(), p.key, err)
		}
		for _, m := range list {
			listed[place{p.key, m.Number}] = m
		}
	}
	for p, r := range d.held {
		m, there := listed[p]
		if there != r.must && (r.must || r.mustNot) {
			d.t.Errorf("%s, operation %q: %s %d is there: %v, want %v", when, d.fault.Op(), p.key, p.number, there, r.must)
		}
		data, err := s.Get(ctx, p.key, p.number)
		switch {
		case errors.Is(err, d.injected):
		case there && (err != nil || !bytes.Equal(data, r.data) || m.Level != r.m.Level || m.Bytes != int64(len(r.data))):
			d.t.Errorf("%s, operation %q: %s %d is listed as %+v and read as %s, %v", when, d.fault.Op(), p.key, p.number, m, short(data), err)
		case !there && !errors.Is(err, checkpoint.ErrNotFound):
			d.t.Errorf("%s, operation %q: %s %d is not listed but read as %s, %v", when, d.fault.Op(), p.key, p.number, short(data), err)
		}
		delete(listed, p)
	}
	for p, m := range listed {
		d.t.Errorf("%s, operation %q: %s holds %+v, which nobody put", when, d.fault.Op(), p.key, m)
	}
}
