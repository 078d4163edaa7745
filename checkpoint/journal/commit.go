package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"belay/internal/vfs"
)

// maxGroup bounds what is written and synced in one go, so that under load nobody waits for the whole queue.
const maxGroup = 1 << 20

// The pause between two tries of a failing disk doubles from firstPause to lastPause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Run writes what Append queues until the context ends: all that is queued in one write and one sync, then the next.
// Its last round writes what is still there and closes the file; from then on Append and Wait answer ErrClosed. It
// returns the error of that round, nil if everything is on disk. A disk that hangs holds it up.
func (j *Journal) Run(ctx context.Context) error {
	j.mu.Lock()
	if j.mu.running || j.mu.closed {
		j.mu.Unlock()
		return errors.New("run journal: it runs already or has ended")
	}

	j.mu.running = true
	j.mu.Unlock()

	var retry <-chan time.Time // set while the disk fails
	pause := firstPause
	for {
		select {
		case <-ctx.Done():
			return j.finish()
		case <-j.kick:
			if retry != nil {
				continue // new records do not make a bad disk better
			}

		case <-retry:
		case <-j.look:
			if j.w.file != nil && errors.Is(j.present(), errGone) {
				j.poison()
			}
			continue
		}

		retry = nil
		if err := j.drain(); err != nil {
			retry = time.After(pause)
			pause = min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
	}
}

// drain writes groups until nothing is queued or the disk fails.
func (j *Journal) drain() error {
	for {
		group := j.take()
		if len(group) == 0 {
			return nil
		}

		err := j.write(group)
		j.settle(group, err)
		if err != nil {
			return err
		}
	}
}

// take moves the oldest queued records into Run's hand.
func (j *Journal) take() []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, bytes := 0, 0
	for ; n < len(j.mu.pending); n++ {
		r := j.mu.pending[n]
		if n > 0 && (bytes+r.size() > maxGroup || r.seq != j.mu.pending[n-1].seq+1) {
			break // a gap, where records were dropped, is for the next segment's header to tell
		}
		bytes += r.size()
	}

	if n == 0 {
		return nil
	}

	j.mu.writing = append(j.mu.writing[:0], j.mu.pending[:n]...)
	rest := copy(j.mu.pending, j.mu.pending[n:])
	clear(j.mu.pending[rest:])
	j.mu.pending = j.mu.pending[:rest]
	j.mu.bytes -= bytes
	j.mu.group, j.mu.queued = j.mu.queued, make(chan struct{})
	j.roomForMore()
	return j.mu.writing
}

// settle tells those who wait what became of the group. After an error it is the head of the queue again.
func (j *Journal) settle(group []record, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	news := (err == nil) != (j.mu.err == nil)
	if err == nil {
		j.mu.stored = group[len(group)-1].seq
		j.mu.active = true
		j.mu.failing, j.mu.err = false, nil
	} else {
		news = news || err.Error() != j.mu.err.Error()
		if j.mu.err == nil {
			j.mu.since = time.Now()
		}

		j.mu.failing, j.mu.err = true, err
		j.mu.pending = append(append([]record(nil), group...), j.mu.pending...)
		for _, r := range group {
			j.mu.bytes += r.size()
		}

		j.dropOldest()

		// All that are queued hear of it, and those who wait for room go on: the ring drops instead.
		close(j.mu.queued)
		j.mu.queued = make(chan struct{})
		j.roomForMore()
	}

	clear(j.mu.writing)
	j.mu.writing = j.mu.writing[:0]
	close(j.mu.group)
	if news {
		signal(j.change)
	}
}

// finish is Run's last round.
func (j *Journal) finish() error {
	j.mu.Lock()
	j.mu.closed = true
	j.roomForMore()
	j.mu.Unlock()

	err := j.drain()
	if cerr := j.seal(); err == nil {
		err = cerr
	}

	j.mu.Lock()
	held := len(j.mu.pending)
	j.mu.running = false
	close(j.mu.queued)
	j.mu.Unlock()
	if err != nil {
		return fmt.Errorf("stop journal with %d records not on disk: %w", held, err)
	}

	return nil
}

// writer is the segment that Run writes. Only Run's goroutine uses it (and Open before it).
type writer struct {
	file   vfs.File // nil: the next group starts a new segment
	made   fs.FileInfo
	first  uint64
	stored uint64 // the highest number that is on disk in this segment, 0 before the first
	off    int64  // where the next record goes
	filled int64  // the file has bytes up to here, zeros after off
	high   uint64 // the highest number that any segment may hold
	buf    []byte
	dir    bool // the folder is there and its name is on disk
	failed bool // the last try failed: on a disk that is nearly full, the records may fit where zeros ahead do not
}

// write puts a group onto stable storage. Where somebody has removed the folder or the segment, the group goes into a
// new one; what the old one held is for the caller's states to keep.
func (j *Journal) write(group []record) error {
	err := j.try(group)
	if errors.Is(err, errGone) {
		j.w.dir, j.w.failed = false, false
		err = j.try(group)
		signal(j.change)
	}
	return err
}

