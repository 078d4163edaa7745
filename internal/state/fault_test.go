package state_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestEveryFault: whatever operation fails or takes the power away, a state that was saved is there, old or new, and so
// are the list of active sessions and the time of the last heartbeat; nothing is swallowed, and the folder is whole.
func TestEveryFault(t *testing.T) {
	const root = "/state"
	vfstest.Sweep{Least: 90}.Run(t, func(p *vfstest.Point) {
		if err := errors.Join(p.Mem.MkdirAll(root, vfs.DirMode), p.Mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}

		d := state.Dir{Root: root, FS: p.Fault}
		kept, tried := map[checkpoint.Key]int{}, map[checkpoint.Key]int{}
		var beat, newest time.Time // the last that was kept, and the last at all
		for i := range 6 {         // three sessions in turn, of two agents
			key := checkpoint.Key{Agent: fmt.Sprint("agent", i%3/2), Session: fmt.Sprint("s", i%3)}
			s := checkpoint.NewState(key)
			s.Rounds, s.Began = i+1, time.Unix(1, 0)
			tried[key] = s.Rounds
			if p.Hear(d.SaveState(s)) == nil {
				kept[key] = s.Rounds
			}

			_ = p.Hear(d.SaveActive([]checkpoint.Key{key})) // Hear has looked at it
			newest = time.Unix(int64(1000+i), 0)
			if p.Hear(d.SaveBeat(newest)) == nil {
				beat = newest
			}
		}

		p.Tell(p.Op() == "lstat state.json") // the folders are made durable then, whether they need it or not
		check := func(d state.Dir, when string) {
			for key, most := range tried {
				s, err := d.LoadState(key)
				switch {
				case errors.Is(err, fs.ErrNotExist) && kept[key] == 0:
				case err != nil:
					p.Errorf("%s: state of %s: %v", when, key, err)
				case s.Rounds < kept[key] || s.Rounds > most:
					p.Errorf("%s: state of %s has %d rounds, want %d to %d", when, key, s.Rounds, kept[key], most)
				}
			}

			if got := d.LastBeat(); got.Before(beat) || got.After(newest) {
				p.Errorf("%s: the last beat was at %s, want %s to %s", when, got, beat, newest)
			}

			for _, broken := range checktest.Broken(d) {
				p.Errorf("%s: %s", when, broken)
			}
		}

		for seed, left := range p.Crashes() {
			d := state.Dir{Root: root, FS: left}
			check(d, fmt.Sprintf("after a power cut (%d)", seed))
			if err := errors.Join(d.Sweep(), d.SweepAll(t.Context(), time.Now().Add(time.Minute))); err != nil {
				p.Errorf("sweep: %v", err)
			}
			if files := left.String(); strings.Contains(files, vfs.TempSuffix) {
				p.Errorf("after the sweep there is\n%s", files)
			}
		}

		if !p.Dies {
			check(state.Dir{Root: root, FS: p.Mem}, "as it goes on")
		}
	})
}
