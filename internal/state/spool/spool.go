// Package spool keeps events that found no daemon, one file each, until a daemon takes them.
//
// It promises: a file is whole or not there, also after a power cut; files are given out in the order of their time,
// and in that of their coming where the clock was set back meanwhile by more than a minute; a file goes only after its
// taker said so; the folder stays within its limits; what was given up for that is counted, and the count is told once.
// Several processes may write and drain at the same time: an event may then be given out twice, which its id makes
// harmless.
//
// It does not redact: callers hand over what may lie on a disk. It does not notice new files by itself.
//
// A file is the wire request line and the raw bytes after it. Its name is <Unix ms>-<event id>~<blocks>.<failed tries>:
// with the size in it a new event costs one reading of the folder, and not a look at each file that waits.
package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"belay/internal/vfs"
	"belay/internal/wire"
)

// ErrStop is returned (wrapped) by a taker when the fault is not the event's: nobody is there to take it. Drain ends
// and the file keeps its good name.
var ErrStop = errors.New("stop draining")

// ErrNoHeader is returned by Write for an event without a header line, and by Drain for a file without one.
var ErrNoHeader = errors.New("event without a header line")

const (
	maxTries    = 3
	badDir      = "bad"          // files that failed maxTries times
	dropFile    = "dropped"      // a line for each time that events were given up: how many
	takenFile   = "dropped.read" // dropFile while it is read
	maxDropFile = 1 << 20        // over it the count says "at least"
	block       = 4 << 10        // what a small file costs on a disk
	tempAge     = time.Hour      // a temporary file this old has no writer any more
	maxFile     = wire.MaxLine + wire.MaxPayload + 1
	late        = time.Minute       // more than any intake waits
	maxTime     = 9_999_999_999_999 // what 13 digits hold
)

// Limits bound the folder. The oldest files go first.
type Limits struct {
	Bytes int64         // of disk, counted in blocks
	Age   time.Duration // since the event was spooled
}

// DefaultLimits are those of the design.
func DefaultLimits() Limits { return Limits{Bytes: 64 << 20, Age: 7 * 24 * time.Hour} }

// Write keeps one event durably. It gives up files that are too old, then the oldest, until the event fits; dropped is
// how many events were lost, the new one included when it is larger than the whole spool. Losses are added to the count
// that Dropped tells.
func Write(fsys vfs.FS, dir string, l Limits, header, payload []byte, now time.Time) (dropped int, err error) {
	header = bytes.TrimRight(header, "\r\n")
	if len(header) == 0 || bytes.IndexByte(header, '\n') >= 0 {
		return 0, ErrNoHeader
	}
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return 0, fmt.Errorf("create spool %s: %w", dir, err)
	}

	size := int64(len(header) + 1 + len(payload))
	if onDisk(size) > l.Bytes || size > maxFile {
		return 1, Count(fsys, dir, 1)
	}

	files, err := list(fsys, dir, named)
	if err != nil {
		return 0, err
	}

	dropped, err = makeRoom(fsys, dir, files, l, onDisk(size), now)
	if err != nil {
		return dropped, errors.Join(err, Count(fsys, dir, dropped))
	}

	data := make([]byte, 0, size)
	data = append(append(append(data, header...), '\n'), payload...)
	name := fmt.Sprintf("%013d-%s~%d.0", fileTime(files, now), safeID(header, payload), onDisk(size)/block)
	if err := vfs.Replace(fsys, filepath.Join(dir, name), data); err != nil {
		return dropped, errors.Join(fmt.Errorf("spool event: %w", err), Count(fsys, dir, dropped))
	}

	return dropped, Count(fsys, dir, dropped)
}

// fileTime is the time for a file's name: now, but when the clock was set back after those that are there, or what
// comes later would be given out first. An event that comes a little late, because its intake waited, takes its own
// place.
func fileTime(files []file, now time.Time) (ms int64) {
	ms = max(now.UnixMilli(), 0)
	for _, f := range files {
		if !f.temp && f.at < maxTime && f.at-now.UnixMilli() > late.Milliseconds() {
			ms = max(ms, f.at+1)
		}
	}
	return ms
}

// makeRoom removes files until need bytes fit. Set-aside files have an eighth of the limit for themselves and were
// counted when they were set aside.
func makeRoom(fsys vfs.FS, dir string, files []file, l Limits, need int64, now time.Time) (dropped int, err error) {
	bad := filepath.Join(dir, badDir)
	aside, err := list(fsys, bad, named)
	if err != nil {
		return 0, err
	}
	if _, err := shrink(fsys, bad, aside, Limits{Bytes: l.Bytes / 8, Age: l.Age}, 0, now); err != nil {
		return 0, err
	}

	return shrink(fsys, dir, files, l, need, now)
}

