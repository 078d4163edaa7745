package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/vfs"
)

// meanwhile is a disk on which something happens once, before the journal is listed for the n-th time.
type meanwhile struct {
	vfs.FS
	journal string
	in      int
	do      func()
}

func (m *meanwhile) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == m.journal {
		if m.in--; m.in == 0 {
			m.do()
		}
	}
	return m.FS.ReadDir(name)
}

// A daemon lets a segment go while somebody reads: what was in it is in newer states, and is not missed.
func TestSegmentsLetGoWhileAReaderReads(t *testing.T) {
	const rounds = 40
	key := checkpoint.NewKey("a", "", "11111111-2222-4333-8444-555555555555", "")
	for name, read := range map[string]func(d state.Dir) (*checkpoint.State, error){
		"States": func(d state.Dir) (*checkpoint.State, error) {
			states, _, err := d.States(t.Context(), nil)
			return states[key], err
		},
		"Find": func(d state.Dir) (*checkpoint.State, error) {
			list, _, err := d.Find(t.Context(), state.Name{Session: key.Session})
			if err == nil && len(list) != 1 {
				err = fmt.Errorf("%d sessions, want one", len(list))
			}
			return append(list, nil)[0], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := state.Dir{Root: t.TempDir(), FS: vfs.OS{}}
			s := checkpoint.NewState(key)
			j := roundsInJournal(t, d, s, rounds)
			if n := len(j.Sealed()); n < 2 {
				t.Fatalf("%d full segments, want some", n)
			}

			looks := 2 // the first is before the states are read
			d.FS = &meanwhile{FS: vfs.OS{}, journal: d.Journal(), in: looks, do: func() {
				own := state.Dir{Root: d.Root, FS: vfs.OS{}}
				if err := errors.Join(own.SaveState(s), j.Release(s.Seq)); err != nil {
					t.Error(err)
				}
			}}

			got, err := read(d)
			if err != nil || got == nil {
				t.Fatalf("%+v, %v", got, err)
			}
			if got.Rounds != rounds {
				t.Errorf("%d rounds, want %d", got.Rounds, rounds)
			}
		})
	}
}

// roundsInJournal plays a session's rounds, of which the state file holds the first alone.
func roundsInJournal(t *testing.T, d state.Dir, state *checkpoint.State, rounds int) *journal.Journal {
	t.Helper()
	j, err := journal.Open(d.FS, d.Journal(), journal.Options{SegmentBytes: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- j.Run(ctx) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	for i := range rounds {
		e := checkpoint.Event{
			Key:  state.Key,
			Kind: checkpoint.EventStop,
			Turn: fmt.Sprint(i),
			Text: strings.Repeat("word ", 100),
		}

		data, err := json.Marshal(e)
		if err == nil {
			e.Seq, err = j.Append(t.Context(), data)
		}
		if err = errors.Join(err, j.Wait(ctx, e.Seq)); err != nil {
			t.Fatal(err)
		}

		state.Apply(e)
		if i == 0 {
			if err := d.SaveState(state); err != nil {
				t.Fatal(err)
			}
		}
	}

	return j
}
