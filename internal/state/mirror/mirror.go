// Package mirror keeps belay's own copy of an agent's transcript: the lines of a line file, with secrets removed, in
// zstd frames that zstdcat reads. When the agent loses, shortens or rewrites its file, the copy stays.
//
// It promises: the source is opened for reading only; only whole lines are copied, in file order, each once; what it
// wrote is readable after a crash at any moment (a torn tail is cut when it is opened again); no secret that package
// redact knows is in any byte of it; an older copy is set aside as a generation when the source's past changed, never
// overwritten.
//
// It does not promise that the newest lines are on stable storage (call Flush), nor to notice a change in the middle of
// a source whose head, length and last mirrored bytes stayed as they were.
//
// With a Key the mirror is exact: every byte, secrets too, and never unencrypted on disk. Each batch is then an age
// file (X25519: 200 bytes a batch, where the post-quantum form would take 2 KB of each) around zstd frames, in another
// file than the one without secrets. What was encrypted with a key that is lost stays as an older copy until the key is
// back.
//
// A Mirror is used by one goroutine.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"belay/internal/vfs"
)

// ErrDamaged says that bytes of a mirror file are not what was written. What could be read was given.
var ErrDamaged = errors.New("mirror damaged")

var errBroken = errors.New("an earlier write failed")

// Names in a session's folder.
const (
	FileName  = "transcript.jsonl.zst" // the mirror without secrets
	ExactName = "transcript.jsonl.age" // the mirror with them, encrypted

	olderName     = "transcript.older.jsonl" // the part of a big source before the newest, until both are joined
	generationFmt = "transcript.g%03d.jsonl"
)

// ext ends the names of a kind of mirror: both may lie in one folder when the setting was changed.
func (k *Key) ext() string {
	if k != nil {
		return filepath.Ext(ExactName)
	}
	return filepath.Ext(FileName)
}

// file is a mirror's place in its folder.
func (k *Key) file(dir string) string { return filepath.Join(dir, "transcript.jsonl"+k.ext()) }

func (m *Mirror) olderFile() string { return filepath.Join(m.dir, olderName+m.opt.Key.ext()) }

// Options of a mirror. Zero values mean the defaults.
type Options struct {
	Codec           *Codec // shared by many mirrors; own one when nil
	Key             *Key   // keeps every byte of the source, encrypted with it; nil keeps the lines without secrets
	FirstSight      int64  // of a bigger source the newest so many bytes come first: 4 MB
	Budget          int64  // source bytes of one Sync call, one whole line at least: 8 MB
	MaxLine         int64  // a longer line is replaced by a note: 128 MB
	KeepGenerations int    // the newest so many older copies are kept, and the richest: 3
	GenerationBytes int64  // older copies together, the richest aside: 1 GB
}

func (o Options) withDefaults() (Options, error) {
	for _, d := range []struct {
		field *int64
		value int64
	}{{&o.FirstSight, 4 << 20}, {&o.Budget, 8 << 20}, {&o.MaxLine, 128 << 20}, {&o.GenerationBytes, 1 << 30}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}

	if o.KeepGenerations <= 0 {
		o.KeepGenerations = 3
	}

	if o.Codec == nil {
		c, err := NewCodec()
		if err != nil {
			return o, err
		}
		o.Codec = c
	}

	return o, nil
}

// State says what a mirror knows of its source.
type State string

const (
	Following State = ""         // the source is there and continues what was mirrored
	Gone      State = "gone"     // there is no file at the path
	Archived  State = "archived" // the agent has compressed the file: the path with .zst is there instead
	Replaced  State = "replaced" // another, nearly empty file is there; nothing of it is copied until it grows
)

// Progress is what one Sync did and what is left.
type Progress struct {
	Copied      int64 // source bytes copied by this call
	Behind      int64 // source bytes that are not mirrored yet, an unfinished last line included
	Generations int   // older copies that are kept
	Done        bool  // no whole line is left to copy
}

// Status of a mirror, as of the last Sync.
type Status struct {
	State         State
	SourceBytes   int64 // size of the source when last seen
	MirroredBytes int64 // of them in the mirror
	FileBytes     int64 // of the mirror, compressed
	Lines         int64 // in the mirror
	Generations   int   // older copies that are kept
	Missing       int64 // bytes before the mirror's beginning that are still being filled in
	Torn          int64 // bytes of torn tails that were cut
	Oversized     int   // lines left out because of their length
}

// Mirror is the copy of one transcript.
type Mirror struct {
	fsys vfs.FS
	dir  string
	opt  Options

	cur   *log
	older *log  // nil while nothing is filled in
	join  int64 // bytes of cur that older holds already

	src  *source
	path string // of src
	seen identity
	poor identity // a nearly empty replacement when it was first seen

	state       State
	generations int
	torn        int64
	oversized   int
	idle        bool // nothing was left to do after the last call
}

