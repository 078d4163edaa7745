package index

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io/fs"
	"net/url"
	"os"
	"reflect"
	"slices"
	"syscall"
	"time"

	"modernc.org/sqlite" // also registers the driver

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs"
)

// Errors of the index; they stay inside the package.
var (
	// errBroken: what is in the index cannot be, or another version made it.
	errBroken = errors.New("index is broken")
	// errNone: there can be no index here now.
	errNone = errors.New("no index")
)

const (
	layout = 1 // grows when the tables or what thin leaves out change

	busy = 250 * time.Millisecond // how long a lock is waited for: reading the files is not much slower
	// maxLog is how many bytes of the log there may be before nothing more is written; SQLite folds it in at 4 MB.
	maxLog   = 6 << 20
	together = 1 << 20 // bytes of states that are written in one transaction
)

// besides are the files that SQLite keeps beside a database.
var besides = []string{"", "-wal", "-shm", "-journal"}

const schema = `
create table states (id integer primary key, name text not null unique, time integer not null, size integer not null,
  inode integer not null, words integer not null, state blob not null, sum integer not null);
create virtual table talk using fts5(` + columns + `, content='', contentless_delete=1);`

// columns of what is searched. The words themselves are not stored: they stand in the state files.
const columns = `title, task, said, decided, answered, tokenize="unicode61 remove_diacritics 2"`

// database is an open index. A nil one is empty and takes nothing.
type database struct {
	*sql.DB
	path string   // empty for one in memory
	lock *os.File // the state folder, see open
}

// with calls fn with the index of the folder. One that turns out to be broken is rebuilt, once.
func (x Index) with(ctx context.Context, v *view, fn func(*database) error) error {
	if len(v.files) == 0 {
		return errNone // and none is made
	}
	for again := true; ; again = false {
		db, err := x.open(ctx)
		if err == nil {
			err = errors.Join(fn(db), db.close())
		}
		if err == nil || !again || !broken(err) {
			return err
		}
		if err := x.remove(); err != nil {
			return err
		}
	}
}

// open opens the index, and makes it where none is. Whoever has it open shares a lock on the state folder itself, so
// that it is never removed under somebody: SQLite would then take another file's log for its own.
func (x Index) open(ctx context.Context) (_ *database, err error) {
	path := x.dir.Index()
	lock, err := x.lock(syscall.LOCK_SH)
	if err != nil {
		return nil, err
	}

	db := &database{path: path, lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.close())
		}
	}()

	for _, end := range besides {
		info, err := x.dir.FS.Lstat(path + end)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = vfs.Safe(path+end, info, false)
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().Perm() != vfs.FileMode {
			return nil, fmt.Errorf("%s has mode %v: %w", path+end, info.Mode(), errBroken)
		}
	}

	// SQLite would make it by the umask, and gives what lies beside it the same mode.
	f, err := x.dir.FS.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, vfs.FileMode)
	if err == nil {
		err = errors.Join(f.Chmod(vfs.FileMode), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}

	return db, db.begin(
		ctx,
		"file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&",
	)
}