func shrink(fsys vfs.FS, dir string, files []file, l Limits, need int64, now time.Time) (removed int, err error) {
	total := need
	for _, f := range files {
		total += onDisk(f.size)
	}

	oldest, stale := now.Add(-l.Age).UnixMilli(), now.Add(-tempAge).UnixMilli()
	for _, f := range files { // oldest first
		if f.temp && f.at >= stale || !f.temp && total <= l.Bytes && f.at >= oldest {
			continue
		}

		err := fsys.Remove(filepath.Join(dir, f.name))
		switch {
		case err == nil && !f.temp:
			removed++
		case err != nil && !errors.Is(err, fs.ErrNotExist): // not there: a drain was quicker
			return removed, fmt.Errorf("remove spooled event %s: %w", f.name, err)
		}

		total -= onDisk(f.size)
	}

	return removed, nil
}

// mayComeAgain is how many drained events a power cut may bring back: fewer than the ids that a session's state
// remembers.
const mayComeAgain = 32

// Drain gives each file's header line (without its end) and payload to fn, oldest first, and removes the file when fn
// returns nil. A file that fn refuses is passed over and tried again by the next Drain; after three refusals it is set
// aside in bad/ and counted as dropped. An error that wraps ErrStop, or the end of ctx, ends the work and blames no
// file. n is how many events were taken; err is the first refusal and the first fault of the disk.
func Drain(ctx context.Context, fsys vfs.FS, dir string, fn func(header, payload []byte) error) (n int, err error) {
	files, err := list(fsys, dir, measured)
	if err != nil {
		return 0, err
	}

	var refusal, fault error
	keep := func(place *error, err error) {
		if *place == nil {
			*place = err
		}
	}

	for _, f := range files {
		if f.temp {
			continue
		}
		if err := ctx.Err(); err != nil {
			return n, err
		}

		name := filepath.Join(dir, f.name)
		data, err := vfs.ReadFile(fsys, name, maxFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another drain was quicker
		}

		why := &fault
		if err == nil {
			why, err = &refusal, give(data, fn)
		}

		switch {
		case err == nil:
			// The folder is seldom synced: after a power cut the last events come again, and their ids tell.
			if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				keep(&fault, fmt.Errorf("remove drained event %s: %w", f.name, err))
			}
			if n++; n%mayComeAgain == 0 {
				if err := fsys.SyncDir(dir); err != nil {
					keep(&fault, fmt.Errorf("sync the spool's folder: %w", err))
				}
			}

		case errors.Is(err, ErrStop), ctx.Err() != nil:
			return n, err
		default:
			keep(why, fmt.Errorf("drain event %s: %w", f.name, err))
			keep(&fault, blame(fsys, dir, f))
		}
	}

	return n, errors.Join(refusal, fault)
}

func give(data []byte, fn func(header, payload []byte) error) error {
	header, payload, ok := bytes.Cut(data, []byte{'\n'})
	if !ok || len(header) == 0 {
		return ErrNoHeader
	}
	return fn(header, payload)
}

// blame counts a failed try in the file's name and sets the file aside after the last.
func blame(fsys vfs.FS, dir string, f file) error {
	tries := f.tries + 1
	from, to := filepath.Join(dir, f.name), filepath.Join(dir, f.stem+"."+strconv.Itoa(tries))
	if tries < maxTries {
		if err := fsys.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("mark event %s: %w", f.name, err)
		}
		return nil
	}

	bad := filepath.Join(dir, badDir)
	if err := fsys.MkdirAll(bad, vfs.DirMode); err != nil {
		return fmt.Errorf("create %s: %w", bad, err)
	}

	err := fsys.Rename(from, filepath.Join(bad, filepath.Base(to)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another drain was quicker, and counted it
	}
	if err != nil {
		return fmt.Errorf("set event %s aside: %w", f.name, err)
	}

	return Count(fsys, dir, 1)
}

// Pending says how many events wait and how many bytes they hold.
func Pending(fsys vfs.FS, dir string) (events int, bytes int64, err error) {
	files, err := list(fsys, dir, measured)
	for _, f := range files {
		if !f.temp {
			events++
			bytes += f.size
		}
	}

	return events, bytes, err
}

// Check gives every fault of the folder to yield, with the name of the file that it is of: one that is no event, and
// what waits being more than the limits allow. It changes nothing, and others may write and drain meanwhile.
func Check(fsys vfs.FS, dir string, l Limits, yield func(name string, err error)) {
	files, err := list(fsys, dir, measured)
	if err != nil {
		yield(".", err)
	}

	total := int64(0)
	for _, f := range files {
		total += onDisk(f.size)
		if f.temp {
			continue
		}

		data, err := vfs.ReadFile(fsys, filepath.Join(dir, f.name), maxFile)
		if err == nil {
			err = give(data, func(header, _ []byte) error { return json.Unmarshal(header, new(wire.Request)) })
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // taken meanwhile
			yield(f.name, err)
		}
	}

	if l.Bytes > 0 && total > l.Bytes {
		yield(".", fmt.Errorf("%d bytes of disk, at most %d", total, l.Bytes))
	}
}

