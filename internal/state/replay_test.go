package state

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestLoadIsARead: reading a session changes nothing on disk, whatever is wrong with it; Mend puts it right.
func TestLoadIsARead(t *testing.T) {
	key := checkpoint.NewKey("tester", "", "11111111-2222-4333-8444-555555555555", "")
	for name, spoil := range map[string]func(d Dir) error{
		"the journal lost its end": func(Dir) error { return nil },
		"the file is broken":       func(d Dir) error { return vfs.Replace(d.FS, d.stateFile(key), []byte("{")) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewFault(vfstest.NewMem(), -1, nil)
			d := Dir{Root: "/state", FS: disk}
			s := checkpoint.NewState(key)
			s.Apply(checkpoint.Event{Seq: 9, Key: key, Kind: checkpoint.EventPrompt, Text: "go"})
			store, err := d.OpenStore()
			if err := errors.Join(err, d.SaveState(s), spoil(d)); err != nil {
				t.Fatal(err)
			}

			before := disk.Count()
			l := d.Load(t.Context(), store, key, 4)
			for _, op := range disk.Ops()[before:] {
				verb, _, _ := strings.Cut(op, " ")
				if verb != "lstat" && verb != "open" && verb != "read" && verb != "readdir" && verb != "stat" &&
					verb != "close" {
					t.Errorf("Load does %q", op)
				}
			}

			if l.Seq > 4 || (l.Err != nil) != l.damaged {
				t.Errorf("loaded number %d, error %v; want at most 4", l.Seq, l.Err)
			}

			if err := d.Mend(l); err != nil {
				t.Fatal(err)
			}

			again, err := d.LoadState(key)
			if l.damaged {
				if _, aside := d.FS.Lstat(d.stateFile(key) + ".bad"); !errors.Is(err, fs.ErrNotExist) || aside != nil {
					t.Errorf("after Mend: %v, and the bad file aside: %v", err, aside)
				}
			} else if err != nil || again.Seq != 4 || again.Rounds != l.Rounds {
				t.Errorf("after Mend: %+v, %v; want number 4", again, err)
			}
		})
	}
}

// TestReplaySurvivesARecord: an event that makes the fold panic is counted, and the next one is applied.
func TestReplaySurvivesARecord(t *testing.T) {
	r := replay{}
	r.apply(nil, checkpoint.Event{Seq: 3, Kind: checkpoint.EventPrompt})
	if r.report.Panics != 1 || r.report.Panic.Seq != 3 || r.report.Panic.Value == nil ||
		len(r.report.Panic.Stack) == 0 {
		t.Errorf("report %+v, want one panic, of record 3", r.report)
	}

	s := checkpoint.NewState(checkpoint.Key{Agent: "a", Session: "s"})
	r.apply(s, checkpoint.Event{Seq: 4, Key: s.Key, Kind: checkpoint.EventPrompt})
	if r.report.Panics != 1 || s.Seq != 4 {
		t.Errorf("%d panics, state at %d; want 1 and 4", r.report.Panics, s.Seq)
	}
}
