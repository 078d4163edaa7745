// Package journal is the durable log: numbered records in order, grouped onto the disk with one sync per group. It
// knows nothing of events: a payload is bytes.
//
// It promises:
//   - When Wait returns nil, the record survives power loss. Numbers rise by one and are never handed out twice for
//     records that were on disk; see Options.After for what the caller adds to that.
//   - It always opens and goes on, whatever is in its files: a torn tail is cut, damage in the middle is passed,
//     counted and copied aside. Nothing is left out without being counted in a Report or in Health.
//   - A record is not called durable when its segment was removed before its sync: it is written into a new one, in a
//     new folder if need be. What the removed one held is lost from the log, and Sealed asks the caller to keep it
//     otherwise.
//   - A failing disk blocks nobody. The newest records are held in memory up to Options.Memory (Wait says ErrMemory),
//     the oldest are dropped and counted beyond it, the disk is tried again at growing intervals, and what is held is
//     written in order when it is back.
//
// It does not promise that a number has a record (dropped ones have none, and numbers are skipped after a torn tail),
// and it takes no lock: one process writes, any may Scan.
//
// A journal is a folder of segments NNNNNNNNNNNNNNNNNNNN.log, named by the number of their first record. A segment is
// never written again after its file was closed: each Open starts a new one with its first record, and so does each
// failed write or sync. Numbers are little-endian, sums are crc32c (Castagnoli).
//
//	segment:  header, records, zeros to the end (written ahead, see Options.Ahead)
//
//	header:   | "belayjl" 7 | version 1 | prev 8 | high 8 | dropped 8 | sum of all before 4 |     36 bytes
//	record:   | length of payload 4 | sum of length, number and payload 4 | number 8 | payload |  16 bytes + payload
//
//	prev      the highest number on disk before this segment was made: a reader that has seen less knows of a loss
//	high      the highest number that any earlier segment may hold, acknowledged or not: numbers go on above it
//	dropped   how many numbers just before this segment's first were dropped from memory
//
// Within a segment numbers rise by one. A record that failed is written again in the next segment with the same number
// and the same bytes; readers take the first. A header of zeros is no record (its number is 0): where only zeros
// follow, the segment ends. Where anything else follows, the reader looks for the next record whose number fits and
// whose sum is right: found, it was damage in the middle; not found, a torn tail.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"belay/internal/vfs"
)

// MaxPayload is the most that one record holds.
const MaxPayload = 1 << 20

// Errors of Append and Wait. Callers use errors.Is; the disk's own error can be found behind ErrMemory and ErrClosed
// too.
var (
	// ErrTooLarge: the payload is over MaxPayload. Nothing was queued and no number was used.
	ErrTooLarge = errors.New("record too large")
	// ErrClosed: Run has ended; the record is not on disk.
	ErrClosed = errors.New("journal closed")
	// ErrMemory: the disk fails, the record is held in memory for now. It is written when the disk is back.
	ErrMemory = errors.New("record is in memory only")
	// ErrDropped: the disk failed for so long that newer records took this one's place in memory. It is lost.
	ErrDropped = errors.New("record dropped")
)

// Options of a journal. The zero value is the default.
type Options struct {
	// SegmentBytes is the size at which a segment is sealed; 16 MB.
	SegmentBytes int64
	// Memory bounds the records that are not on disk yet, in bytes; 4 MB. While the disk works and its writer is this
	// far behind, Append waits; while the disk fails, the oldest records are dropped instead. The group that is being
	// written (1 MB at most) comes on top.
	Memory int
	// Ahead is how many bytes of zeros are written ahead of the records in one go, so that most syncs change no file
	// size; 256 KB. A negative number turns it off. On ext4 it made acknowledgements 1.4 to 1.8 times quicker
	// (BenchmarkAck).
	Ahead int
	// After is the highest number that the caller's own durable files (states, checkpoints) name. A state may be
	// written before the record that it holds is on disk; after a crash the journal alone would hand that number out
	// again, and a replay above the state's number would pass over a new record. Callers that Wait for a number before
	// they write it down need not set it.
	After uint64
}

