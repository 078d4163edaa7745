package repair_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/transcript/repair"
	"belay/internal/vfs"
)

// sample is a transcript of an agent, for damage.
type sample struct {
	agent agent.Agent
	path  string
	data  []byte
}

// samples are the agents' own test files, and those beside the repository where they are.
func samples(t *testing.T) (list []sample) {
	t.Helper()
	seen := map[[32]byte]bool{}
	for _, s := range []struct{ agent, root string }{
		{"claude-code", "../../agent/claude/testdata/reader"}, {"claude-code", "../../../../shared/transcripts/claude-code"},
		{"pi", "../../agent/pi/testdata/pi"}, {"pi", "../../../../shared/transcripts/pi"}, {"openclaw", "../../agent/pi/testdata/openclaw"},
		{"oh-my-pi", "../../agent/ohmypi/testdata"},
		{"codex", "../../agent/codex/testdata/reader"}, {"codex", "../../../../shared/transcripts/codex"},
		{"cursor", "../../agent/cursor/testdata"}, {"copilot", "../../agent/copilot/testdata"},
		{"gemini", "../../agent/gemini/testdata/transcripts"}, {"gemini", "../../../../shared/transcripts/gemini"},
	} {
		g, ok := all.ByName(agent.Host{}, s.agent)
		if !ok {
			t.Fatalf("no agent %s", s.agent)
		}

		err := filepath.WalkDir(s.root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(p, ".jsonl") || strings.Contains(p, "hook") ||
				strings.Contains(p, "rows") {
				return err
			}

			data, err := os.ReadFile(p)
			if sum := sha256.Sum256(data); err == nil && !seen[sum] { // the same files lie in several folders
				seen[sum] = true
				list = append(list, sample{g, p, data})
			}

			return err
		})

		if errors.Is(err, fs.ErrNotExist) && strings.Contains(s.root, "shared") {
			t.Logf("%s is not here: its files are left out", s.root)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	if len(list) < 20 {
		t.Fatalf("%d transcripts found, the repository has more", len(list))
	}

	return list
}

// damage does something to a file that a crash, a full disk or two writers do.
func damage(r *rand.Rand, data []byte) []byte {
	data = bytes.Clone(data)
	for range 1 + r.IntN(3) {
		if len(data) < 10 {
			return data
		}

		at := r.IntN(len(data) - 1)
		n := min(1+r.IntN(1+min(len(data)/4, 6000)), len(data)-at)
		lines := bytes.SplitAfter(data, []byte("\n"))
		i := r.IntN(len(lines))
		switch r.IntN(8) {
		case 0:
			data = data[:at]
		case 1:
			clear(data[at : at+n]) // a block that never reached the disk
		case 2:
			data = append(data[:at:at], data[at+n:]...)
		case 3: // a newline that is not there
			if j := bytes.IndexByte(data[at:], '\n'); j >= 0 {
				data = append(data[:at+j:at+j], data[at+j+1:]...)
			}

		case 4: // a part that was written again
			j := i + r.IntN(len(lines)-i)
			data = append(data, bytes.Join(lines[i:j], nil)...)
		case 5:
			data = bytes.Join(append(lines[:i:i], lines[min(i+1, len(lines)):]...), nil)
		case 6: // NULs round a line
			end := bytes.TrimSuffix(lines[i], []byte("\n"))
			lines[i] = bytes.Join(
				[][]byte{make([]byte, r.IntN(2)*n), end, make([]byte, r.IntN(2)*n), []byte("\n")}, nil,
			)
			data = bytes.Join(lines, nil)

		case 7:
			data[at] = byte(r.IntN(256))
		}
	}

	return data
}

// unsynced is the file system without its waits: what a crash leaves is another test's.
type unsynced struct{ vfs.OS }

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.OS.OpenFile(name, flag, perm)
	return unsyncedFile{f}, err
}

