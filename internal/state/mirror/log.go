package mirror

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"belay/internal/vfs"
)

// log is one mirror file that is being written. It is made when the first batch comes.
type log struct {
	fsys vfs.FS
	path string
	f    vfs.File // nil until there is a file
	size int64    // committed bytes
	safe int64    // of them on stable storage
	last trailer  // of the newest batch; zero when there is none
	cut  int64    // bytes of a torn tail that opening took off

	broken bool // a write or sync failed: open it again
	dirty  bool // bytes that are not synced
	named  bool // a name that is not synced
}

// openLog opens a mirror file and takes off what a crash left behind its last whole batch. A file that is not there is
// an empty log.
func openLog(fsys vfs.FS, path string) (*log, error) {
	l := &log{fsys: fsys, path: path}
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open mirror %s: %w", path, err)
	}
	if err := l.recover(f); err != nil {
		return nil, errors.Join(fmt.Errorf("open mirror %s: %w", path, err), f.Close())
	}

	l.f = f
	return l, nil
}

func (l *log) recover(f vfs.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}

	end, last, err := committed(f, st.Size())
	if err != nil {
		return err
	}
	if end, last, err = firstLoss(f, end, last); err != nil {
		return err
	}

	if l.cut = st.Size() - end; l.cut > 0 {
		if err := f.Truncate(end); err != nil {
			return fmt.Errorf("cut torn tail: %w", err)
		}
	}

	if _, err := f.Seek(end, io.SeekStart); err != nil {
		return err
	}

	l.size, l.last = end, last
	l.dirty, l.named = true, true // whoever wrote it may not have come to sync it
	return nil
}

// committed finds the end of the last whole batch in the first size bytes. It looks backward from the end, so a torn
// tail costs its own length and damage further ahead costs nothing here.
func committed(r io.ReaderAt, size int64) (end int64, last trailer, err error) {
	const step = 1 << 20
	buf := make([]byte, 0, step+trailerSize)
	hi := size

	// The common case: the file ends with a trailer.
	if last, ok, err := trailerAt(r, size-trailerSize); err != nil || ok {
		return size, last, err
	}

	for hi > 0 {
		lo := max(0, hi-step)
		n := min(size, hi+trailerSize) - lo
		buf = buf[:n]
		if _, err := r.ReadAt(buf, lo); err != nil && err != io.EOF {
			return 0, trailer{}, err
		}

		for b := buf; ; {
			i := lastTrailerMark(b)
			if i < 0 {
				break
			}

			t, ok, err := trailerAt(r, lo+int64(i))
			if err != nil {
				return 0, trailer{}, err
			}
			if ok && lo+int64(i)+trailerSize <= size {
				return lo + int64(i) + trailerSize, t, nil
			}

			b = b[:i]
		}

		hi = lo
	}

	return 0, trailer{}, nil
}

// firstLoss looks through the batches that a power cut may have taken out of the middle and returns the end before the
// first such hole: what follows it is copied again.
func firstLoss(r io.ReaderAt, end int64, last trailer) (int64, trailer, error) {
	list, err := batches(r, end, min(last.Synced, end))
	if err != nil {
		return 0, trailer{}, err
	}

	pos := min(last.Synced, end)
	for _, b := range list {
		_, ok, err := trailerAt(r, b.at+b.Frames)
		if err != nil {
			return 0, trailer{}, err
		}
		if !ok || b.at > pos {
			return committed(r, pos)
		}

		pos = b.end()
	}

	return end, last, nil
}

// trailerAt reads the trailer at pos and checks the frames before it.
func trailerAt(r io.ReaderAt, pos int64) (trailer, bool, error) {
	t, ok, err := peekTrailer(r, pos)
	if !ok || err != nil {
		return t, false, err
	}

	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(r, pos-t.Frames, t.Frames)); err != nil {
		return t, false, err
	}

	return t, sum.Sum32() == t.Sum, nil
}

func peekTrailer(r io.ReaderAt, pos int64) (t trailer, ok bool, err error) {
	if pos < 0 {
		return t, false, nil
	}

	var b [trailerSize]byte
	if n, err := r.ReadAt(b[:], pos); n < len(b) {
		if err == io.EOF {
			err = nil
		}
		return t, false, err
	}

	t, ok = decodeTrailer(b[:])
	return t, ok && t.Frames <= pos, nil
}

// batch is a committed batch in a file: its frames are the bytes [at, at+Frames).
type batch struct {
	trailer
	at int64
}

