package sqlite

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const writerVar = "SQLITERO_WRITER" // the path of the database: this process is its owner

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVar); path != "" {
		if err := write(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// write is the owner: for each line of stdin it writes rows, without ever waiting for a lock.
func write(path string) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(0)")
	if err != nil {
		return err
	}

	db.SetMaxOpenConns(1)
	if _, err := db.Exec("create table if not exists rows (n integer primary key, text text)"); err != nil {
		return err
	}

	n := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		rows := 1
		if in.Text() == "many" {
			rows = 300
		}

		for range rows {
			if _, err := db.Exec("insert into rows values (?, ?)", n, strings.Repeat("x", 3000)); err != nil {
				return err
			}
			n++
		}

		fmt.Println("ok", n)
	}

	return db.Close()
}

type owner struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   *os.File
	out  *bufio.Reader
	path string
}

func startOwner(t *testing.T, path string) *owner {
	t.Helper()
	o := &owner{t: t, cmd: exec.Command(os.Args[0]), path: path}
	o.cmd.Env = append(os.Environ(), writerVar+"="+path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	o.cmd.Stdin, o.in = r, w
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	o.out = bufio.NewReader(out)
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	r.Close()

	// it has ended already, or is ended here
	t.Cleanup(func() { o.in.Close(); _ = o.cmd.Process.Kill(); _ = o.cmd.Wait() })
	return o
}

func (o *owner) tell(what string) { fmt.Fprintln(o.in, what) }

func (o *owner) wait() {
	o.t.Helper()
	if line, err := o.out.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ok") {
		o.t.Fatalf("the owner says %q, %v, want ok", line, err)
	}
}

// files are what lies in the database's folder, by name, content and times.
func files(t *testing.T, path string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}

	all := map[string]string{}
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}

		data, err := os.ReadFile(filepath.Join(filepath.Dir(path), e.Name()))
		if err != nil {
			t.Fatal(err)
		}

		all[e.Name()] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.ModTime(), info.Mode())
	}

	return all
}

// count reads twice and says how many rows there are; the second View sees no less.
func count(t *testing.T, path string) int {
	t.Helper()
	d := Open(path)
	var n [2]int
	for i := range n {
		if err := d.View(context.Background(), func(tx *Tx) error {
			return tx.QueryRow("select count(*) from rows").Scan(&n[i])
		}); err != nil {
			t.Fatal(err)
		}
	}

	copied := d.copy
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(copied); copied != "" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the private copy %s is still there: %v", copied, err)
	}
	if n[1] < n[0] {
		t.Errorf("got %d rows, then %d", n[0], n[1])
	}

	return n[1]
}

func TestNothingChangesByBeingRead(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, o *owner)
	}{
		{"a live owner", func(*testing.T, *owner) {}},
		{"an owner killed -9", func(t *testing.T, o *owner) {
			_ = o.cmd.Process.Kill()
			_ = o.cmd.Wait() // it was killed
		}},
		{"killed, and the index of the log is gone", func(t *testing.T, o *owner) {
			_ = o.cmd.Process.Kill()
			_ = o.cmd.Wait()
			if err := os.Remove(o.path + "-shm"); err != nil {
				t.Fatal(err)
			}
		}},
		{"closed in good order", func(t *testing.T, o *owner) {
			o.in.Close()
			if err := o.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(o.path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("the log is still there: %v", err)
			}
		}},
		{"a folder that nobody may write", func(t *testing.T, o *owner) {
			if err := os.Chmod(filepath.Dir(o.path), 0o500); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "odd %3f?#name.sqlite")
			o := startOwner(t, strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path))
			o.path = path
			o.tell("many")
			o.wait()
			c.end(t, o)
			before := files(t, path)
			if n := count(t, path); n != 300 {
				t.Errorf("got %d rows, want 300", n)
			}
			if after := files(t, path); !maps.Equal(after, before) {
				t.Errorf("files after: got %v, want %v", after, before)
			}
			if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOwnerIsNeverHeldUp: the owner takes no busy answer, and what a View sees is always one state of it.
func TestOwnerIsNeverHeldUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	o := startOwner(t, path)
	o.tell("one")
	o.wait()
	const rounds = 6 // of 300 rows of 3 KB each: the log is checkpointed many times
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			o.tell("many")
			o.wait()
		}
	}()

	views, last := 0, 0
	for running := true; running; views++ {
		select {
		case <-done:
			running = false
		default:
		}

		d := Open(path)
		var n, most int
		err := d.View(t.Context(), func(tx *Tx) error {
			if err := tx.QueryRow("select count(*) from rows").Scan(&n); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond) // the owner goes on writing behind this state
			return tx.QueryRow("select max(n) from rows").Scan(&most)
		})

		if errors.Is(err, ErrBusy) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if most != n-1 || n < last {
			t.Fatalf("got %d rows up to %d after %d, want one state", n, most, last)
		}

		last = n
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}

	if last != rounds*300+1 {
		t.Errorf("got %d rows at the end, want %d", last, rounds*300+1)
	}

	t.Logf("%d views", views)
}

