package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/state/mirror"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const session = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"

var key = checkpoint.NewKey("tester", "", session, "")

// folder is a state folder as a daemon leaves it: two segments, a session with a chain of checkpoints, a mirror, a
// spooled event and the small files.
type folder struct {
	state.Dir
	t *testing.T
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	f := &folder{state.Dir{Root: filepath.Join(t.TempDir(), "state"), FS: vfstest.Quick{}}, t}
	f.must(f.Make())
	s := checkpoint.NewState(key)
	store, err := f.OpenStore()
	f.must(err)
	for i, level := range []checkpoint.Level{checkpoint.Full, checkpoint.Sparse, checkpoint.Full, checkpoint.Sparse} {
		f.journal(s, 2)
		c := checkpoint.New(s.Clone(), uint64(i+1), checkpoint.Decision{Level: level}, time.Now())
		data, err := c.Encode()
		f.must(err)
		f.must(store.Put(t.Context(), key, c.Meta(), data))
		taken := c.Taken()
		s.Apply(checkpoint.Event{Kind: checkpoint.EventCheckpoint, At: time.Now(), Taken: &taken})
	}

	f.must(f.SaveState(s))
	source := filepath.Join(t.TempDir(), "a.jsonl")
	f.must(os.WriteFile(source, []byte(strings.Repeat("{\"a\":1}\n", 500)), 0o600))
	m, err := mirror.Open(f.FS, f.Session(key), mirror.Options{})
	f.must(err)
	_, err = m.Sync(t.Context(), source)
	f.must(errors.Join(err, m.Flush(), os.WriteFile(source, []byte(strings.Repeat("{\"a\":1}\n", 600)), 0o600)))
	_, err = m.Sync(t.Context(), source)
	f.must(errors.Join(err, m.Flush(), m.Close()))
	_, err = spool.Write(
		f.FS, f.Spool(), spool.DefaultLimits(), []byte(`{"v":1,"op":"hook","id":"e1"}`), []byte("payload"),
		time.Now(),
	)

	f.must(errors.Join(err, f.SaveActive([]checkpoint.Key{key})))
	f.must(
		vfs.Replace(
			f.FS, f.Breaker(),
			[]byte(`{"v":1,"open":false,"since":"2026-01-01T00:00:00Z","trips":0,"pause_s":30}`),
		),
	)

	f.must(vfs.Replace(f.FS, f.Beat(), []byte(`{"last":"2026-01-01T00:00:00Z"}`)))
	return f
}

func (f *folder) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// journal is one run of a daemon: n rounds, in a segment of their own.
func (f *folder) journal(s *checkpoint.State, n int) {
	f.t.Helper()
	j, err := journal.Open(f.FS, f.Journal(), journal.Options{Ahead: -1})
	f.must(err)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	for range n {
		e := checkpoint.Event{
			Key:  key,
			Kind: checkpoint.EventPrompt,
			Text: fmt.Sprint("question ", s.Seq),
			At:   time.Now(),
		}

		data, err := json.Marshal(e)
		f.must(err)
		e.Seq, err = j.Append(ctx, data)
		f.must(errors.Join(err, j.Wait(ctx, e.Seq)))
		s.Apply(e)
	}

	cancel()
	f.must(<-ended)
}

func (f *folder) path(rel string) string { return filepath.Join(f.Root, rel) }

// flip changes one byte of a file.
func (f *folder) flip(rel string, at int) {
	f.t.Helper()
	data, err := os.ReadFile(f.path(rel))
	f.must(err)
	if at < 0 {
		at += len(data)
	}

	data[at] ^= 0x20
	f.must(os.WriteFile(f.path(rel), data, 0o600))
}

func (f *folder) write(rel, text string) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(f.path(rel)), 0o700))
	f.must(os.WriteFile(f.path(rel), []byte(text), 0o600))
}

// found lists findings as "rule path", notes in brackets.
func found(d state.Dir, o check.Options) []string {
	var out []string
	for f := range check.Check(context.Background(), d, o) {
		line := string(f.Rule) + " " + f.Path
		if f.Note {
			line = "(" + line + ")"
		}
		if f.Said == "" || f.Do == "" {
			line += " WITHOUT WORDS"
		}

		out = append(out, line)
	}

	return out
}

const (
	own = "sessions/tester/" + session
	dir = own + "/checkpoints/"
)

