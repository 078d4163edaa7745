package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// killedSecret is in each line that the killed process mirrors.
const killedSecret = "correct-horse-4711"

// TestKillsWhileAMirrorIsWritten: a process that does nothing but to mirror a growing transcript is killed at random
// moments. Each time every batch that it had said to be written can be read, the copies are whole, what was torn is
// cut, and the next one goes on where it ended. Of an exact one nothing lies on the disk unencrypted. BELAY_KILLS sets
// how many kills (12 each).
func TestKillsWhileAMirrorIsWritten(t *testing.T) {
	for _, kind := range []string{"redacted", "exact"} {
		t.Run(kind, func(t *testing.T) { testKills(t, kind == "exact") })
	}
}

func testKills(t *testing.T, exact bool) {
	if root := vfstest.Victim(); root != "" {
		mirrorUntilKilled(killedRig(t, root, exact))
		return
	}

	kills := vfstest.NewKills(t, 12)
	root, r := "", (*rig)(nil)
	all, acked, torn := 0, 0, int64(0)
	kills.Each(func(i int) {
		if i%20 == 0 { // a new transcript: in a long run each look would take longer than the one before
			root = t.TempDir()
			r = killedRig(t, root, exact)
			all, acked = all+acked, 0
		}

		for _, line := range kills.Kill(root, 40*time.Millisecond) {
			n, err := strconv.Atoi(line)
			if err != nil {
				t.Errorf("the writer said %q", line)
			}
			acked = max(acked, n)
		}

		source, err := os.ReadFile(r.src)
		if err != nil {
			t.Fatal(err)
		}

		held := r.read()
		if !strings.HasPrefix(string(source), held) || len(held) < acked {
			t.Errorf("%d bytes were acknowledged of %s, the mirror holds %s", acked, brief(string(source)), brief(held))
		}

		r.noneIsPlain()
		half := r.tear(kills.IntN(60))
		if got := r.read(); got != held {
			t.Errorf("with %d bytes of a batch behind it the mirror holds %s, want %s", half, brief(got), brief(held))
		}

		r.open()
		if got := r.m.Status().Torn; got < half {
			t.Errorf("%d torn bytes were cut, want %d at least", got, half)
		} else {
			torn += got - half
		}

		r.sync()
		if err := r.m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}

		whole := string(source[:bytes.LastIndexByte(source, '\n')+1])
		if got := r.read(); got != whole {
			t.Errorf("then the mirror holds %s, want %s", brief(got), brief(whole))
		}
		if err := Check(r.fsys, r.file()); err != nil {
			t.Errorf("check: %v", err)
		}

		acked = len(whole)
	})

	all += acked
	t.Logf("%d bytes acknowledged, %d bytes torn by the kills alone", all, torn)
	if all < kills.N*1000 {
		t.Errorf("%d bytes in %d runs: the test proved nothing", all, kills.N)
	}
}

// killedRig is a mirror in a folder that the killed process and the test share, with the key that lies there.
func killedRig(t *testing.T, root string, exact bool) *rig {
	t.Helper()
	r := &rig{t: t, src: filepath.Join(root, "s.jsonl"), dir: filepath.Join(root, "session"), fsys: vfs.OS{},
		opt: Options{FirstSight: 4 << 10, Budget: 8 << 10}}
	if exact {
		key, err := MakeKey(r.fsys, filepath.Join(root, "keys"))
		if err != nil {
			t.Fatal(err)
		}
		r.opt.Key = key
	}

	return r
}

// mirrorUntilKilled lets the transcript grow, mostly by a little, and says how many of its bytes are mirrored for good.
func mirrorUntilKilled(r *rig) {
	r.open()
	for n := 0; ; n++ {
		some := 1 + n%4
		if n%16 == 15 {
			some = 100
		}

		r.append(strings.ReplaceAll(lines(n, some, 200), "word", "it is "+killedSecret+" "))
		r.sync()
		if n%8 == 7 {
			if err := r.m.Compact(context.Background()); err != nil {
				r.t.Fatal(err)
			}
		}

		fmt.Println(r.m.Status().MirroredBytes)
	}
}

// read gives what can be read of the mirror, which is not damaged; nothing while there is none.
func (r *rig) read() string {
	r.t.Helper()
	rc, err := Lines(r.fsys, r.file(), r.opt.Key)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		r.t.Fatal(err)
	}

	data, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		r.t.Errorf("read mirror: %v", err)
	}

	return string(data)
}

// tear puts the beginning of a batch behind the last one, as a kill in the middle of a long write does; it gives its
// size.
func (r *rig) tear(size int) int64 {
	r.t.Helper()
	data, err := os.ReadFile(r.file())
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.file(), append(data, data[:size]...), vfs.FileMode); err != nil {
		r.t.Fatal(err)
	}

	return int64(size)
}

// noneIsPlain fails the test when an exact mirror's folder holds anything that needs no key, half-made files among it.
func (r *rig) noneIsPlain() {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}

	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(r.dir, e.Name()))
		if err != nil {
			r.t.Fatal(err)
		}

		zstd := []byte{0x28, 0xb5, 0x2f, 0xfd}
		if r.opt.Key != nil &&
			(bytes.Contains(data, []byte(killedSecret)) || bytes.Contains(data, []byte(`"type"`)) || bytes.Contains(data, zstd)) {
			r.t.Errorf("%s holds what was to be encrypted", e.Name())
		}
	}
}
