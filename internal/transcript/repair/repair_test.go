package repair_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/transcript/repair"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

const cases = "../../agent/claude/testdata/reader/cases/"

func claude(t testing.TB) agent.Agent {
	t.Helper()
	g, ok := all.ByName(agent.Host{}, "claude-code")
	if !ok {
		t.Fatal("no agent claude-code")
	}
	return g
}

// TestFieldCases: the figures of the rows.
func TestFieldCases(t *testing.T) {
	for _, c := range []struct {
		row, want string // records, bad lines, torn bytes, holes, repeats, rescued, open calls
		resumable bool
	}{
		{"T01-torn-tail", "5 [] 150 0 0 0 []", true},
		{"T02-bad-line-middle", "6 [4 5] 0 0 0 0 []", false},
		{"T03-glued-records", "5 [3] 0 0 0 1 []", false},
		{"T05-nul-after-record", "5 [] 0 1 0 0 []", true},
		{"T08-torn-header", "4 [1] 0 0 0 0 []", true},
		{"T11-base-good", "12 [] 0 0 0 0 []", true},
		{"T13-mixed-schema", "8 [] 0 0 0 0 []", false},
		{"T15-empty", "0 [] 0 0 0 0 []", false},
		{"L03-lone-high-surrogate", "3 [] 0 0 0 0 []", true},
		{"L08-bom-crlf-blank", "3 [6] 0 0 0 0 []", true},
		{"L09-escaped-nul", "3 [] 0 0 0 0 []", true},
		{"R01-duplicate-uuid", "7 [] 0 0 5 0 []", false},
		{"R02-parent-cycle", "6 [] 0 0 1 0 []", false},
		{"R04-phantom-parent", "7 [] 0 0 0 0 []", false},
		{"R05-open-tool-use", "4 [] 0 0 0 0 [call_b call_c]", true},
		{"R08-two-branches", "9 [] 0 0 0 0 []", true},
		{"R09-time-disorder", "5 [] 0 0 0 0 []", true},
	} {
		t.Run(c.row, func(t *testing.T) {
			path := filepath.Join(cases, c.row+".jsonl")
			x := examined(t, claude(t), path)
			lines, calls := []int64{}, []string{}
			for _, b := range x.Bad {
				lines = append(lines, b.Line)
			}

			for _, o := range x.OpenCalls {
				calls = append(calls, o.ID)
			}

			got := fmt.Sprint(x.Records, lines, x.TornBytes, len(x.Holes), x.Repeats, x.Rescued, calls)
			if got != c.want || x.Resumable != c.resumable {
				t.Errorf("got %s, resumable %v (%v), want %s, %v", got, x.Resumable, x.WhyNot, c.want, c.resumable)
			}

			repairOne(t, claude(t), copied(t, path), c.row)
		})
	}
}