// Open opens the mirror in a session's folder, which need not be there yet.
func Open(fsys vfs.FS, dir string, opt Options) (*Mirror, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open mirror %s: %w", dir, err)
	}

	m := &Mirror{fsys: fsys, dir: dir, opt: opt}
	if err := m.reopen(); err != nil {
		return nil, errors.Join(err, m.Close())
	}

	return m, nil
}

// reopen opens the files of the mirror, again after an error.
func (m *Mirror) reopen() error {
	if err := errors.Join(m.cur.close(), m.older.close()); err != nil {
		return fmt.Errorf("close mirror %s: %w", m.dir, err)
	}

	m.idle, m.cur, m.older, m.join = false, nil, nil, 0
	gens, err := generations(m.fsys, m.dir, m.opt.Key.ext())
	if err != nil {
		return err
	}

	m.generations = len(gens)
	if m.cur, err = openLog(m.fsys, m.opt.Key.file(m.dir)); err != nil {
		return err
	}

	m.torn += m.cur.cut
	if err := m.openOlder(); err != nil {
		return err
	}

	return m.keepForeign()
}

// Sync copies whole new lines of the source at path, at most Options.Budget bytes. Call it again while Done is false.
// It costs one stat when nothing changed. A source that is not there is no error.
func (m *Mirror) Sync(ctx context.Context, path string) (Progress, error) {
	if m.cur == nil || m.cur.broken || m.older != nil && m.older.broken {
		if err := m.reopen(); err != nil {
			return m.progress(0), err
		}
	}

	copied, err := m.sync(ctx, path)
	if err != nil {
		m.idle = false
	}

	return m.progress(copied), err
}

func (m *Mirror) sync(ctx context.Context, path string) (int64, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m.vanished(ctx, path)
	}
	if err != nil {
		return 0, fmt.Errorf("mirror transcript: %w", err)
	}

	now := identityOf(st)
	if m.idle && m.path == path && now.sameFile(m.seen) && now.size == m.seen.size && now.mtime.Equal(m.seen.mtime) {
		return 0, nil
	}

	copied := int64(0)
	if m.src != nil && (m.path != path || !m.src.id.sameFile(now)) {
		// Another file is at the path. The old one may have grown until the moment it was moved away.
		n, done, err := m.drain(ctx)
		if copied = n; err != nil || !done {
			return copied, err
		}
	}

	if m.src == nil {
		if m.src, err = openSource(path); err != nil {
			return copied, fmt.Errorf("mirror transcript: %w", err)
		}
		m.path = path
	}

	if err := m.src.refresh(); err != nil {
		return copied, err
	}

	follow, err := m.follow(ctx)
	if err != nil || !follow {
		m.seen, m.idle = m.src.id, err == nil
		return copied, err
	}

	n, done, err := m.advance(ctx, m.opt.Budget-copied)
	m.seen, m.idle = m.src.id, done && err == nil
	return copied + n, err
}

// follow decides whether the lines of the source continue the mirror. A changed past sets the mirror aside first.
func (m *Mirror) follow(ctx context.Context) (bool, error) {
	if m.cur.size == 0 {
		m.state = Following
		return true, nil
	}

	ok, err := m.src.continues(m.cur.last)
	if err != nil {
		return false, err
	}
	if ok {
		m.state, m.poor = Following, identity{}
		return true, nil
	}
	if !m.isRich() {
		m.state = Replaced
		return false, nil
	}
	if err := m.setAside(ctx); err != nil {
		return false, err
	}

	m.src.scanned = 0
	m.state, m.poor = Following, identity{}
	return true, nil
}

// enoughAnew is the size from which a replaced source is a conversation of its own.
const enoughAnew = 64 << 10

// isRich says whether a replaced source deserves a new mirror: it has grown since it was seen first, or
// is not much smaller than what is mirrored. A nearly empty file is often left by an agent that goes on elsewhere, or
// has just lost its past.
func (m *Mirror) isRich() bool {
	id := m.src.id
	if !m.poor.sameFile(id) || m.state != Replaced || id.size < m.poor.size {
		m.poor = id
	}
	return id.size > m.poor.size || id.size >= enoughAnew || id.size > 0 && id.size >= m.cur.last.To/2
}

// vanished handles a source that is not at its path: what is left to read of it is read, then it is let go.
func (m *Mirror) vanished(ctx context.Context, path string) (int64, error) {
	copied := int64(0)
	if m.src != nil {
		n, done, err := m.drain(ctx)
		if copied = n; err != nil || !done {
			return copied, err
		}
	}

	m.state = Gone
	if _, err := os.Stat(path + ".zst"); err == nil {
		m.state = Archived
	}

	m.seen, m.idle = identity{}, true
	return copied, nil
}

