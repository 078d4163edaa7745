package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the state files that are opened.
type counting struct {
	vfs.FS
	opened *atomic.Int64
}

func (c counting) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if filepath.Base(name) == "state.json" {
		c.opened.Add(1)
	}
	return c.FS.OpenFile(name, flag, perm)
}

// folder is a state folder to ask.
type folder struct {
	state.Dir
	opened *atomic.Int64
}

func newFolder(t testing.TB) folder {
	t.Helper()
	f := folderAt(filepath.Join(t.TempDir(), "state"))
	if err := f.Make(); err != nil {
		t.Fatal(err)
	}
	return f
}

func folderAt(root string) folder {
	n := new(atomic.Int64)
	return folder{state.Dir{Root: root, FS: counting{vfs.Within(vfs.OS{}, root), n}}, n}
}

func key(agent string, n int) checkpoint.Key {
	return checkpoint.NewKey(agent, "", fmt.Sprintf("%08d-0000-4000-8000-000000000000", n), "")
}

var noon = time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)

// talked is a session in which each word was a prompt of its own with an answer.
func talked(k checkpoint.Key, workspace string, words ...string) *checkpoint.State {
	s := checkpoint.NewState(k)
	s.Workspace = workspace
	for i, w := range words {
		at := noon.Add(time.Duration(i) * time.Minute)
		s.Apply(checkpoint.Event{Key: k, At: at, Kind: checkpoint.EventPrompt, Text: w})
		s.Apply(checkpoint.Event{Key: k, At: at, Kind: checkpoint.EventStop, Text: "done with it"})
	}

	return s
}

// save puts a state in place as if that had been a while ago.
func (f folder) save(t testing.TB, s *checkpoint.State) string {
	t.Helper()
	path := filepath.Join(f.Session(s.Key), "state.json")
	if err := f.SaveState(s); err != nil {
		t.Fatal(err)
	}
	f.age(t, path)
	return path
}

var ages atomic.Int64