func TestEveryBrokenRuleIsFound(t *testing.T) {
	segment := func(n int) string { return fmt.Sprintf("journal/%020d.log", n) }
	old := time.Now().Add(-48 * time.Hour)
	for name, tt := range map[string]struct {
		spoil func(f *folder)
		o     check.Options
		want  []string
	}{
		"nothing":         {func(*folder) {}, check.Options{Retention: checkpoint.Policy{Count: 4}, Spool: spool.DefaultLimits(), Total: 1 << 20}, nil},
		"beside a daemon": {func(*folder) {}, check.Options{Daemon: time.Now().Add(-time.Hour)}, nil},
		"no folder":       {func(f *folder) { f.must(os.RemoveAll(f.Root)) }, check.Options{}, nil},
		"a file in its place": {func(f *folder) { f.must(errors.Join(os.RemoveAll(f.Root), os.WriteFile(f.Root, nil, 0o600))) }, check.Options{}, []string{
			"readable ",
		}},
		"open to others": {func(f *folder) { f.must(os.Chmod(f.Root, 0o750)) }, check.Options{}, []string{
			"private ",
		}},
		"a readable checkpoint": {func(f *folder) { f.must(os.Chmod(f.path(dir+"000001-full.md"), 0o644)) }, check.Options{}, []string{"private " + dir + "000001-full.md"}},
		"a link": {func(f *folder) {
			f.must(errors.Join(os.Rename(f.path("spool"), f.Root+".spool"), os.Symlink(f.Root+".spool", f.path("spool"))))
		}, check.Options{}, []string{"private spool"}},
		"a foreign file": {func(f *folder) { f.write("sessions/tester/notes.txt", "x") }, check.Options{}, []string{
			"known sessions/tester/notes.txt",
		}},
		"a foreign folder":         {func(f *folder) { f.write(own+"/x/y", "x") }, check.Options{}, []string{"known " + own + "/x", "known " + own + "/x/y"}},
		"a foreign temporary file": {func(f *folder) { f.write(".x"+vfs.TempSuffix, "x") }, check.Options{}, []string{"known .x" + vfs.TempSuffix}},
		"a left-over":              {func(f *folder) { f.write(own+"/.state.json"+vfs.TempSuffix, "x") }, check.Options{}, nil},
		"a left-over that a daemon passed": {func(f *folder) {
			f.write(own+"/.state.json"+vfs.TempSuffix, "x")
			f.must(os.Chtimes(f.path(own+"/.state.json"+vfs.TempSuffix), old, old))
		}, check.Options{Daemon: time.Now().Add(-time.Hour)}, []string{"swept " + own + "/.state.json" + vfs.TempSuffix}},
		"a temporary file of now": {func(f *folder) { f.write(own+"/.state.json"+vfs.TempSuffix, "x") }, check.Options{Daemon: time.Now().Add(-time.Hour)}, nil},
		"a torn tail":             {func(f *folder) { f.append(segment(7), "torn") }, check.Options{}, nil},
		"a damaged record": {func(f *folder) { f.flip(segment(3), 60) }, check.Options{}, []string{
			"journal journal",
		}},
		"a segment that is gone": {func(f *folder) { f.must(os.Remove(f.path(segment(3)))) }, check.Options{}, []string{
			"journal journal",
		}},
		"the newest segment gone": {func(f *folder) { f.must(os.Remove(f.path(segment(7)))) }, check.Options{}, []string{
			"numbers journal",
		}},
		"a damaged state": {func(f *folder) { f.write(own+"/state.json", "{") }, check.Options{}, []string{"state " + own + "/state.json"}},
		"a state elsewhere": {func(f *folder) {
			data, err := os.ReadFile(f.path(own + "/state.json"))
			f.must(err)
			f.write("sessions/tester/other/state.json", string(data))
		}, check.Options{}, []string{"state sessions/tester/other/state.json"}},
		"a flipped byte":        {func(f *folder) { f.flip(dir+"000002-sparse.md", 300) }, check.Options{}, []string{"checkpoint " + dir + "000002-sparse.md"}},
		"an empty checkpoint":   {func(f *folder) { f.write(dir+"000004-sparse.md", "") }, check.Options{}, []string{"checkpoint " + dir + "000004-sparse.md"}},
		"under another number":  {func(f *folder) { f.must(os.Rename(f.path(dir+"000004-sparse.md"), f.path(dir+"000005-sparse.md"))) }, check.Options{}, []string{"checkpoint " + dir + "000005-sparse.md"}},
		"a FULL gone":           {func(f *folder) { f.must(os.Remove(f.path(dir + "000003-full.md"))) }, check.Options{}, []string{"chain " + dir + "000004-sparse.md"}},
		"no whole FULL":         {func(f *folder) { f.flip(dir+"000001-full.md", -9); f.flip(dir+"000003-full.md", -9) }, check.Options{}, []string{"checkpoint " + dir + "000001-full.md", "checkpoint " + dir + "000003-full.md", "chain " + own}},
		"a range covered twice": {func(f *folder) { f.again() }, check.Options{}, []string{"once " + dir + "000005-full.md"}},
		"over the count":        {func(*folder) {}, check.Options{Retention: checkpoint.Policy{Count: 2}}, []string{"(budget " + own + ")"}},
		"over the total":        {func(*folder) {}, check.Options{Total: 100}, []string{"(budget sessions)"}},
		"a damaged mirror":      {func(f *folder) { f.flip(own+"/"+mirror.FileName, 20) }, check.Options{}, []string{"mirror " + own + "/" + mirror.FileName}},
		"a torn mirror":         {func(f *folder) { f.append(own+"/"+mirror.FileName, "torn") }, check.Options{}, nil},
		"no event in the spool": {func(f *folder) { f.write("spool/0000000000001-x.0", "no header") }, check.Options{}, []string{
			"spool spool/0000000000001-x.0",
		}},
		"a spool that is full": {func(*folder) {}, check.Options{Spool: spool.Limits{Bytes: 100}}, []string{
			"spool spool",
		}},
		"broken small files": {func(f *folder) {
			for _, name := range []string{"breaker.json", "beat.json", "active.json"} {
				f.write(name, "{")
			}
		}, check.Options{}, []string{"lists breaker.json", "lists active.json", "lists beat.json"}},
		"what was set aside": {func(f *folder) {
			f.must(f.SetAside(key))
			f.write("spool/bad/0000000000001-x.3", "x")
		}, check.Options{}, []string{"(aside " + own + "/state.json.bad)", "(aside spool/bad/0000000000001-x.3)"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t)
			tt.spoil(f)
			before := f.stamps()
			if got := found(f.Dir, tt.o); !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
			if after := f.stamps(); !maps.Equal(before, after) {
				t.Errorf("the check changed something: %v, was %v", after, before)
			}
		})
	}
}