// Segment is a full or closed piece of the log.
type Segment struct {
	First, Last uint64 // not each number between has a record; later segments hold the higher ones
}

// Health says how the journal's disk is. All counts are since Open.
type Health struct {
	Err     error     // the last fault of the disk; nil once a write has gone well
	Since   time.Time // when Err's spell began
	Held    int       // records that are not on disk yet
	Bytes   int       // their size
	Dropped uint64    // records lost because memory was full while the disk failed
	Stored  uint64    // the highest number on disk
	Last    uint64    // the highest number handed out
}

// Journal is an open log. Append, Wait, Sealed, Release, Changed and Health may be called from any goroutine, Run once.
type Journal struct {
	fsys   vfs.FS
	dir    string
	opt    Options
	kick   chan struct{} // there is something to write
	look   chan struct{} // somebody asks whether the newest segment is still there
	change chan struct{}
	old    []uint64 // segments found by Open, for Replay
	cut    int64    // bytes of torn tail that Open cut
	opened uint64   // the number before the first that this Journal hands out
	w      writer   // Run's own

	mu struct {
		sync.Mutex
		// closed when pending became smaller or the journal closed; then a new one takes its place
		room    chan struct{}
		next    uint64
		stored  uint64
		pending []record
		bytes   int           // of pending
		writing []record      // the group that Run has in hand
		group   chan struct{} // closed when writing has been settled
		queued  chan struct{} // becomes group when Run takes pending
		lost    []span        // numbers dropped from memory, the newest maxSpans ranges
		dropped uint64
		failing bool // the disk's last answer was an error: Wait says ErrMemory
		err     error
		since   time.Time
		running bool
		closed  bool
		sealed  []Segment
		active  bool // the newest segment is not in sealed and is on disk
	}
}

type record struct {
	seq     uint64
	payload []byte
}

func (r record) size() int { return recordHead + len(r.payload) }

// span is a range of numbers, both ends included.
type span struct{ first, last uint64 }

func (s span) with(t span) span { return span{min(s.first, t.first), max(s.last, t.last)} }

// maxSpans bounds the memory of what was dropped: beyond it the two oldest become one, and a late Wait for a number
// between them hears ErrDropped although the record may be on disk.
const maxSpans = 64

// Open finds the end of the log in dir and cuts a torn tail. It replays nothing, and makes nothing: the folder comes
// with the first record (its parent must be there and synced by whoever made it). Of what is in the log only a folder
// that is there and cannot be listed is an error, because numbers could come twice then.
func Open(fsys vfs.FS, dir string, opt Options) (*Journal, error) {
	if opt.SegmentBytes == 0 {
		opt.SegmentBytes = 16 << 20
	}
	if opt.Memory == 0 {
		opt.Memory = 4 << 20
	}
	if opt.Ahead == 0 {
		opt.Ahead = 256 << 10
	}
	if opt.SegmentBytes < headerSize || opt.Memory < 0 || opt.After > maxNumber/2 {
		return nil, fmt.Errorf("open journal %s: options out of range: %+v", dir, opt)
	}

	names, err := list(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", dir, err)
	}

	j := &Journal{
		fsys: fsys, dir: dir, opt: opt, old: names,
		kick: make(chan struct{}, 1), look: make(chan struct{}, 1), change: make(chan struct{}, 1),
	}

	j.mu.room = make(chan struct{})
	j.mu.queued = make(chan struct{})
	j.findEnd()
	for i, first := range names {
		s := Segment{First: first, Last: j.w.high}
		if i+1 < len(names) {
			s.Last = names[i+1] - 1
		}

		if s.Last < s.First {
			// a crash before its first record left it: the next segment takes its name, and must not be released with
			// it
			continue
		}

		j.mu.sealed = append(j.mu.sealed, s)
	}

	return j, nil
}

