package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// past is a state folder in memory and the life of a daemon that worked in it, as rapid draws it.
type past struct {
	t      *rapid.T
	dir    state.Dir
	j      *journal.Journal
	store  checkpoint.Store
	states map[checkpoint.Key]*checkpoint.State
	keys   []checkpoint.Key
	now    time.Time
}

func (p *past) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// livePast lives one daemon's life: sessions get events, some are saved, checkpoints are taken with or without their
// record.
func livePast(t *rapid.T) *past {
	p := &past{
		t: t, dir: state.Dir{Root: "/state", FS: vfstest.NewMem()},
		states: map[checkpoint.Key]*checkpoint.State{}, now: time.Unix(1_700_000_000, 0).UTC(),
	}

	p.must(vfs.MakeDir(p.dir.FS, p.dir.Root))
	var err error
	p.store, err = p.dir.OpenStore()
	p.must(err)
	p.j, err = journal.Open(p.dir.FS, p.dir.Journal(), journal.Options{SegmentBytes: 2 << 10})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.j.Run(ctx) }()
	for i := range rapid.IntRange(1, 3).Draw(t, "sessions") {
		key := checkpoint.NewKey("tester", "", fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i), "")
		p.keys = append(p.keys, key)
		p.states[key] = checkpoint.NewState(key)
	}

	for range rapid.IntRange(0, 30).Draw(t, "steps") {
		p.step(rapid.SampledFrom(p.keys).Draw(t, "session"))
	}

	cancel()
	p.must(<-ended)
	return p
}

func (p *past) step(key checkpoint.Key) {
	s := p.states[key]
	steps := []string{"event", "event", "event", "event", "save", "checkpoint", "release"}
	switch rapid.SampledFrom(steps).Draw(p.t, "step") {
	case "event":
		kinds := []checkpoint.EventKind{
			checkpoint.EventPrompt, checkpoint.EventStop, checkpoint.EventToolStart, checkpoint.EventEnd,
		}
		e := checkpoint.Event{Kind: rapid.SampledFrom(kinds).Draw(p.t, "kind")}
		e.Text, e.Call = fmt.Sprint("words ", p.now.Unix()), fmt.Sprint(p.now.Unix())
		p.event(s, e)

	case "save":
		p.must(p.dir.SaveState(s))
	case "checkpoint":
		c := checkpoint.New(s.Clone(), s.LastNumber+1, checkpoint.Decision{Level: checkpoint.Full}, p.now)
		data, err := c.Encode()
		p.must(err)
		p.must(p.store.Put(context.Background(), key, c.Meta(), data))
		taken := c.Taken()
		p.event(s, checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &taken})

	case "release":
		for _, s := range p.states {
			p.must(p.dir.SaveState(s))
		}
		for _, seg := range p.j.Sealed() {
			p.must(p.j.Release(seg.Last))
		}
	}
}

func (p *past) event(s *checkpoint.State, e checkpoint.Event) {
	p.now = p.now.Add(time.Minute)
	e.Key, e.At = s.Key, p.now
	data, err := json.Marshal(e)
	p.must(err)
	e.Seq, err = p.j.Append(context.Background(), data)
	p.must(err)
	p.must(p.j.Wait(context.Background(), e.Seq))
	s.Apply(e)
}

// harm is what a crash, a bad disk or a person may do to the folder afterwards.
func (p *past) harm() {
	var active []checkpoint.Key
	for _, key := range p.keys {
		name := filepath.Join(p.dir.Session(key), "state.json")
		switch rapid.SampledFrom([]string{"", "", "", "lost", "broken"}).Draw(p.t, "state file") {
		case "lost":
			_ = p.dir.FS.Remove(name) // it may not be there
		case "broken":
			if _, err := p.dir.FS.Lstat(name); err == nil {
				p.must(vfs.Replace(p.dir.FS, name, []byte("{")))
			}
		}

		if rapid.Bool().Draw(p.t, "active") {
			active = append(active, key)
		}
	}

	p.must(p.dir.SaveActive(active))

	segments, err := p.dir.FS.ReadDir(p.dir.Journal())
	if err != nil {
		return // no event ever came
	}

	for i := len(segments) - 1; i >= 0; i-- {
		name := filepath.Join(p.dir.Journal(), segments[i].Name())
		switch rapid.SampledFrom([]string{"", "", "cut", "lost"}).Draw(p.t, "newest segment") {
		case "":
			return
		case "cut":
			data, err := vfs.ReadFile(p.dir.FS, name, 1<<20)
			p.must(err)
			f, err := p.dir.FS.OpenFile(name, os.O_RDWR, 0)
			p.must(err)
			p.must(f.Truncate(rapid.Int64Range(0, int64(len(data))).Draw(p.t, "bytes left")))
			p.must(f.Close())
			return

		case "lost":
			p.must(p.dir.FS.Remove(name))
		}
	}
}

// next is the daemon that comes after, as far as its replay needs it.
func (p *past) next() *life {
	opt := testOptions(p.dir.Root, nopLog())
	opt.FS = p.dir.FS
	d := New(opt)
	l := newLife(d.opt, d.settings, d.times)
	var err error
	l.journal, err = l.openJournal()
	p.must(err)
	l.store, err = l.openBreaker(p.store)
	p.must(err)
	return l
}

func asJSON(t *rapid.T, s *checkpoint.State) string {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReplayGivesWhatCommandsSee: after any life and any harm the daemon starts with the sessions that a command
// without a daemon shows.
func TestReplayGivesWhatCommandsSee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := livePast(t)
		p.harm()
		seen, _, err := p.dir.States(context.Background(), nil)
		p.must(err)
		list, _, err := p.next().replay(context.Background())
		p.must(err)
		for _, l := range list {
			if want, got := asJSON(t, l.State), asJSON(t, seen[l.Key]); got != want {
				t.Fatalf("the daemon starts with\n%s\na command shows\n%s", want, got)
			}
		}
	})
}
