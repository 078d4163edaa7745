package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"belay/internal/vfs"
)

// Report says what reading the log found. Bytes and numbers are of the segments that were read: with a high from, older
// segments are not.
type Report struct {
	Segments int
	Records  int    // handed to fn
	Oldest   uint64 // where the log begins: what has a lower number was released. 0 if there is no segment
	Last     uint64 // the highest number met
	High     uint64 // no number above it can have been on disk, as far as the log knows

	// Lost counts the numbers that had a record and have none: damaged, or dropped from memory while the disk failed.
	Lost uint64
	// Dropped is how many of Lost the log itself tells of: dropped from memory.
	Dropped uint64
	// Torn is the bytes of records that a crash or a failed write cut short. They were never acknowledged as on disk,
	// so they are no loss.
	Torn int64
	// Damaged counts places in the middle of a segment that hold no record.
	Damaged      int
	DamagedBytes int64
	// Unreadable counts segments that could not be read to their end, or that another version wrote.
	Unreadable int
	// Aside lists the copies of damaged segments that Replay made.
	Aside []string
	// Err is the first error of the disk that was passed over: reading a segment, or copying one aside.
	Err error
}

// Replay hands the records that Open found, with numbers >= from, to fn in order, and copies damaged segments aside
// into the folder "damaged" (the newest four are kept there). It is meant to come before the first Append. It ends
// early only for fn's error or the context's: bad segments are passed and reported. The payload is valid during the
// call only.
func (j *Journal) Replay(ctx context.Context, from uint64, fn func(seq uint64, payload []byte) error) (Report, error) {
	w := walk{fsys: j.fsys, dir: j.dir, from: from, aside: true, fn: func(seq uint64, payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return fn(seq, payload)
	}}

	w.report.Torn = j.cut
	err := w.run(j.old)
	return w.report, err
}

// Scan reads a journal that another process may be writing, and changes nothing: it hands the records with numbers >=
// from to fn in order. A tail that is being written is Torn in the report; a segment that is released meanwhile is
// passed. If Report.Oldest is above from, what lies between has been released: then newer states are on disk than the
// caller read. No journal at all is an empty report. The payload is valid during the call only.
func Scan(fsys vfs.FS, dir string, from uint64, fn func(seq uint64, payload []byte) error) (Report, error) {
	names, err := list(fsys, dir)
	if err != nil {
		return Report{}, fmt.Errorf("scan journal %s: %w", dir, err)
	}
	w := walk{fsys: fsys, dir: dir, from: from, fn: fn}
	err = w.run(names)
	return w.report, err
}

// Oldest says where a journal that another process may be writing begins now; 0 while it has no segment.
func Oldest(fsys vfs.FS, dir string) (uint64, error) {
	names, err := list(fsys, dir)
	if err != nil {
		return 0, fmt.Errorf("list journal %s: %w", dir, err)
	}
	if len(names) == 0 {
		return 0, nil
	}

	return names[0], nil
}

// walk reads segments in order.
type walk struct {
	fsys   vfs.FS
	dir    string
	from   uint64
	aside  bool
	fn     func(seq uint64, payload []byte) error
	seen   uint64 // every number up to it has been given, or counted, or is before the first segment read
	report Report
}

func (w *walk) run(names []uint64) error {
	window := newWindow()
	for i, first := range names {
		if i+1 < len(names) && names[i+1] <= w.from {
			w.note(first)
			continue // all of it is older than from
		}
		if err := w.segment(first, window); err != nil {
			return err
		}
	}

	return nil
}

func (w *walk) segment(first uint64, window *bufio.Reader) error {
	f, err := w.fsys.OpenFile(segmentName(w.dir, first), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		w.seen = 0 // released since it was listed, with all before it: no loss
		return nil
	}
	if err != nil {
		w.unreadable(fmt.Errorf("read segment %d: %w", first, err))
		return nil
	}

	defer f.Close() // read only: nothing can be lost
	w.note(first)
	w.report.Segments++
	begun := false
	out, err := readSegment(f, first, window, func(so found, r record) error {
		if !begun {
			begun = true
			w.begin(first, so)
		}
		return w.record(r)
	})

	if err != nil {
		return err
	}
	if !begun {
		w.begin(first, out)
	}

	w.report.High = max(w.report.High, first-1, out.head.high, out.last, out.highest)
	w.report.Torn += out.torn
	w.report.Damaged += out.damaged
	w.report.DamagedBytes += out.damage
	if out.unusable != nil {
		w.unreadable(fmt.Errorf("read segment %d: %w", first, out.unusable))
	}

	if w.aside && out.damaged > 0 {
		if err := w.copyAside(first); err != nil {
			w.passed(fmt.Errorf("copy damaged segment %d aside: %w", first, err))
		}
	}

	return nil
}

func (w *walk) note(first uint64) {
	if w.report.Oldest == 0 {
		w.report.Oldest = first
	}
}

func (w *walk) unreadable(err error) {
	w.report.Unreadable++
	w.passed(err)
}

func (w *walk) passed(err error) {
	if w.report.Err == nil {
		w.report.Err = err
	}
}

// begin compares what a segment knows of those before it with what was read of them.
func (w *walk) begin(first uint64, f found) {
	h := f.head
	if !f.headOK {
		if f.records == 0 && f.damaged == 0 {
			return // made by a write that failed at once; it says nothing
		}
		h.prev = first - 1 // skipped numbers cannot be told from lost ones: rather too many than none
	}

	if w.seen > 0 && h.prev > w.seen {
		w.report.Lost += h.prev - w.seen
	}

	// Of the numbers that were dropped some may be on disk nevertheless, from a write that was reported as failed.
	if from := max(w.seen+1, first-min(h.dropped, first-1), w.from); from < first {
		w.report.Lost += first - from
		w.report.Dropped += first - from
	}

	w.seen = max(w.seen, first-1)
}

func (w *walk) record(r record) error {
	if r.seq <= w.seen {
		return nil // written again after a failure
	}

	w.report.Lost += r.seq - w.seen - 1
	w.seen, w.report.Last = r.seq, r.seq
	if r.seq < w.from {
		return nil
	}
	if err := w.fn(r.seq, r.payload); err != nil {
		return fmt.Errorf("replay record %d: %w", r.seq, err)
	}

	w.report.Records++
	return nil
}

const (
	asideDir  = "damaged"
	mostAside = 4
	maxAside  = 64 << 20 // bytes of one copy
)

// copyAside keeps a damaged segment for people to look at. The segment itself stays until it is released.
func (w *walk) copyAside(first uint64) error {
	dir := filepath.Join(w.dir, asideDir)
	kept, err := list(w.fsys, dir)
	if err != nil {
		return err
	}

	full := len(kept) >= mostAside
	if slices.Contains(kept, first) || full && first < kept[0] {
		return nil // an earlier start did it, or newer ones have taken its place
	}

	data, err := vfs.ReadFile(w.fsys, segmentName(w.dir, first), maxAside)
	if err != nil {
		return err
	}
	if err := w.fsys.MkdirAll(dir, vfs.DirMode); err != nil {
		return err
	}
	if err := vfs.Replace(w.fsys, segmentName(dir, first), data); err != nil {
		return err
	}

	w.report.Aside = append(w.report.Aside, segmentName(dir, first))
	if full {
		w.report.Aside = slices.DeleteFunc(
			w.report.Aside, func(name string) bool { return name == segmentName(dir, kept[0]) },
		)
		return w.fsys.Remove(segmentName(dir, kept[0]))
	}

	return nil
}