// drain reads the open source to its end and closes it.
func (m *Mirror) drain(ctx context.Context) (copied int64, done bool, err error) {
	if err := m.src.refresh(); err != nil {
		return 0, false, err
	}

	follow, err := m.follow(ctx)
	if err != nil {
		return 0, false, err
	}

	if follow {
		if copied, done, err = m.advance(ctx, m.opt.Budget); err != nil || !done {
			return copied, false, err
		}
	}

	m.src.close()
	m.src = nil
	return copied, true, nil
}

// advance copies new lines first, then fills in the older part.
func (m *Mirror) advance(ctx context.Context, budget int64) (copied int64, done bool, err error) {
	start := int64(0)
	if m.cur.size > 0 {
		start = m.cur.last.To
	} else if start, err = m.firstLine(); err != nil {
		return 0, false, err
	}

	copied, done, err = m.copyLines(ctx, m.cur, m.src, start, m.src.id.size, budget)
	if err != nil || !done || m.cur.size == 0 || m.cur.last.Begin == 0 {
		return copied, done, err
	}

	n, done, err := m.fill(ctx, budget-copied)
	return copied + n, done, err
}

// firstLine is where a source that was never seen is begun.
func (m *Mirror) firstLine() (int64, error) {
	size := m.src.id.size
	if size <= m.opt.FirstSight {
		return 0, nil
	}

	at, err := m.src.lineEnd(size-m.opt.FirstSight, size)
	if err != nil || at < 0 || at >= size {
		return 0, err // one long line: from the beginning
	}

	return at, nil
}

// copyLines appends the whole lines of [from, hi) to a log, batch by batch, until the budget is used.
func (m *Mirror) copyLines(
	ctx context.Context, l *log, src *source, from, hi, budget int64,
) (copied int64, done bool, err error) {
	var raw, out, frames []byte
	for copied < budget {
		if err := ctx.Err(); err != nil {
			return copied, false, err
		}

		lines, over, err := src.wholeLines(raw[:0], from, hi, frameBytes, m.opt.MaxLine)
		if err != nil {
			return copied, false, err
		}

		n := int64(len(lines)) + over
		if n == 0 {
			return copied, true, nil
		}
		if cap(lines) > cap(raw) && cap(lines) <= 4*frameBytes {
			raw = lines
		}

		t := trailer{From: from, To: from + n, Dev: src.id.dev, Ino: src.id.ino}
		if out, t.Lines = m.kept(out[:0], lines); over > 0 {
			out = fmt.Appendf(out, "{\"belay\":\"a line of %d bytes was left out of the mirror\"}\n", over)
			t.Lines = 1
			m.oversized++
		}

		t.Raw = int64(len(out))
		if t.Head, err = src.fingerprint(0, min(headBytes, t.To)); err != nil {
			return copied, false, err
		}
		if t.Tail, err = src.fingerprint(max(0, t.To-tailBytes), min(tailBytes, t.To)); err != nil {
			return copied, false, err
		}
		if frames, err = m.opt.pack(frames[:0], out); err != nil {
			return copied, false, err
		}
		if err := l.append(frames, t); err != nil {
			return copied, false, err
		}

		from += n
		copied += n
		if cap(out) > 4*frameBytes {
			out, frames = nil, nil
		}
	}

	return copied, from >= hi, nil
}

// Flush puts what was mirrored on stable storage.
func (m *Mirror) Flush() error {
	if m.cur == nil {
		return fmt.Errorf("flush mirror %s: %w", m.dir, errBroken)
	}

	err := m.cur.sync()
	if m.older != nil {
		err = errors.Join(err, m.older.sync())
	}

	return err
}

func (m *Mirror) progress(copied int64) Progress {
	s := m.Status()
	p := Progress{Copied: copied, Generations: s.Generations, Done: m.idle}
	if s.State == Following {
		p.Behind = max(0, s.SourceBytes-s.MirroredBytes)
	}
	return p
}

// Status tells how the mirror stands, without looking at the source.
func (m *Mirror) Status() Status {
	s := Status{
		State: m.state, SourceBytes: m.seen.size, Generations: m.generations, Torn: m.torn, Oversized: m.oversized,
	}
	if m.cur != nil && m.cur.size > 0 {
		s.FileBytes, s.Lines = m.cur.size, m.cur.last.TotalLines
		s.Missing = m.cur.last.Begin
		s.MirroredBytes = m.cur.last.To - m.cur.last.Begin
	}

	if m.older != nil && m.older.size > 0 && s.Missing > 0 {
		s.FileBytes += m.older.size
		filled := min(m.older.last.To, s.Missing)
		s.Missing -= filled
		s.MirroredBytes += filled
	}

	return s
}

// Close lets the files go. It does not flush.
func (m *Mirror) Close() error {
	m.src.close()
	m.src = nil
	err := errors.Join(m.cur.close(), m.older.close())
	m.cur, m.older = nil, nil
	if err != nil {
		return fmt.Errorf("close mirror %s: %w", m.dir, err)
	}

	return nil
}