func copied(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, load(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestWhatStaysStays: numbers, key order, escapes and blanks of what is not broken are in the copy as they were, and an
// edit is where its change says.
func TestWhatStaysStays(t *testing.T) {
	const (
		first  = `{"uuid": "a","parentUuid":null , "type":"user","n":1.50e+3,"message":{"content":"\u00e9\ud83d\ude00 /\/"},"n":2}`
		second = "  {\"type\":\"assistant\",\"uuid\":\"b\",\"parentUuid\":\"lost\",\"message\":{\"content\":\"x\"}}\t"
		mended = "  {\"type\":\"assistant\",\"uuid\":\"b\",\"parentUuid\":\"a\",\"message\":{\"content\":\"x\"}}\t"
		third  = `{"type":"user","uuid":"c","parentUuid":"b","message":{"content":"y"}}`
	)
	for _, c := range []struct{ name, text, want string }{
		{"nothing", first + "\r\n\n" + third[:0] + "", first + "\r\n\n"},
		{"mended parent", first + "\r\n" + second + "\n \n" + third + "\n", first + "\r\n" + mended + "\n \n" + third + "\n"},
		{"torn tail", first + "\n" + third[:20], first + "\n"},
		{"no line end", first, first + "\n"},
		{"hole", first + "\n\x00\x00\x00", first + "\n"},
		{"NULs round it", "\x00\x00" + first + "\x00\n", first + "\n"},
		{"fused", first + strings.Replace(third, `"b"`, `"a"`, 1) + "\n", first + "\n" + strings.Replace(third, `"b"`, `"a"`, 1) + "\n"},
		{"record in the torn tail", first + "\n" + `{"type":"note","x` + strings.Replace(third, `"b"`, `"a"`, 1), first + "\n" + strings.Replace(third, `"b"`, `"a"`, 1) + "\n"},
	} {
		path := filepath.Join(t.TempDir(), "s.jsonl")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}

		out := path + ".copy"
		x := examined(t, claude(t), path)
		if err := x.Repair(t.Context(), vfs.OS{}, out, nil); err != nil {
			t.Fatal(err)
		}
		if got := string(load(t, out)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if info, err := os.Stat(out); err != nil || info.Mode().Perm() != vfs.FileMode {
			t.Errorf("%s: mode %v, %v, want %v", c.name, info.Mode(), err, vfs.FileMode)
		}
		if string(load(t, path)) != c.text {
			t.Errorf("%s: the original is another one", c.name)
		}
	}
}

// TestRepairWritesNothingOver: not the original by any name, and no other file.
func TestRepairWritesNothingOver(t *testing.T) {
	path := copied(t, cases+"T01-torn-tail.jsonl")
	dir := filepath.Dir(path)
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.Symlink(path, in("soft")), os.Link(path, in("hard")), os.Symlink(in("nowhere"), in("dangling")),
		os.WriteFile(in("other"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}

	x, before := examined(t, claude(t), path), load(t, path)
	for name, want := range map[string]error{filepath.Base(path): repair.ErrOriginal, "soft": repair.ErrOriginal, "hard": repair.ErrOriginal, "dangling": repair.ErrExists, "other": repair.ErrExists} {
		if err := x.Repair(t.Context(), vfs.OS{}, in(name), nil); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}

	if !bytes.Equal(load(t, path), before) {
		t.Error("the original was written")
	}
}

// TestRepairIsWholeOrNothing: whatever the disk does, the copy is whole or not there.
func TestRepairIsWholeOrNothing(t *testing.T) {
	x := examined(t, claude(t), cases+"T02-bad-line-middle.jsonl")
	out := filepath.Join(t.TempDir(), "copy")
	if err := x.Repair(t.Context(), vfs.OS{}, out, nil); err != nil {
		t.Fatal(err)
	}

	want := load(t, out)
	vfstest.Sweep{Least: 5}.Run(t, func(p *vfstest.Point) {
		if err := errors.Join(p.Mem.MkdirAll("/d", vfs.DirMode), p.Mem.SyncDir("/")); err != nil {
			t.Fatal(err)
		}

		err := p.Hear(x.Repair(t.Context(), p, "/d/copy", nil))
		for seed := range uint64(10) {
			got, rerr := vfs.ReadFile(p.Mem.CrashClone(seed), "/d/copy", 1<<20)
			if rerr == nil && !bytes.Equal(got, want) || err == nil && rerr != nil {
				p.Errorf("%v: %d bytes, %v after power loss, want %d or none", err, len(got), rerr, len(want))
			}
		}
	})
}

// TestHolesCostNoMemory: a hole of any length, and a record of any size, are never held whole more than once.
func TestHolesCostNoMemory(t *testing.T) {
	const hole = 256 << 20
	path := copied(t, cases+"T11-base-good.jsonl")
	if err := os.Truncate(path, hole); err != nil {
		t.Fatal(err)
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	x := examined(t, claude(t), path)
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 16 {
		t.Errorf("%d MB allocated for a hole of %d MB, want 16 at most", used, hole>>20)
	}
	if len(x.Holes) != 1 || x.Holes[0].Bytes < hole-1<<20 || x.Records != 12 {
		t.Errorf("got holes %v, %d records, want one hole behind 12 records", x.Holes, x.Records)
	}
}

// TestReportKeys: what programs read.
func TestReportKeys(t *testing.T) {
	data, err := json.Marshal(examined(t, claude(t), cases+"T15-empty.jsonl").Report)
	want := `"bytes":0,"records":0,"bad":[],"torn_bytes":0,"holes":[],"repeats":0,"rescued":0,"open_calls":[],"compactions":0,"generations":1,"resumable":false,"why_not":["no word of a conversation is in it"]}`
	if err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("got %s, %v, want the end %s", data, err, want)
	}
}

// FuzzRepair: any bytes, for every agent with a file of lines: the copy has nothing left to repair.
func FuzzRepair(f *testing.F) {
	names := []string{"claude-code", "pi", "codex", "gemini", "copilot", "cursor"}
	for _, s := range []string{"R02-parent-cycle", "R05-open-tool-use", "T03-glued-records", "T08-torn-header"} {
		data, err := os.ReadFile(cases + s + ".jsonl")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, byte(0))
	}

	f.Add(
		[]byte(
			`{"type":"message","id":"a","parentId":"a","message":{"role":"toolResult","toolCallId":"c"}}{"type":"message","id":"b","parentId":"a"}`,
		),
		byte(1),
	)

	f.Add([]byte(`{"type":"response_item","payload":{"type":"function_call","call_id":"c"}}`+"\n\x00\n"), byte(2))
	f.Add([]byte(`{"id":"a","type":"gemini","toolCalls":[{"id":"c","status":"executing"}]}`), byte(3))
	f.Fuzz(func(t *testing.T, data []byte, which byte) {
		g, _ := all.ByName(agent.Host{}, names[int(which)%len(names)])
		path := filepath.Join(t.TempDir(), "s.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}

		out := path + ".copy"
		x := examined(t, g, path)
		if err := x.Repair(t.Context(), unsynced{}, out, nil); err != nil {
			t.Fatal(err)
		}
		if y := examined(t, g, out); !y.Whole() {
			t.Errorf("%s: the copy of %q still has %v, bad %v", g.Name(), data, y.Changes, y.Bad)
		}
	})
}
