package index

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
)

// spoil does something to the index.
func (f folder) spoil(t testing.TB, r *rand.Rand) {
	t.Helper()
	names := slices.Sorted(maps.Keys(spoilers))
	if err := spoilers[names[r.IntN(len(names))]](f.Index()); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// spoilers ruin an index that belay may replace.
var spoilers = map[string]func(path string) error{
	"gone":       os.Remove,
	"empty":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"zeroed":     func(path string) error { return os.WriteFile(path, make([]byte, 9000), 0o600) },
	"garbage":    func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("no index ", 999)), 0o600) },
	"half":       func(path string) error { return resize(path, 2) },
	"a page":     func(path string) error { return resize(path, 9) },
	"open":       func(path string) error { return os.Chmod(path, 0o644) },
	"flipped":    flip,
	"another":    func(path string) error { return execute(path, "pragma user_version = 77") },
	"no tables":  func(path string) error { return execute(path, "drop table states") },
	"odd values": func(path string) error { return execute(path, "update states set time = 'x', state = 5") },
	"other rows": func(path string) error {
		return execute(path, "update states set state = (select max(state) from states)")
	},
	"odd log": func(path string) error { return os.WriteFile(path+"-wal", []byte("no log"), 0o600) },
}

func resize(path string, part int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/part)
}

// flip changes a folder in the rows, which SQLite does not notice.
func flip(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(data, []byte(`"workspace":"/w/1"`), []byte(`"workspace":"/w/7"`)), 0o600)
}

func damage(path string, at int64, with []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(with, at)
	return errors.Join(err, f.Close())
}

func execute(path, statement string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}

	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}

	_, _ = db.Exec(statement) // what was ruined before cannot be ruined this way
	return db.Close()
}

// G02: an index in any state changes no list, and is a good one after it.
func TestG02ABrokenIndexIsMadeAnew(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			for i := range 8 {
				f.save(t, talked(key("a", i), fmt.Sprint("/w/", i%3), fmt.Sprint("wish ", i), "and one more"))
			}

			f.same(t, "before")
			if n := f.reads(t); n != 0 {
				t.Fatalf("%d files were read with an index", n)
			}
			if err := spoil(f.Index()); err != nil {
				t.Fatal(err)
			}

			f.same(t, "after")
			f.sameHits(t, "after", "wish")
			if n := f.reads(t); n != 0 {
				t.Errorf("%d files were read by the next list: the index was not made anew", n)
			}

			checktest.Whole(t, f.Root)
		})
	}
}

// What is not belay's to remove stays, and the files are read instead.
func TestG02WhatIsInThePlaceOfTheIndexStays(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link": func(path string) error {
			return os.Symlink(filepath.Join(filepath.Dir(filepath.Dir(path)), "theirs"), path)
		},
		"a linked log": func(path string) error {
			return os.Symlink(filepath.Join(filepath.Dir(filepath.Dir(path)), "theirs"), path+"-wal")
		},
		"another user's": func(path string) error {
			if os.Getuid() != 0 {
				return errors.ErrUnsupported
			}
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 12345, 12345))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			f.save(t, talked(key("a", 1), "/w/1", "the wish"))
			path := f.Index()
			if err := put(path); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}

			f.same(t, "first")
			f.sameHits(t, "first", "wish")
			if n := f.reads(t); n != 1 {
				t.Errorf("%d files were read, want the one: there is no index", n)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(f.Root), "theirs")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("behind the link: %v, want nothing there", err)
			}

			for _, suffix := range []string{"", "-wal"} {
				if info, err := os.Lstat(
					path + suffix,
				); err == nil && info.Mode().IsRegular() &&
					name != "another user's" {
					t.Errorf("%s was made", info.Name())
				}
			}
		})
	}
}

func TestAFolderThatIsReadOnly(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}

	f := newFolder(t)
	f.save(t, talked(key("a", 1), "/w/1", "the wish"))
	if err := os.Chmod(f.Root, 0o500); err != nil {
		t.Fatal(err)
	}

	f.same(t, "read-only")
	f.sameHits(t, "read-only", "wish")
	if err := os.Chmod(f.Root, 0o700); err != nil {
		t.Fatal(err)
	}
}

// Nobody who asks makes an index, or anything else, where there is no session.
func TestNoSessionsNoIndex(t *testing.T) {
	f := newFolder(t)
	f.same(t, "empty")
	f.sameHits(t, "empty", "wish")
	gone := state.Dir{Root: filepath.Join(f.Root, "none"), FS: f.FS}
	if states, err := Of(gone).States(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("a folder that is not there: %d states, %v; want none", len(states), err)
	}

	entries, err := os.ReadDir(f.Root)
	if err != nil || len(entries) != 0 {
		t.Errorf("made %v, %v; want nothing", entries, err)
	}
}