// begin connects and makes the tables.
func (db *database) begin(ctx context.Context, name string) (err error) {
	name += fmt.Sprintf(
		"_pragma=busy_timeout(%d)&_pragma=journal_size_limit(%d)&_pragma=cell_size_check(on)&_txlock=immediate",
		busy.Milliseconds(), 1<<20,
	)

	if db.DB, err = sql.Open("sqlite", name); err != nil {
		return err
	}

	db.SetMaxOpenConns(1)
	var version int64
	if err := db.QueryRowContext(ctx, "pragma user_version").Scan(&version); err != nil {
		return err
	}
	if version == schemaVersion() {
		return nil
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	defer tx.Rollback() // after a commit it does nothing

	// Another process may have made them since.
	tables := 0
	if err := tx.QueryRowContext(ctx, "pragma user_version").Scan(&version); err != nil || version == schemaVersion() {
		return err
	}
	if err := tx.QueryRowContext(ctx, "select count(*) from sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	if version != 0 || tables > 0 {
		return fmt.Errorf("version %d, not %d: %w", version, schemaVersion(), errBroken)
	}
	if _, err := tx.ExecContext(ctx, schema+fmt.Sprintf("pragma user_version = %d", schemaVersion())); err != nil {
		return err
	}

	return tx.Commit()
}

// inMemory gives an index of nobody else's, which goes with close.
func inMemory(ctx context.Context) (*database, error) {
	db := &database{}
	if err := db.begin(ctx, "file::memory:?"); err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

func (db *database) close() error {
	var err error
	if db.DB != nil {
		err = db.DB.Close()
	}
	if db.lock != nil {
		err = errors.Join(err, db.lock.Close())
	}

	return err
}

// lock takes a lock on the state folder, which nothing else locks, without waiting.
func (x Index) lock(how int) (*os.File, error) {
	f, err := os.Open(x.dir.Root)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errNone, err, f.Close())
	}

	return f, nil
}

// remove takes a broken index away; it is nothing that a person could miss. While somebody has it open it stays.
func (x Index) remove() error {
	lock, err := x.lock(syscall.LOCK_EX)
	if err != nil {
		return err
	}

	defer lock.Close() // and with it goes the lock
	for _, end := range besides {
		if err := x.dir.FS.Remove(x.dir.Index() + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	return nil
}

// broken says whether an error is about the file and not about the moment.
func broken(err error) bool {
	const anError, corrupt, mismatch, notDatabase = 1, 11, 20, 26 // SQLITE_ERROR: a table or column is not there
	var e *sqlite.Error
	codes := []int{anError, corrupt, mismatch, notDatabase}
	return errors.Is(err, errBroken) || errors.As(err, &e) && slices.Contains(codes, e.Code()&0xff)
}

// schemaVersion stands for everything that a row's state depends on: a state that another version wrote may lack what
// this one knows.
func schemaVersion() int64 {
	h, ours := fnv.New32a(), reflect.TypeFor[checkpoint.State]()
	fmt.Fprint(h, layout, checkpoint.StateFormat)
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		fmt.Fprint(h, t.String())
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}

		if t.PkgPath() != ours.PkgPath() || t.Kind() != reflect.Struct || seen[t] {
			return
		}

		seen[t] = true
		for i := range t.NumField() {
			fmt.Fprint(h, t.Field(i).Name, t.Field(i).Tag)
			walk(t.Field(i).Type)
		}
	}

	walk(ours)
	return int64(h.Sum32()>>1) | 1 // user_version is 31 bits and a sign; 0 is a new file
}

// row is what the index holds of one state file.
type row struct {
	id    int64
	file  state.File // without its path
	words bool       // talk holds its words
	state *checkpoint.State
}

// of says whether a row was made from a file as it is now.
func (r row) of(f state.File) bool {
	f.Path = ""
	return r.file == f
}

func (db *database) rows(ctx context.Context) (map[string]row, error) {
	all := map[string]row{}
	if db == nil {
		return all, nil
	}

	rows, err := db.QueryContext(ctx, "select id, name, time, size, inode, words, state, sum from states")
	if err != nil {
		return nil, err
	}

	defer rows.Close() // its error comes with Err
	for rows.Next() {
		var r row
		var name string
		var inode, sum int64
		var state sql.RawBytes
		if err := rows.Scan(&r.id, &name, &r.file.Time, &r.file.Size, &inode, &r.words, &state, &sum); err != nil {
			return nil, fmt.Errorf("%w: %w", errBroken, err)
		}

		r.file.Inode = uint64(inode)
		if sum != r.sum(name, state) {
			return nil, fmt.Errorf("row of %s: %w", name, errBroken)
		}
		if r.state, err = checkpoint.DecodeState(state); err != nil {
			return nil, fmt.Errorf("row of %s: %w", name, errBroken)
		}

		all[name] = r
	}

	return all, rows.Err()
}