// age makes a file old, and no two of the same age.
func (f folder) age(t testing.TB, path string) {
	t.Helper()
	then := time.Now().Add(-time.Hour).Add(time.Duration(ages.Add(1)) * time.Millisecond)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

// same fails unless the index lists what a look at all files lists, by every name.
func (f folder) same(t testing.TB, when string) {
	t.Helper()
	want, _, err := f.Dir.States(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	got, err := Of(f.Dir).States(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}

	now := time.Now()
	for _, n := range []state.Name{{}, {Agent: "a"}, {Workspace: "/w/1"}, {Workspace: "/w/1/deep"}, {Agent: "b", Workspace: "/w/0"}} {
		list, err := query.Folder{Dir: f.Dir}.Sessions(t.Context(), n, 0)
		if err != nil {
			t.Fatal(err)
		}

		for i := range list { // it took its own time
			list[i].AtRisk.Seconds = 0
		}

		mine := query.Listed(got, n, 0, false, now)
		if diff := differ(query.Listed(want, n, 0, false, now), mine); diff != "" {
			t.Fatalf("%s: %+v is listed otherwise: %s", when, n, diff)
		}

		for i := range mine {
			mine[i].AtRisk.Seconds = 0
		}

		if diff := differ(list, mine); diff != "" {
			t.Fatalf("%s: %+v is not what Find finds: %s", when, n, diff)
		}
	}

	if diff := differ(
		query.Listed(want, state.Name{}, 3, true, now), query.Listed(got, state.Name{}, 3, true, now),
	); diff != "" {
		t.Fatalf("%s: with children: %s", when, diff)
	}
}

// reads is how many state files a list opens.
func (f folder) reads(t testing.TB) int64 {
	t.Helper()
	before := f.opened.Load()
	if _, err := Of(f.Dir).States(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.opened.Load() - before
}

func TestOnlyWhatChangedIsRead(t *testing.T) {
	f := newFolder(t)
	for i := range 5 {
		f.save(t, talked(key("a", i), "/w/1", "one", "two"))
	}

	f.same(t, "at first")
	for _, c := range []struct {
		name string
		do   func() error
		want int64
	}{
		{"nothing changed", func() error { return nil }, 0},
		{"one has new words", func() error { f.save(t, talked(key("a", 1), "/w/1", "one", "two", "three")); return nil }, 1},
		{"nothing changed since", func() error { return nil }, 0},
		{"one is gone", func() error { return os.RemoveAll(f.Session(key("a", 2))) }, 0},
		{"one is new and still warm", func() error { return f.SaveState(talked(key("a", 7), "/w/1", "new")) }, 1},
		{"it is not trusted yet", func() error { return nil }, 1},
		{"it has cooled down", func() error { f.age(t, filepath.Join(f.Session(key("a", 7)), "state.json")); return nil }, 1},
		{"and is trusted", func() error { return nil }, 0},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if got := f.reads(t); got != c.want {
			t.Errorf("%s: %d state files were read, want %d", c.name, got, c.want)
		}
		f.same(t, c.name)
	}

	err := Of(f.Dir).with(t.Context(), &view{files: make([]state.File, 1)}, func(db *database) error {
		rows, err := db.rows(t.Context())
		if len(rows) != 5 {
			t.Errorf("%d rows, want 5: one session went and one came", len(rows))
		}
		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	checktest.Whole(t, f.Root)
}

// Whatever happens in a folder, in whatever order: a list with an index is the list without.
func TestListIsTheSameWithAndWithout(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	f := newFolder(t)
	j := f.journal(t)
	states := map[checkpoint.Key]*checkpoint.State{}
	for step := range 120 {
		k := key([]string{"a", "b"}[r.IntN(2)], r.IntN(8))
		if r.IntN(4) == 0 {
			k.Child = fmt.Sprint("child", r.IntN(2))
		}

		what := r.IntN(10)
		path := filepath.Join(f.Session(k), "state.json")
		switch s := states[k]; {
		case what < 5: // something happens in it; the journal knows it, and its state may be saved
			if s == nil {
				s = checkpoint.NewState(k)
				states[k] = s
			}

			happens(t, r, j, s)
			if r.IntN(2) == 0 {
				f.save(t, s)
			}

		case s == nil:
		case what == 5: // its state is lost; a checkpoint may stand for it
			if r.IntN(2) == 0 {
				f.checkpoint(t, s)
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}

		case what == 6: // or broken
			if err := os.WriteFile(path, []byte(`{"format":1,`), 0o600); err == nil {
				f.age(t, path)
			}

		case what == 7:
			if err := os.RemoveAll(f.Session(k)); err != nil {
				t.Fatal(err)
			}

		case what == 8 && r.IntN(2) == 0:
			f.spoil(t, r)
		}

		if step%4 == 3 {
			f.same(t, fmt.Sprintf("seed %d, step %d", seed, step))
		}
		if step%24 == 23 {
			f.sameHits(t, fmt.Sprintf("seed %d, step %d", seed, step), "wish")
		}
	}
}

// journal opens the folder's log.
func (f folder) journal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(f.FS, f.Journal(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}

	ctx, ended := t.Context(), make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	t.Cleanup(func() { // the test's context has ended by now
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	return j
}

// happens is one event of a session, in the journal and in the state.
func happens(t *testing.T, r *rand.Rand, j *journal.Journal, s *checkpoint.State) {
	t.Helper()
	kinds := []checkpoint.EventKind{
		checkpoint.EventStart,
		checkpoint.EventPrompt,
		checkpoint.EventPrompt,
		checkpoint.EventStop,
		checkpoint.EventToolStart,
		checkpoint.EventToolEnd,
		checkpoint.EventEnd,
		checkpoint.EventExit,
		checkpoint.EventChildStart,
		checkpoint.EventMark,
		checkpoint.EventTask,
	}

	e := checkpoint.Event{
		Key:       s.Key,
		Kind:      kinds[r.IntN(len(kinds))],
		At:        noon.Add(time.Duration(r.IntN(5)) * time.Minute),
		Workspace: fmt.Sprint("/w/", r.IntN(3)),
		Text: fmt.Sprint(
			"wish ", strings.Repeat("again ", r.IntN(4)), r.IntN(1000),
		),
		Transcript: "/t.jsonl",
		Decision:   r.IntN(2) == 0,
	}

	switch e.Kind {
	case checkpoint.EventToolStart, checkpoint.EventToolEnd:
		e.Call, e.Name = fmt.Sprint("call", r.IntN(3)), "Bash"
	case checkpoint.EventChildStart:
		e.Child = fmt.Sprint("child", r.IntN(2))
	}

	e.Seq = log(t, j, e)
	s.Apply(e)
}

func log(t *testing.T, j *journal.Journal, e checkpoint.Event) uint64 {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}

	seq, err := j.Append(t.Context(), data)
	if err == nil {
		err = j.Wait(t.Context(), seq)
	}
	if err != nil {
		t.Fatal(err)
	}

	return seq
}

func (f folder) checkpoint(t *testing.T, s *checkpoint.State) {
	t.Helper()
	store, err := f.OpenStore()
	if err != nil {
		t.Fatal(err)
	}

	s.LastNumber++
	c := checkpoint.New(
		s.Clone(), s.LastNumber, checkpoint.Decision{Level: checkpoint.Full, Cause: checkpoint.CauseManual},
		noon,
	)

	data, err := c.Encode()
	if err == nil {
		err = store.Put(t.Context(), s.Key, c.Meta(), data)
	}
	if err != nil && !errors.Is(err, checkpoint.ErrExists) {
		t.Fatal(err)
	}
}

// differ says where two lists differ; empty when they do not.
func differ[T any](want, got []T) string {
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) {
			return fmt.Sprintf("%d without, %d with", len(want), len(got))
		}

		w, werr := json.Marshal(want[i])
		g, gerr := json.Marshal(got[i])
		if werr != nil || gerr != nil || string(w) != string(g) {
			return fmt.Sprintf("number %d\nwithout %s %v\nwith    %s %v", i, w, werr, g, gerr)
		}
	}
	return ""
}