// While somebody holds the index for writing, or removes it, the answer is the same.
func TestAnotherAtWork(t *testing.T) {
	f := newFolder(t)
	path := f.save(t, talked(key("a", 1), "/w/1", "the wish"))
	f.same(t, "at first")
	t.Run("writes", func(t *testing.T) {
		db, err := sql.Open("sqlite", "file:"+f.Index()+"?_txlock=immediate")
		if err != nil {
			t.Fatal(err)
		}

		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}

		f.save(t, talked(key("a", 1), "/w/1", "the wish", "another"))
		f.same(t, "meanwhile")
		f.sameHits(t, "meanwhile", "another")
		if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
			t.Fatal(err)
		}

		f.same(t, "afterwards")
	})

	t.Run("has it open while it is broken", func(t *testing.T) {
		held, err := Of(f.Dir).lock(syscall.LOCK_SH)
		if err != nil {
			t.Fatal(err)
		}
		if err := execute(f.Index(), "pragma user_version = 5"); err != nil {
			t.Fatal(err)
		}

		f.same(t, "meanwhile")
		if n := f.reads(t); n != 1 {
			t.Errorf("%d files read, want 1: it was removed under somebody", n)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}

		f.same(t, "afterwards")
		if n := f.reads(t); n != 0 {
			t.Errorf("%d files read, want none: it is made anew", n)
		}
	})

	f.age(t, path)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			states, err := Of(f.Dir).States(t.Context())
			if err != nil || len(states) != 1 {
				t.Errorf("one of many: %d states, %v; want 1", len(states), err)
			}

			if hits, err := Of(
				f.Dir,
			).Search(
				t.Context(), Query{Words: []string{"another"}},
			); err != nil ||
				len(hits) != 1 {
				t.Errorf("one of many: %d hits, %v; want 1", len(hits), err)
			}
		})
	}

	wg.Wait()
}

// G13: somebody reads for ever while everything changes again and again: the log stays small, and so it is afterwards.
func TestG13TheLogIsBoundedUnderASteadyReader(t *testing.T) {
	const sessions, rounds = 20, 6
	f := newFolder(t)
	all := make([]*checkpoint.State, sessions)
	for i := range all {
		all[i] = talked(key("a", i), "/w/1", "a wish")
		all[i].Losses.Bad = []checkpoint.BadLine{{Why: strings.Repeat("a row is large, ", 9000)}}
		f.save(t, all[i])
	}

	f.same(t, "at first")
	path := f.Index()
	reader, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}

	tx, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}

	rows := 0
	if err := tx.QueryRow("select count(*) from states").Scan(&rows); err != nil || rows != sessions {
		t.Fatalf("%d rows, %v; want %d", rows, err, sessions)
	}

	most := int64(0)
	for range rounds {
		for _, s := range all {
			f.age(t, filepath.Join(f.Session(s.Key), "state.json"))
		}

		f.reads(t)
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}

		most = max(most, info.Size())
	}

	t.Logf("the log had %d bytes at most", most)
	if most < maxLog/2 || most > maxLog+3<<20 {
		t.Errorf("the log grew to %d bytes, want about %d: the test writes more than that", most, maxLog)
	}

	f.same(t, "under the reader")
	if err := errors.Join(tx.Rollback(), reader.Close()); err != nil {
		t.Fatal(err)
	}

	f.same(t, "after the reader")
	if n := f.reads(t); n != 0 {
		t.Errorf("%d files were read, want none: all is written again", n)
	}

	for _, suffix := range besides[1:] {
		if info, err := os.Stat(path + suffix); err == nil {
			t.Errorf("%s of %d bytes is left", info.Name(), info.Size())
		}
	}
}

// FuzzDamage: whatever bytes are where in the index, the list is the same.
func FuzzDamage(f *testing.F) {
	f.Add(uint16(0), []byte("SQLite format 4"))
	f.Add(uint16(5000), []byte{0xff, 0xff, 0xff})
	f.Add(uint16(40), []byte{0, 0, 9})
	dir := newFolder(f)
	for i := range 3 {
		dir.save(f, talked(key("a", i), "/w/1", fmt.Sprint("wish ", i)))
	}

	f.Fuzz(func(t *testing.T, at uint16, with []byte) {
		dir.same(t, "before")
		if err := damage(dir.Index(), int64(at), with); err != nil {
			t.Fatal(err)
		}

		dir.same(t, "after")
		if _, err := Of(dir.Dir).Search(t.Context(), Query{Words: []string{"wish"}}); err != nil {
			t.Error(err)
		}
	})
}