// try writes and syncs a group. After an error the segment is closed for good: what the kernel has done with its bytes
// is not known, and another sync could say yes to bytes that were dropped.
func (j *Journal) try(group []record) error {
	w := &j.w
	size := int64(0)
	for _, r := range group {
		size += int64(r.size())
	}

	if w.file != nil && (w.off+size > j.opt.SegmentBytes || group[0].seq != w.stored+1) {
		if err := j.seal(); err != nil {
			return err
		}
	}

	w.buf = w.buf[:0]
	fresh := w.file == nil
	if fresh {
		if err := j.create(group[0].seq); err != nil {
			w.failed, w.dir = true, false // the folder itself may have gone
			return err
		}
	}

	for _, r := range group {
		w.buf = r.appendTo(w.buf)
	}

	w.high = max(w.high, group[len(group)-1].seq)
	err := j.put(fresh)
	if err == nil {
		err = j.present()
	}
	if err != nil {
		j.poison()
		return fmt.Errorf("write segment %d: %w", w.first, err)
	}

	w.stored, w.failed = group[len(group)-1].seq, false
	if cap(w.buf) > maxGroup/2 {
		w.buf = nil // a burst should not hold its memory for ever
	}

	return nil
}

// errGone: the segment is no longer in its folder, or the folder is not there.
var errGone = errors.New("it was removed while it was written")

// present says errGone when the open segment is not what its name leads to: a sync of a file without a name says yes,
// and nobody will find the bytes. It costs a hundredth of the sync.
func (j *Journal) present() error {
	there, err := j.fsys.Lstat(segmentName(j.dir, j.w.first))
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err == nil && j.w.made.Sys() != nil && !os.SameFile(there, j.w.made) { // a disk in memory knows names only
		return errGone
	}

	return err
}

// create opens a new segment and puts its header into the buffer.
func (j *Journal) create(first uint64) error {
	w := &j.w
	if err := j.makeDir(); err != nil {
		return fmt.Errorf("make journal folder: %w", err)
	}

	j.mu.Lock()
	h := header{prev: j.mu.stored, high: w.high}
	j.mu.Unlock()
	h.dropped = first - 1 - max(h.prev, j.opened) // writing is in order: what is not on disk by now was dropped

	// A file of this name can only be what a failed try left: nothing in it was acknowledged as on disk.
	f, err := j.fsys.OpenFile(segmentName(j.dir, first), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, vfs.FileMode)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create segment %d: %w: %w", first, errGone, err)
	}
	if err != nil {
		return fmt.Errorf("create segment %d: %w", first, err)
	}
	if w.made, err = f.Stat(); err != nil {
		return errors.Join(fmt.Errorf("look at segment %d: %w", first, err), f.Close())
	}

	w.file, w.first, w.stored, w.off, w.filled = f, first, 0, 0, 0
	w.buf = h.appendTo(w.buf)
	return nil
}

func (j *Journal) makeDir() error {
	if j.w.dir {
		return nil
	}
	if err := j.fsys.MkdirAll(j.dir, vfs.DirMode); err != nil {
		return err
	}
	if err := j.fsys.SyncDir(filepath.Dir(j.dir)); err != nil {
		return err
	}

	j.w.dir = true
	return nil
}

// put writes the buffer at the segment's end and syncs it; for a fresh segment also its name.
func (j *Journal) put(fresh bool) error {
	w := &j.w
	end := w.off + int64(len(w.buf))
	if step := int64(j.opt.Ahead); step > 0 && end > w.filled && !w.failed {
		if to := min(end+step, j.opt.SegmentBytes); to > end {
			w.buf = append(w.buf, make([]byte, to-end)...)
		}
	}

	if n, err := w.file.Write(w.buf); err != nil {
		return err
	} else if n < len(w.buf) {
		return io.ErrShortWrite
	}

	if to := w.off + int64(len(w.buf)); to > end {
		w.filled = to
		if _, err := w.file.Seek(end, io.SeekStart); err != nil {
			return err
		}
	}

	w.off = end
	if err := w.file.Sync(); err != nil {
		return err
	}
	if fresh {
		return j.fsys.SyncDir(j.dir)
	}

	return nil
}

// seal closes the segment in good order.
func (j *Journal) seal() error {
	if j.w.file == nil {
		return nil
	}

	err := j.w.file.Close()
	j.w.file = nil
	j.retire()
	if err != nil {
		return fmt.Errorf("close segment %d: %w", j.w.first, err)
	}

	return nil
}

// poison closes the segment after a failure.
func (j *Journal) poison() {
	_ = j.w.file.Close() // it failed already, and that is told
	j.w.file, j.w.failed = nil, true
	if j.w.stored > 0 {
		j.retire()
		return
	}

	// Nothing in it counts. Were it to stay, a disk that is full for days would gather such files; if it cannot be
	// removed the next try takes its name again, or a reader finds records that are written again later.
	_ = j.fsys.Remove(segmentName(j.dir, j.w.first))
}

// retire puts the segment on the list of those that can be released.
func (j *Journal) retire() {
	j.mu.Lock()
	j.mu.sealed = append(j.mu.sealed, Segment{First: j.w.first, Last: j.w.stored})
	j.mu.active = false
	j.mu.Unlock()
	signal(j.change)
}
