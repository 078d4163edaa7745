package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// Faults checks a store that keeps its data on a vfs.FS: one script meets every fault of a disk at every operation, and
// a power cut there. Each time it looks at the store as it goes on, and at what a power cut leaves: what was
// acknowledged is there to the byte, what was refused is there whole or not at all, and no fault of a write is
// swallowed.
//
// open must open the store in the same place of whatever file system it is given. whole, if not nil, gives every rule
// that is broken on a disk: it is asked about each one that a fault or a power cut left.
func Faults(t *testing.T, open func(fsys vfs.FS) checkpoint.Store, whole func(fsys vfs.FS) []string) {
	vfstest.Sweep{Least: 20}.Run(t, func(p *vfstest.Point) {
		d := &sweep{Point: p, t: t, open: open, whole: whole, held: make(map[ref]*record)}
		d.run(t.Context())
	})
}

// ref names one checkpoint.
type ref struct {
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
	*vfstest.Point
	t     *testing.T
	open  func(vfs.FS) checkpoint.Store
	whole func(vfs.FS) []string
	held  map[ref]*record
}

// run is the script: first steps of two sessions, a deletion, more after it.
func (d *sweep) run(ctx context.Context) {
	s := d.open(d.Fault)
	if n := d.Fault.Count(); n > 0 {
		d.Errorf("opening the store does %d operations on the disk, want none", n)
	}

	a, b := key("a"), checkpoint.Key{Agent: "other", Session: "b"}
	d.put(ctx, s, a, full(1))
	d.put(ctx, s, a, sparse(2))
	_ = d.Hear(s.Probe(ctx, 100)) // Hear has looked at it
	d.put(ctx, s, b, full(1))
	d.remove(ctx, s, a, 2)
	d.put(ctx, s, a, full(3))
	d.remove(ctx, s, a, 1)
	d.check(ctx, s, "as it goes on")
	d.afterCrash(ctx)
}

func (d *sweep) put(ctx context.Context, s checkpoint.Store, k checkpoint.Key, m checkpoint.Meta) {
	r := &record{m: m, data: d.encoded(k, m)}
	d.held[ref{k, m.Number}] = r
	err := d.Hear(s.Put(ctx, k, m, r.data))
	r.must = err == nil
	if err == nil || d.Dies {
		return
	}

	d.check(ctx, s, fmt.Sprintf("after the failed put %d of %s", m.Number, k))
	d.afterCrash(ctx)

	// Once more: the number is free, or it is taken by the whole one, which is not overwritten.
	err = d.Hear(s.Put(ctx, k, m, r.data))
	r.must = err == nil
	if err != nil && !errors.Is(err, checkpoint.ErrExists) {
		d.Errorf("put %d of %s once more: %v", m.Number, k, err)
	}
}

// encoded is a checkpoint as belay writes it.
func (d *sweep) encoded(k checkpoint.Key, m checkpoint.Meta) []byte {
	s := checkpoint.NewState(k)
	s.Task, s.News, s.MsgSeq, s.MarkSeq = strings.Repeat(
		fmt.Sprintf("%s %d\n", k, m.Number), 100,
	), m.Number, m.Number, m.Number-1

	data, err := checkpoint.New(s, m.Number, checkpoint.Decision{Level: m.Level}, m.At).Encode()
	if err != nil {
		d.t.Fatal(err)
	}

	return data
}

func (d *sweep) remove(ctx context.Context, s checkpoint.Store, k checkpoint.Key, n uint64) {
	r := d.held[ref{k, n}]
	r.must = false
	err := d.Hear(s.Delete(ctx, k, n))
	if err != nil && !d.Dies {
		d.check(ctx, s, fmt.Sprintf("after the failed delete %d of %s", n, k))
		d.afterCrash(ctx)
		err = s.Delete(ctx, k, n)
	}

	r.mustNot = err == nil
}

// afterCrash looks at several outcomes of a power cut now.
func (d *sweep) afterCrash(ctx context.Context) {
	for seed, left := range d.Crashes() {
		when := fmt.Sprintf("after the power cut (seed %d)", seed)
		d.wholeness(left, when)
		s := d.open(left)
		d.check(ctx, s, when)
		for p := range d.held {
			m := full(100 + p.number)
			if err := s.Put(ctx, p.key, m, d.encoded(p.key, m)); err != nil {
				d.Errorf("%s: put the next: %v", when, err)
			}
		}

		if err := s.Close(); err != nil {
			d.Errorf("%s: close: %v", when, err)
		}

		d.wholeness(left, when+" and the next checkpoint")
	}
}

func (d *sweep) wholeness(left vfs.FS, when string) {
	if d.whole == nil {
		return
	}
	for _, broken := range d.whole(left) {
		d.Errorf("%s: %s", when, broken)
	}
}

// check compares what a store answers with what is known. Answers that the fault reaches itself (reads of a disk that
// is gone) say nothing but that they failed.
func (d *sweep) check(ctx context.Context, s checkpoint.Store, when string) {
	listed := make(map[ref]checkpoint.Meta)
	for p := range d.held {
		list, err := s.List(ctx, p.key)
		if d.Hear(err) != nil && errors.Is(err, d.Err) {
			return
		}
		if err != nil {
			d.Errorf("%s: list %s: %v", when, p.key, err)
		}

		for _, m := range list {
			listed[ref{p.key, m.Number}] = m
		}
	}

	for p, r := range d.held {
		m, there := listed[p]
		if there != r.must && (r.must || r.mustNot) {
			d.Errorf("%s: %s %d is there: %v, want %v", when, p.key, p.number, there, r.must)
		}

		data, err := s.Get(ctx, p.key, p.number)
		switch {
		case err != nil && d.Err != nil && errors.Is(err, d.Err):
			_ = d.Hear(err)
		case there &&
			(err != nil || !bytes.Equal(data, r.data) || m.Level != r.m.Level || m.Bytes != int64(len(r.data))):
			d.Errorf("%s: %s %d is listed as %+v and read as %s, %v", when, p.key, p.number, m, short(data), err)
		case !there && !errors.Is(err, checkpoint.ErrNotFound):
			d.Errorf("%s: %s %d is not listed but read as %s, %v", when, p.key, p.number, short(data), err)
		}

		delete(listed, p)
	}

	for p, m := range listed {
		d.Errorf("%s: %s holds %+v, which nobody put", when, p.key, m)
	}
}
