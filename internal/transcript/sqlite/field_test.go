package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// G13: a reader that stays for 100,000 writes: the owner never finds the database locked, although it waits for nobody,
// and its log stays as small as it would without a reader.
func TestG13LogIsBoundedUnderASteadyReader(t *testing.T) {
	const writes, each = 100_000, 500 // rows in one transaction
	path := filepath.Join(t.TempDir(), "db.sqlite")
	owner, err := sql.Open(
		"sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(0)&_pragma=synchronous(off)",
	)

	if err != nil {
		t.Fatal(err)
	}

	defer owner.Close() // what it wrote is not looked at again
	owner.SetMaxOpenConns(1)
	if _, err := owner.Exec("create table rows (n integer primary key, text text)"); err != nil {
		t.Fatal(err)
	}

	reader := Open(path) // held open from the first write to the last
	rows, views := 0, 0
	for n := 0; n < writes; n += each {
		text := strings.Repeat("x", 100)
		tx, err := owner.Begin()
		if err != nil {
			t.Fatalf("begin after %d writes: %v", n, err)
		}

		for i := range each {
			if _, err := tx.Exec("insert into rows values (?, ?)", n+i, text); err != nil {
				t.Fatalf("write %d: %v", n+i, err)
			}
		}

		if err := tx.Commit(); err != nil {
			t.Fatalf("commit after %d writes: %v", n, err)
		}

		err = reader.View(
			t.Context(), func(tx *Tx) error { return tx.QueryRow("select count(*) from rows").Scan(&rows) },
		)

		if err != nil && !errors.Is(err, ErrBusy) {
			t.Fatal(err)
		}

		views++
	}

	if rows != writes {
		t.Errorf("the reader saw %d rows, want %d", rows, writes)
	}

	whole, log := sizeOf(t, path), sizeOf(t, path+"-wal")
	t.Logf("%d views; database of %d bytes, log of %d", views, whole, log)
	if log > 6<<20 || whole < 2*log {
		t.Errorf("a log of %d bytes beside a database of %d, want 6 MB at most: SQLite folds it in at 4", log, whole)
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}

	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) > 3 {
		t.Errorf("beside the database lie %v, %v, want its own two files", left, err)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(fmt.Errorf("the owner's file: %w", err))
	}
	return info.Size()
}
