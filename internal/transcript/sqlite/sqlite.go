// Package sqlite reads a SQLite database that belongs to another program, which may be writing to it, may have been
// killed while it wrote, or may have ended long ago.
//
// What it promises:
//   - Nothing of the owner's changes: not the database, not its -wal and -shm, and no file appears or disappears beside
//     them. No checkpoint is made, no journal rolled back, no index of the log rebuilt on disk.
//   - The only lock ever taken is the shared one of a reader, and only inside View, which is meant to last under Hold.
//   - View's function sees one consistent state. If there is none, View returns an error; nothing is made up.
//
// How: a database with a live log is opened with mode=ro and readonly_shm=1. One that was closed in good order (no log)
// is read without any lock, and what was read counts only if no file changed meanwhile. What cannot be read in place (a
// log whose index is gone, a journal that waits to be rolled back) is copied, up to CopyMax, into a private folder, and
// goes with Close.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"modernc.org/sqlite" // also registers the driver
)

// Header is how every database begins.
const Header = "SQLite format 3\x00"

// Errors of View.
var (
	// ErrTooLarge: the database can only be read from a copy, and is larger than CopyMax.
	ErrTooLarge = errors.New("database is too large to be copied")
	// ErrBusy: it changed in a way that left no consistent state; the next look may find one.
	ErrBusy = errors.New("database changed while it was read")
	// ErrNotRegular: the path is no regular file.
	ErrNotRegular = errors.New("not a regular file")
)

const (
	// Hold is how long the function of a View may keep the shared lock: it looks at Over and stops.
	Hold = 40 * time.Millisecond
	// CopyMax bounds a private copy, the log included.
	CopyMax = 256 << 20

	tries = 3
)

// DB is one database of another program's. It is used by one goroutine.
type DB struct {
	path string
	copy string // folder of the private copy; empty while there is none
	own  *sql.DB
}

// Tx is what a View may ask.
type Tx struct {
	*sql.Tx
	until time.Time
}

// Over says that the time of the View is used up: the function returns with what it has.
func (t *Tx) Over() bool { return time.Now().After(t.until) }

// Open prepares to read path, which need not be there.
func Open(path string) *DB { return &DB{path: path} }

// Close removes the private copy, if one was made.
func (d *DB) Close() error {
	var err error
	if d.own != nil {
		err = d.own.Close()
		d.own = nil
	}
	if d.copy != "" {
		err = errors.Join(err, os.RemoveAll(d.copy))
		d.copy = ""
	}

	return err
}

// View calls fn with a read transaction; the connection is open for the time of this call alone. A database that is not
// there is fs.ErrNotExist. Fn may be called again from the beginning when what it saw turned out not to count.
func (d *DB) View(ctx context.Context, fn func(*Tx) error) error {
	err := d.view(ctx, fn)
	if err != nil {
		return fmt.Errorf("read database %s: %w", d.path, err)
	}
	return nil
}

func (d *DB) view(ctx context.Context, fn func(*Tx) error) error {
	if d.own != nil {
		return transact(ctx, d.own, fn)
	}

	var err error
	for range tries {
		var before sight
		if before, err = look(d.path); err != nil {
			return err
		}

		if before.live() || before.journal.size > 0 && !before.wal.there {
			err = d.inPlace(ctx, "mode=ro&readonly_shm=1", fn)
			if !unreadable(err) {
				return err
			}
		} else if before.closed() {
			err = d.inPlace(ctx, "mode=ro&immutable=1", fn)
			if after, lerr := look(d.path); lerr == nil && after == before {
				return err
			}
			err = ErrBusy // somebody opened it meanwhile
			continue
		}

		if err = d.makeCopy(ctx); err == nil {
			return transact(ctx, d.own, fn)
		}
		if !errors.Is(err, ErrBusy) {
			return err
		}
	}

	return err
}

// inPlace reads the owner's own files.
func (d *DB) inPlace(ctx context.Context, mode string, fn func(*Tx) error) error {
	db, err := open(d.path, mode)
	if err != nil {
		return err
	}
	return errors.Join(transact(ctx, db, fn), db.Close())
}

func open(path, options string) (*sql.DB, error) {
	name := (&url.URL{Path: path}).EscapedPath()
	db, err := sql.Open("sqlite", "file:"+name+"?"+options)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func transact(ctx context.Context, db *sql.DB, fn func(*Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}

	err = fn(&Tx{tx, time.Now().Add(Hold)})
	if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
		err = errors.Join(err, rerr) // done: the context ended it
	}

	return err
}

// unreadable says that SQLite would have to write before it could read: the index of the log is gone, or was left by a
// writer that died in the middle of things.
func unreadable(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	const cantOpen, readOnly = 14, 8 // SQLITE_CANTOPEN, SQLITE_READONLY, and what is more precise than these
	return e.Code()&0xff == cantOpen || e.Code()&0xff == readOnly
}

// sight is what the files of a database look like from outside.
type sight struct{ db, wal, shm, journal file }

type file struct {
	there bool
	size  int64
	mtime time.Time
	inode uint64
}

// live says that the database has a log with its index.
func (s sight) live() bool { return s.shm.there && s.wal.there }

// closed says that nobody has it open, and that all there is to know is in the one file. An empty log is one that a
// reader left; an empty journal likewise.
func (s sight) closed() bool { return s.wal.size == 0 && !s.shm.there && s.journal.size == 0 }

func look(path string) (sight, error) {
	var s sight
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() {
		return s, ErrNotRegular
	}

	s.db = describe(info)
	for suffix, f := range map[string]*file{"-wal": &s.wal, "-shm": &s.shm, "-journal": &s.journal} {
		info, err := os.Stat(path + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}

		*f = describe(info)
	}

	return s, nil
}

func describe(info fs.FileInfo) file {
	f := file{there: true, size: info.Size(), mtime: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		f.inode = uint64(sys.Ino)
	}
	return f
}

// makeCopy copies the database, its log and its journal. They count when none of them changed meanwhile: then no writer
// was there, or none wrote. (Closing a file drops every lock that this process has on it, another View's too: that one
// reads the same files, which could not be read in place either.)
func (d *DB) makeCopy(ctx context.Context) (err error) {
	before, err := look(d.path)
	if err != nil {
		return err
	}
	if before.db.size+before.wal.size+before.journal.size > CopyMax {
		return ErrTooLarge
	}
	if d.copy, err = os.MkdirTemp("", "belay-read-"); err != nil { // 0700
		return err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()

	to := filepath.Join(d.copy, "db")
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if err := copyFile(d.path+suffix, to+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}

	if after, err := look(d.path); err != nil || after != before {
		return errors.Join(ErrBusy, err)
	}

	d.own, err = open(to, "mode=rw")
	return err
}

func copyFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}

	defer in.Close() // read only
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	_, err = io.Copy(out, io.LimitReader(in, CopyMax))
	return errors.Join(err, out.Close())
}