// findEnd sets the numbers from which the journal goes on.
func (j *Journal) findEnd() {
	for i := len(j.old) - 1; i >= 0; i-- {
		first := j.old[i]
		f := examine(j.fsys, j.dir, first)
		newest := i == len(j.old)-1
		err := f.unusable
		if newest && f.headOK && f.torn > 0 && err == nil {
			if err = cutTail(j.fsys, segmentName(j.dir, first), f.end); err == nil {
				j.cut = f.torn // else Replay meets it
			}
		}

		if err != nil {
			// It harms nothing: the segment is never appended to, and the numbers that may be in it are passed.
			j.mu.err, j.mu.since = fmt.Errorf("find end of segment %d: %w", first, err), time.Now()
		}

		j.mu.stored = max(j.mu.stored, f.last)
		if j.mu.stored == 0 {
			j.mu.stored = f.head.prev
		}

		j.w.high = max(j.w.high, first-1, f.last, f.highest)
		if f.headOK {
			j.w.high = max(j.w.high, f.head.high)
			break // earlier segments hold nothing above head.high
		}
	}

	j.w.high = max(j.w.high, j.opt.After)
	j.opened = j.w.high
	j.mu.next = j.opened + 1
}

func cutTail(fsys vfs.FS, name string, size int64) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}

	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}

	return errors.Join(err, f.Close())
}

// Append queues a record and returns its number at once; numbers are in the order of the calls. It never waits for the
// disk itself, only for room in memory while the writer is Options.Memory behind a disk that works, so that Run must be
// running by then; it returns the context's error when that ends first. The journal keeps the payload until it is
// written: the caller must not change it.
func (j *Journal) Append(ctx context.Context, payload []byte) (uint64, error) {
	if len(payload) > MaxPayload {
		return 0, fmt.Errorf("append record of %d bytes: %w", len(payload), ErrTooLarge)
	}

	for {
		seq, room, err := j.queue(payload)
		if err != nil || room == nil {
			return seq, err
		}

		select {
		case <-room:
		case <-ctx.Done():
			return 0, fmt.Errorf("append record: %w", ctx.Err())
		}
	}
}

// queue gives a record its number and its place in memory. Where there is no room it gives the channel that closes when
// there may be some.
func (j *Journal) queue(payload []byte) (seq uint64, room <-chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()

	r := record{payload: payload}
	switch {
	case j.mu.closed:
		return 0, nil, fmt.Errorf("append record: %w", ErrClosed)
	case !j.mu.failing && len(j.mu.pending) > 0 && j.mu.bytes+r.size() > j.opt.Memory:
		return 0, j.mu.room, nil
	}

	r.seq = j.mu.next
	j.mu.next++
	j.mu.pending = append(j.mu.pending, r)
	j.mu.bytes += r.size()
	if j.mu.failing {
		j.dropOldest()
	}

	signal(j.kick)
	return r.seq, nil, nil
}

// roomForMore lets those who wait for room look again. It is called under the lock.
func (j *Journal) roomForMore() {
	close(j.mu.room)
	j.mu.room = make(chan struct{})
}

// dropOldest makes room while the disk fails. The newest record always stays. It is called under the lock.
func (j *Journal) dropOldest() {
	n := 0
	for ; j.mu.bytes > j.opt.Memory && n < len(j.mu.pending)-1; n++ {
		j.mu.bytes -= j.mu.pending[n].size()
	}

	if n == 0 {
		return
	}

	s := span{j.mu.pending[0].seq, j.mu.pending[n-1].seq}
	clear(j.mu.pending[:n]) // the array lives on: let the payloads go
	j.mu.pending = j.mu.pending[n:]
	j.mu.dropped += uint64(n)
	if k := len(j.mu.lost) - 1; k >= 0 && s.first <= j.mu.lost[k].last+1 && j.mu.lost[k].first <= s.last+1 {
		j.mu.lost[k] = j.mu.lost[k].with(s)
		return
	}

	j.mu.lost = append(j.mu.lost, s)
	if len(j.mu.lost) > maxSpans {
		j.mu.lost[1] = j.mu.lost[1].with(j.mu.lost[0])
		j.mu.lost = j.mu.lost[1:]
	}
}