func (f *folder) append(rel, text string) {
	f.t.Helper()
	h, err := os.OpenFile(f.path(rel), os.O_WRONLY|os.O_APPEND, 0)
	f.must(err)
	_, err = h.WriteString(text)
	f.must(errors.Join(err, h.Close()))
}

// again takes a checkpoint of what number 4 holds once more.
func (f *folder) again() {
	f.t.Helper()
	data, err := os.ReadFile(f.path(dir + "000004-sparse.md"))
	f.must(err)
	c, err := checkpoint.Decode(data)
	f.must(err)
	c.Number, c.Level = 5, checkpoint.Full
	data, err = c.Encode()
	f.must(err)
	f.write(dir+"000005-full.md", string(data))
}

// stamps are all files with their sizes and times.
func (f *folder) stamps() map[string]string {
	out := map[string]string{}
	_ = filepath.WalkDir(f.Root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // there is no folder in one case
		}
		info, err := d.Info()
		out[p] = fmt.Sprint(info.Size(), info.Mode(), info.ModTime(), err)
		return nil
	})

	return out
}

// TestFewIsEnough: a caller that has seen enough, or gave up, gets no more.
func TestFewIsEnough(t *testing.T) {
	f := newFolder(t)
	f.write("a", "")
	f.write("b", "")
	n := 0
	for range check.Check(t.Context(), f.Dir, check.Options{}) {
		n++
		break
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range check.Check(ctx, f.Dir, check.Options{}) {
		n++
	}

	if n != 1 {
		t.Errorf("%d findings, want the first alone", n)
	}
}

// TestOneSession: the others are left out, the journal is not.
func TestOneSession(t *testing.T) {
	f := newFolder(t)
	f.write("sessions/tester/other/state.json", "{")
	f.flip(dir+"000002-sparse.md", 300)
	got := found(f.Dir, check.Options{Session: func(dir string) bool { return dir == key.Dir() }})
	if want := []string{"checkpoint " + dir + "000002-sparse.md"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