// sum is a row's checksum: SQLite does not notice when a page's content changes.
func (r row) sum(name string, state []byte) int64 {
	head := fmt.Sprintln(name, r.file.Time, r.file.Size, int64(r.file.Inode))
	table := crc32.MakeTable(crc32.Castagnoli)
	return int64(crc32.Update(crc32.Checksum([]byte(head), table), table, state))
}

// writer puts rows into the index. What it cannot write now is left out: the next question finds it changed again.
type writer struct {
	db   *database
	tx   *sql.Tx
	held int64 // bytes of the states in tx
	err  error // the first fault; nothing is written after it
}

func (db *database) writer() *writer {
	w := &writer{db: db}
	if db == nil {
		w.err = errNone
	}
	return w
}

// put keeps a state, and with words what was said in it; false when it did not.
func (w *writer) put(ctx context.Context, name string, f state.File, s *checkpoint.State, words bool) bool {
	return w.do(ctx, f.Size, func() error { return put(ctx, w.tx, name, f, s, words) })
}

func put(ctx context.Context, tx *sql.Tx, name string, f state.File, s *checkpoint.State, words bool) error {
	state, err := json.Marshal(thin(s))
	if err != nil {
		return fmt.Errorf("keep state of %s: %w", s.Key, err)
	}

	var id int64
	err = tx.QueryRowContext(
		ctx,
		`insert into states (name, time, size, inode, words, state, sum) values (?, ?, ?, ?, ?, ?, ?)
		on conflict (name) do update set time = excluded.time, size = excluded.size, inode = excluded.inode,
		words = excluded.words, state = excluded.state, sum = excluded.sum returning id`,
		name,
		f.Time,
		f.Size,
		int64(f.Inode),
		words,
		state,
		row{file: f}.sum(name, state),
	).Scan(
		&id,
	)

	if err != nil || !words {
		return err
	}

	t := talkOf(s)
	_, err = tx.ExecContext(
		ctx,
		"insert or replace into talk (rowid, title, task, said, decided, answered) values (?, ?, ?, ?, ?, ?)",
		id, t.title, t.task, t.said, t.decided, t.answered,
	)

	return err
}

// drop takes a row out.
func (w *writer) drop(ctx context.Context, id int64) {
	w.do(ctx, 0, func() error {
		_, err := w.tx.ExecContext(ctx, "delete from states where id = ?", id)
		if err == nil {
			_, err = w.tx.ExecContext(ctx, "delete from talk where rowid = ?", id)
		}
		return err
	})
}

// do writes one thing, in a transaction with others.
func (w *writer) do(ctx context.Context, bytes int64, write func() error) bool {
	if w.err == nil && w.held >= together {
		_ = w.commit() // err has it
	}

	if w.err == nil && w.tx == nil {
		if w.err = w.db.room(ctx); w.err == nil {
			w.tx, w.err = w.db.BeginTx(ctx, nil)
		}
	}

	if w.err == nil {
		w.held += bytes
		w.err = write()
	}

	return w.err == nil
}

// commit ends what was begun; the error is the first there was.
func (w *writer) commit() error {
	if w.err == nil && w.tx != nil {
		w.err = w.tx.Commit()
		w.tx, w.held = nil, 0
	}
	return w.err
}

// stop gives up what was not committed.
func (w *writer) stop() {
	if w.tx != nil {
		_ = w.tx.Rollback() // the connection is closed next
	}
}

// room refuses more writing while somebody's long question keeps the log from being folded in.
func (db *database) room(ctx context.Context) error {
	if db.path == "" || db.logSize() <= maxLog {
		return nil
	}
	if _, err := db.ExecContext(ctx, "pragma wal_checkpoint(truncate)"); err != nil {
		return err
	}
	if n := db.logSize(); n > maxLog {
		return fmt.Errorf("log of %d bytes: %w", n, errNone)
	}

	return nil
}

func (db *database) logSize() int64 {
	info, err := os.Stat(db.path + "-wal")
	if err != nil {
		return 0 // there is none yet
	}
	return info.Size()
}
