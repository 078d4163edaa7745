package breaker

import (
	"errors"
	"testing"

	"go.uber.org/zap"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// Whatever operation fails or takes the power away, what is stored of trips is old or new and never half, and save says
// whether it is the new one.
func TestEveryFaultOfTheStateFile(t *testing.T) {
	const name = "/state/breaker.json"
	vfstest.Sweep{Least: 14}.Run(t, func(p *vfstest.Point) {
		if err := errors.Join(p.Mem.MkdirAll("/state", vfs.DirMode), p.Mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}

		stored := 0
		for trips := 1; trips <= 2; trips++ {
			ok := save(p, name, record{Version: recordVersion, Open: true, Trips: trips}, zap.NewNop())
			p.Tell(!ok)
			if ok {
				stored = trips
			}
		}

		for seed, left := range p.Crashes() {
			if err := CheckFile(left, name); err != nil {
				p.Errorf("after a power cut (%d): %v", seed, err)
			}
			if got := load(left, name, zap.NewNop()).Trips; got < stored || got > 2 {
				p.Errorf("after a power cut (%d): %d trips, want %d at least", seed, got, stored)
			}
		}
	})
}