// Count adds n lost events to the spool's count. Lines are appended, so that several processes can do it at once.
func Count(fsys vfs.FS, dir string, n int) (err error) {
	if n <= 0 {
		return nil
	}
	if err := fsys.MkdirAll(dir, vfs.DirMode); err != nil {
		return fmt.Errorf("create spool %s: %w", dir, err)
	}

	f, err := fsys.OpenFile(filepath.Join(dir, dropFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, vfs.FileMode)
	if err != nil {
		return fmt.Errorf("count %d dropped events: %w", n, err)
	}

	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("count %d dropped events: %w", n, cerr)
		}
	}()

	if fi, err := f.Stat(); err == nil && fi.Size() > maxDropFile {
		return nil // where the size is not known, the count is worth more than its bound
	}
	if _, err := f.Write([]byte(strconv.Itoa(n) + "\n")); err != nil {
		return fmt.Errorf("count %d dropped events: %w", n, err)
	}

	return nil
}

// Dropped tells how many events were lost since it was last asked, and starts from zero. Call it from one process only.
// What a crash left of an earlier call is told first and alone; the rest waits for the next call.
func Dropped(fsys vfs.FS, dir string) (int, error) {
	taken := filepath.Join(dir, takenFile)
	_, err := fsys.Lstat(taken)
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.Rename(filepath.Join(dir, dropFile), taken)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
	}

	if err != nil {
		return 0, fmt.Errorf("read dropped events: %w", err)
	}

	n, err := sum(fsys, taken)
	if err != nil {
		return 0, err
	}
	if err := fsys.Remove(taken); err != nil {
		return 0, fmt.Errorf("reset dropped events: %w", err)
	}

	return n, nil
}

// sum adds up a file of Count. A torn or foreign line counts as one: something was lost.
func sum(fsys vfs.FS, name string) (n int, err error) {
	data, err := vfs.ReadFile(fsys, name, 2*maxDropFile)
	if err != nil {
		return 0, fmt.Errorf("read dropped events: %w", err)
	}

	for line := range strings.Lines(string(data)) {
		one, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || one < 1 || one > 1<<30 {
			one = 1
		}
		n += one
	}

	return n, nil
}

// file is one name in the folder.
type file struct {
	name  string
	stem  string // without the tries
	at    int64  // Unix ms
	tries int
	size  int64
	temp  bool // what a crash left of a write
}

// sizes says where list has the files' sizes from.
type sizes bool

const (
	named    sizes = false // their names, in blocks; the disk where a name tells none
	measured sizes = true  // the disk
)

// list gives the folder's events and left-overs, oldest first. What has a foreign name is not touched.
func list(fsys vfs.FS, dir string, from sizes) ([]file, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list spool %s: %w", dir, err)
	}

	var files []file
	for _, e := range entries { // sorted by name, and so by time
		f, ok := parseName(e.Name())
		if !ok || e.IsDir() {
			continue
		}

		if from == measured || f.size == 0 {
			info, err := e.Info()
			if err != nil {
				continue // gone since
			}
			f.size = info.Size()
		}

		files = append(files, f)
	}

	return files, nil
}

func parseName(name string) (f file, ok bool) {
	f.name = name
	if rest, is := strings.CutSuffix(name, vfs.TempSuffix); is {
		f.temp = true
		name = strings.TrimPrefix(rest, ".")
	}

	i, j := strings.IndexByte(name, '-'), strings.LastIndexByte(name, '.')
	if i != 13 || j < i {
		return f, false
	}

	var err1, err2 error
	f.at, err1 = strconv.ParseInt(name[:i], 10, 64)
	f.tries, err2 = strconv.Atoi(name[j+1:])
	f.stem = name[:j]
	if k := strings.LastIndexByte(f.stem, '~'); k >= 0 {
		if n, err := strconv.ParseInt(f.stem[k+1:], 10, 32); err == nil && n > 0 {
			f.size = n*block - 1 // onDisk makes n blocks of it
		}
	}

	return f, err1 == nil && err2 == nil && f.at >= 0 && f.tries >= 0 && f.tries < 100
}

// safeID is the event's id as a part of a file name. An event without one is named by its content.
func safeID(header, payload []byte) string {
	var req wire.Request
	_ = json.Unmarshal(header, &req) // a header that is broken has no id
	id := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' {
			return r
		}
		return -1
	}, req.ID)

	if id == "" || id != req.ID || len(id) > 80 {
		h := fnv.New64a()
		_, _ = h.Write(header) // never fails
		_, _ = h.Write(payload)
		return fmt.Sprintf("x%016x", h.Sum64())
	}

	return id
}

// onDisk counts a file in whole blocks: many small ones fill a disk too.
func onDisk(size int64) int64 { return (size + block) / block * block }
