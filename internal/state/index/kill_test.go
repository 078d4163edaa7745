package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestG02KillsWhileTheIndexIsWritten: a process that does nothing but to bring the index up to date, and to make it
// anew, is killed at random moments. Each time the answers are those of the files, and one question later the index is
// whole again. BELAY_KILLS sets how many kills (12).
func TestG02KillsWhileTheIndexIsWritten(t *testing.T) {
	if root := vfstest.Victim(); root != "" {
		askUntilKilled(t, folderAt(root))
		return
	}

	kills := vfstest.NewKills(t, 12)
	f := newFolder(t)
	for i := range 12 {
		f.save(
			t,
			talked(
				key("a", i), fmt.Sprint("/w/", i%3), fmt.Sprint("wish ", i),
				strings.Repeat(fmt.Sprint("more of ", i, " "), 400),
			),
		)
	}

	asked, open := 0, 0
	kills.Each(func(i int) {
		asked += len(kills.Kill(f.Root, 60*time.Millisecond))
		if _, err := os.Lstat(f.Index() + "-wal"); err == nil {
			open++
		}

		f.same(t, fmt.Sprint("after kill ", i))
		f.sameHits(t, fmt.Sprint("after kill ", i), "wish")
		if n := f.reads(t); n != 0 {
			t.Errorf("kill %d: %d files are read by a later list, want none: the index was not made whole", i, n)
		}

		checktest.Whole(t, f.Root)
	})

	t.Logf("%d questions answered, %d kills while the index was open", asked, open)
	if asked < kills.N || open == 0 {
		t.Errorf(
			"%d questions in %d runs, %d kills while the index was open: the test proved nothing", asked,
			kills.N, open,
		)
	}
}

// askUntilKilled lists and searches a folder in which all changes all the time, and sometimes the index is ruined.
func askUntilKilled(t *testing.T, f folder) {
	r := vfstest.NewKills(t, 0)
	for n := 0; ; n++ {
		for i := range 12 {
			if r.IntN(3) > 0 {
				f.age(t, filepath.Join(f.Session(key("a", i)), "state.json"))
			}
		}

		if n%4 == 3 {
			f.spoil(t, r.Rand)
		}
		if _, err := Of(f.Dir).States(t.Context()); err != nil {
			t.Fatal(err)
		}
		if hits, err := Of(f.Dir).Search(t.Context(), Query{Words: []string{"wish"}}); err != nil || len(hits) != 12 {
			t.Fatalf("%d hits, %v", len(hits), err)
		}

		fmt.Println(n)
	}
}

// besideIndex sends what concerns the index's own files to a disk that fails, and all else to the real one.
type besideIndex struct {
	vfs.FS
	index vfs.FS
}

func (b besideIndex) at(name string) vfs.FS {
	if strings.HasPrefix(filepath.Base(name), filepath.Base(state.Dir{}.Index())) {
		return b.index
	}
	return b.FS
}

func (b besideIndex) Lstat(name string) (fs.FileInfo, error) { return b.at(name).Lstat(name) }
func (b besideIndex) Remove(name string) error               { return b.at(name).Remove(name) }
func (b besideIndex) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	return b.at(name).OpenFile(name, flag, perm)
}

// TestG02EveryFaultOfTheIndex: whatever operation of belay's own on the index's files fails, or all of them, while it
// is made, looked at, or taken away because it is broken: the answers are those of the files, and the next question
// makes the index whole.
func TestG02EveryFaultOfTheIndex(t *testing.T) {
	f := newFolder(t)
	for i := range 3 {
		f.save(t, talked(key("a", i), "/w/1", fmt.Sprint("wish ", i)))
	}

	want := f.told(t)
	path := f.Index()
	script := func(disk *vfstest.Fault, bad func(format string, args ...any)) {
		for _, end := range besides {
			if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}

		faulty := folder{state.Dir{Root: f.Root, FS: besideIndex{f.FS, disk}}, f.opened}
		for _, when := range []string{"made", "there", "broken"} {
			if when == "broken" {
				if err := spoilers["garbage"](path); err != nil {
					t.Fatal(err)
				}
			}
			if got := faulty.told(t); got != want {
				bad("an index that is %s: told\n%s\nwant\n%s", when, got, want)
			}
		}

		disk.Heal()
		if got := f.told(t); got != want {
			bad("afterwards: told\n%s\nwant\n%s", got, want)
		}
		if n := f.reads(t); n != 0 {
			bad("%d files are read by a later list, want none: the index was not made whole", n)
		}

		for _, broken := range checktest.Broken(f.Dir) {
			bad("%s", broken)
		}
	}

	step := 5 // each point opens the index a dozen times
	if os.Getenv("BELAY_LONG") != "" {
		step = 1
	}

	vfstest.Sweep{Least: 30, Step: step, Disk: func() vfs.FS { return f.FS }}.Run(t, func(p *vfstest.Point) {
		script(p.Fault, p.Errorf)
		p.Tell(true) // that an answer takes longer is all that a fault of the index does
	})

	all := vfstest.NewFault(f.FS, -1, nil)
	all.FailNow(syscall.EIO)
	script(all, t.Errorf)
	if !all.Fired() {
		t.Error("no operation failed: the test proved nothing")
	}
}

// told is all that a person gets of the folder, with the index as it is.
func (f folder) told(t *testing.T) string {
	t.Helper()
	states, err := Of(f.Dir).States(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	hits, err := Of(f.Dir).Search(t.Context(), Query{Words: []string{"wish"}})
	if err != nil {
		t.Fatal(err)
	}

	list := query.Listed(states, state.Name{}, 0, true, time.Now())
	for i := range list {
		list[i].AtRisk.Seconds = 0 // each took its own time
	}

	for i := range hits {
		hits[i].AtRisk.Seconds = 0
	}

	data, err := json.MarshalIndent([]any{list, hits}, "", " ")
	if err != nil {
		t.Fatal(err)
	}

	return string(data)
}