func examined(t *testing.T, g agent.Agent, path string) *repair.Examined {
	t.Helper()
	x, err := g.(agent.Examiner).Examine(t.Context(), agent.Source{Path: path}, nil)
	if err != nil {
		t.Fatalf("examine %s: %v", path, err)
	}
	return x
}

// said is what belay's own reader gives of a file, without what a made result adds.
func said(t *testing.T, g agent.Agent, path string) map[string]bool {
	t.Helper()
	r := g.Open(agent.Source{Path: path})
	defer r.Close() // read only
	all := map[string]bool{}
	for cursor := checkpoint.Cursor(""); ; {
		b, err := r.Read(context.Background(), cursor, checkpoint.ReadOptions{Final: true, Whole: true})
		if err != nil {
			t.Fatalf("read %s: %v", path, err)
		}

		for _, e := range b.Entries {
			if e.Op == checkpoint.Upsert && e.Kind != checkpoint.EntryMeta && e.Kind != checkpoint.EntryOwn {
				// an id may be made of the place
				all[fmt.Sprint(e.Kind, "|", e.Name, "|", e.Input, "|", e.Text, "|", e.Output)] = true
			}
		}

		if cursor = b.Cursor; !b.More {
			return all
		}
	}
}

// TestRepairOfDamage: whatever befalls a transcript, its repaired copy is whole, holds all that belay's reader sees in
// the damaged one, and has nothing to repair.
func TestRepairOfDamage(t *testing.T) {
	seed, rounds := uint64(1), 2 // the long form looks for new damage, the short one guards what is known
	if os.Getenv("BELAY_LONG") != "" {
		seed, rounds = uint64(time.Now().UnixNano()), 40
	}

	if s := os.Getenv("BELAY_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("BELAY_SEED=%d", seed)
	for _, s := range samples(t) {
		h := fnv.New64a()
		h.Write([]byte(s.path)) // cannot fail
		r := rand.New(rand.NewPCG(seed, h.Sum64()))
		for i := range rounds {
			hurt := damage(r, s.data)
			dir := t.TempDir()
			path := filepath.Join(dir, filepath.Base(s.path))
			if err := os.WriteFile(path, hurt, 0o600); err != nil {
				t.Fatal(err)
			}
			repairOne(t, s.agent, path, fmt.Sprintf("%s, round %d", s.path, i))
		}
	}
}

func repairOne(t *testing.T, g agent.Agent, path, what string) {
	t.Helper()
	again := filepath.Join(filepath.Dir(path), "again")
	sub := filepath.Join(filepath.Dir(path), "copy")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(sub, filepath.Base(path)) // the name tells a session's id
	x := examined(t, g, path)
	if err := x.Repair(t.Context(), unsynced{}, out, nil); err != nil {
		t.Fatalf("%s: %v", what, err)
	}

	y := examined(t, g, out)
	headless := false
	for _, why := range y.WhyNot {
		headless = headless || strings.HasPrefix(why, "the first record is missing") ||
			strings.HasPrefix(why, "no word")
	}

	if !y.Whole() || !y.Resumable && !headless {
		t.Errorf(
			"%s: the copy has %v, bad %v, why not %v, want nothing to repair\nchanges of the original: %v",
			what, y.Changes, y.Bad, y.WhyNot, x.Changes,
		)
	}

	if err := y.Repair(t.Context(), unsynced{}, again, nil); err != nil {
		t.Fatalf("%s: repair the copy: %v", what, err)
	}
	if a, b := load(t, out), load(t, again); !bytes.Equal(a, b) {
		t.Errorf("%s: the copy of the copy has %d other bytes, want the same %d", what, len(b), len(a))
	}

	have := said(t, g, out)
	for e := range said(t, g, path) {
		if !have[e] {
			t.Errorf("%s: the copy lost %.300q\nchanges: %v", what, e, x.Changes)
		}
	}

	if len(x.Changes) == 0 && !bytes.Equal(load(t, path), load(t, out)) {
		t.Errorf("%s: nothing to change, and the copy is another one", what)
	}
}

func load(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