// end is the place behind the batch's trailer.
func (b batch) end() int64 { return b.at + b.Frames + trailerSize }

// batches lists the batches that end at or before end, in file order, and behind the byte after. Where the chain of
// trailers is broken by damage it goes on at the next whole batch before: two neighbours then do not touch.
func batches(r io.ReaderAt, end, after int64) ([]batch, error) {
	var out []batch
	for end > after {
		t, ok, err := peekTrailer(r, end-trailerSize)
		if err != nil {
			return nil, err
		}

		if !ok {
			if end, _, err = committed(r, end); err != nil {
				return nil, err
			}
			continue
		}

		end -= trailerSize + t.Frames
		out = append(out, batch{t, end})
	}

	slices.Reverse(out)
	return out, nil
}

// append commits one batch. The caller sets what the trailer says of the source; lengths and sums are set here. After
// an error the file's end is unknown: the log closes it, and must be opened again.
func (l *log) append(frames []byte, t trailer) error {
	if l.broken {
		return fmt.Errorf("append to mirror %s: %w", l.path, errBroken)
	}

	if l.f == nil {
		if err := l.create(); err != nil {
			return err
		}
	}

	t.Frames = int64(len(frames))
	t.Sum = crc32.Checksum(frames, castagnoli)
	t.Begin = t.From
	if l.size > 0 {
		t.Begin = l.last.Begin
	}

	t.Synced = l.safe
	t.TotalRaw = l.last.TotalRaw + t.Raw
	t.TotalLines = l.last.TotalLines + t.Lines
	data := t.appendTo(frames)
	n, err := l.f.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return l.fail(fmt.Errorf("append to mirror %s: %w", l.path, err))
	}

	l.size += int64(n)
	l.last = t
	l.dirty = true
	return nil
}

func (l *log) create() error {
	if err := vfs.MakeDir(l.fsys, filepath.Dir(l.path)); err != nil {
		return fmt.Errorf("create mirror %s: %w", l.path, err)
	}

	f, err := l.fsys.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, vfs.FileMode)
	if err != nil {
		return fmt.Errorf("create mirror %s: %w", l.path, err)
	}

	l.f, l.size, l.safe, l.last, l.named = f, 0, 0, trailer{}, true
	return nil
}

// fail closes the file behind an error of writing or syncing.
func (l *log) fail(err error) error {
	if l.f != nil {
		err = errors.Join(err, l.f.Close())
	}
	l.f, l.broken = nil, true
	return err
}

// sync puts the file, and its name if that is new, on stable storage.
func (l *log) sync() error {
	if l.f != nil && l.dirty {
		if err := l.f.Sync(); err != nil {
			return l.fail(fmt.Errorf("sync mirror %s: %w", l.path, err))
		}
		l.dirty, l.safe = false, l.size
	}

	if l.named {
		if err := l.fsys.SyncDir(filepath.Dir(l.path)); err != nil {
			return fmt.Errorf("sync folder of mirror %s: %w", l.path, err)
		}
		l.named = false
	}

	return nil
}

func (l *log) close() error {
	if l == nil || l.f == nil {
		return nil
	}
	f := l.f
	l.f, l.broken = nil, true
	return f.Close()
}

// replace makes a finished log take the place of the file at path, durably, and closes it.
func (l *log) replace(path string) error {
	if err := l.sync(); err != nil {
		return err
	}
	if err := l.close(); err != nil {
		return fmt.Errorf("close mirror %s: %w", l.path, err)
	}
	if err := l.fsys.Rename(l.path, path); err != nil {
		return fmt.Errorf("replace mirror %s: %w", path, err)
	}
	if err := l.fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("replace mirror %s: sync its folder: %w", path, err)
	}

	return nil
}

// copyBatch appends a batch of another file as it is. Only the totals change.
func (l *log) copyBatch(r io.ReaderAt, b batch) error {
	frames := make([]byte, b.Frames, b.Frames+trailerSize)
	if _, err := io.ReadFull(io.NewSectionReader(r, b.at, b.Frames), frames); err != nil {
		return fmt.Errorf("copy batch at %d of mirror: %w", b.at, err)
	}
	if crc32.Checksum(frames, castagnoli) != b.Sum {
		return fmt.Errorf("copy batch at %d of mirror: %w", b.at, ErrDamaged)
	}

	return l.append(frames, b.trailer)
}