func TestLocksAreGoneAfterAView(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	o := startOwner(t, path)
	o.tell("one")
	o.wait()
	d := Open(path)
	defer d.Close()
	if err := d.View(
		t.Context(), func(tx *Tx) error { return tx.QueryRow("select 1 from rows").Scan(new(int)) },
	); err != nil {
		t.Fatal(err)
	}

	o.in.Close() // the last one who closes it removes the log: it would not, were another one there
	if err := o.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the owner left its log behind: %v", err)
	}
}

func TestNotThere(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}

	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}

	fn := func(tx *Tx) error { return tx.QueryRow("select count(*) from sqlite_master").Scan(new(int)) }
	for _, c := range []struct {
		path string
		want error
	}{{filepath.Join(dir, "absent"), fs.ErrNotExist}, {fifo, ErrNotRegular}, {dir, ErrNotRegular}} {
		if err := Open(c.path).View(t.Context(), fn); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.path, err, c.want)
		}
	}

	if err := Open(junk).View(t.Context(), fn); err == nil {
		t.Error("a file that is no database: got no error")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("got %v, %v in the folder, want the two files", list, err)
	}
}

// TestJournalOfTheOldKind: a writer without a log that died in a transaction leaves a journal, which waits to be rolled
// back.
func TestJournalOfTheOldKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sqlite")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}

	db.SetMaxOpenConns(1)
	for _, q := range []string{
		"create table rows (n)", "insert into rows values (1)", "pragma cache_size=1", "begin immediate",
		"insert into rows select randomblob(3000) from (select 1 union select 2 union select 3 union select 4 union select 5 union select 6 union select 7)",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}

	dead := filepath.Join(t.TempDir(), "db.sqlite") // its files as a kill would leave them
	for _, suffix := range []string{"", "-journal"} {
		if err := copyFile(path+suffix, dead+suffix); err != nil {
			t.Fatal(err)
		}
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	before := files(t, dead)
	if n := count(t, dead); n != 1 {
		t.Errorf("got %d rows, want the 1 that was committed", n)
	}
	if after := files(t, dead); !maps.Equal(after, before) {
		t.Errorf("files after: got %v, want %v", after, before)
	}
}

func BenchmarkView(b *testing.B) {
	path := filepath.Join(b.TempDir(), "db.sqlite")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)")
	if err != nil {
		b.Fatal(err)
	}

	defer db.Close()
	if _, err := db.Exec("create table rows (n)"); err != nil {
		b.Fatal(err)
	}

	for b.Loop() {
		if err := Open(
			path,
		).View(
			b.Context(), func(tx *Tx) error { return tx.QueryRow("select count(*) from rows").Scan(new(int)) },
		); err != nil {
			b.Fatal(err)
		}
	}
}