// Wait returns nil when record seq is on stable storage, and an error as soon as that is not to be expected soon:
// ErrMemory while the disk fails, ErrDropped, ErrClosed, or the context's. It may be called again.
func (j *Journal) Wait(ctx context.Context, seq uint64) error {
	for {
		settled, err := j.settled(seq)
		if err != nil {
			return fmt.Errorf("wait for record %d: %w", seq, err)
		}
		if settled == nil {
			return nil
		}

		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("wait for record %d: %w", seq, ctx.Err())
		}
	}
}

// settled says what became of a record; where that is open it gives the channel that closes with the next news.
func (j *Journal) settled(seq uint64) (<-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if seq >= j.mu.next {
		return nil, errors.New("no such record")
	}

	for _, s := range j.mu.lost {
		if s.first <= seq && seq <= s.last {
			return nil, ErrDropped
		}
	}

	switch {
	case seq <= j.mu.stored:
		return nil, nil
	case j.mu.closed && !j.mu.running:
		return nil, because(ErrClosed, j.mu.err)
	case j.mu.failing:
		return nil, because(ErrMemory, j.mu.err)
	case len(j.mu.writing) > 0 && seq <= j.mu.writing[len(j.mu.writing)-1].seq:
		return j.mu.group, nil
	}

	return j.mu.queued, nil
}

func because(what, why error) error {
	if why == nil {
		return what
	}
	return fmt.Errorf("%w: %w", what, why)
}

// Health says how the disk is now.
func (j *Journal) Health() Health {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := Health{
		Err: j.mu.err, Since: j.mu.since, Dropped: j.mu.dropped, Stored: j.mu.stored, Last: j.mu.next - 1,
		Held: len(j.mu.pending) + len(j.mu.writing), Bytes: j.mu.bytes,
	}

	for _, r := range j.mu.writing {
		h.Bytes += r.size()
	}

	return h
}

// Changed gives a value after a segment was sealed or Health.Err came, changed or went. Values coalesce; it has one
// reader.
func (j *Journal) Changed() <-chan struct{} { return j.change }

// Look makes Run look whether somebody removed the newest segment, or the folder. If so it is sealed, and Changed gives
// a value: the caller's states are then all that holds what was in it. Without Look the next record notices.
func (j *Journal) Look() { signal(j.look) }

// Sealed lists the segments that get no more records, oldest first: those that Open found and those that are full or
// closed by an error since.
func (j *Journal) Sealed() []Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Segment(nil), j.mu.sealed...)
}

// Release removes the sealed segments whose last number is <= upto, oldest first. The newest segment in the folder
// stays in any case, because it keeps the numbers: it goes with a later Release, when there is a newer one.
func (j *Journal) Release(upto uint64) error {
	for {
		j.mu.Lock()
		done := len(j.mu.sealed) == 0 || j.mu.sealed[0].Last > upto || len(j.mu.sealed) == 1 && !j.mu.active
		var s Segment
		if !done {
			s = j.mu.sealed[0]
		}

		j.mu.Unlock()
		if done {
			return nil
		}

		err := j.fsys.Remove(segmentName(j.dir, s.First))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			// One by one: were a later one gone after a power cut and this one not, a reader would see a gap.
			err = j.fsys.SyncDir(j.dir)
		}
		if err != nil {
			return fmt.Errorf("release segment %d: %w", s.First, err)
		}

		j.mu.Lock()
		if len(j.mu.sealed) > 0 && j.mu.sealed[0] == s { // else another Release was quicker
			j.mu.sealed = j.mu.sealed[1:]
		}

		j.mu.Unlock()
	}
}

// signal wakes the channel's reader without waiting for it.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func segmentName(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.log", first))
}

// maxNumber keeps arithmetic on numbers that come from the disk from overflowing.
const maxNumber = math.MaxUint64 >> 2
