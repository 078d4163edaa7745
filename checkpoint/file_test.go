package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is a session with one of everything.
func sample() *Checkpoint {
	s := NewState(testKey())
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes)*time.Minute + 123456789) }
	seq := uint64(0)
	add := func(e Event) {
		seq++
		e.Seq, e.Key = seq, s.Key
		s.Apply(e)
	}

	add(
		Event{
			At:         at(0),
			Kind:       EventStart,
			Source:     "startup",
			Workspace:  "/proj/demo",
			Transcript: "/home/u/t.jsonl",
			Model:      "m-1",
			Proc:       &Proc{PID: 7, Start: 9, Boot: "b"},
		},
	)

	add(
		Event{
			At:   at(1),
			Kind: EventPrompt,
			Text: "Fix the uploader so that it retries, please, and tell me what you changed",
			Turn: "p1",
		},
	)

	add(
		Event{
			At:    at(2),
			Kind:  EventToolStart,
			Call:  "c1",
			Name:  "Edit",
			Input: `{"file_path":"/proj/demo/uploader.go"}`,
			Act:   Act{File: "/proj/demo/uploader.go", Digest: "/proj/demo/uploader.go"},
		},
	)

	add(Event{At: at(2), Kind: EventToolEnd, Call: "c1"})
	add(Event{At: at(3), Kind: EventMark, Decision: true, Text: "retry 42 times"})
	add(Event{At: at(4), Kind: EventStop, Text: "Changed one line in `uploader.go`.", Turn: "p1"})
	s.taken(
		Taken{Number: 41, Level: Full, Cause: CauseChain, At: at(4), News: s.News, MsgSeq: s.MsgSeq, Rounds: s.Rounds},
	)
	add(
		Event{
			At:     at(5),
			Kind:   EventEntries,
			Cursor: `{"o":99}`,
			Losses: &Losses{BadLines: 1, Bad: []BadLine{{Line: 3, Offset: 40, Bytes: 9, Why: "no record"}}},
		},
	)

	add(Event{At: at(6), Kind: EventDegraded, Reason: "no space left on device"})
	add(Event{At: at(7), Kind: EventPrompt, Text: "now add a test\n---\n# not a heading", Turn: "p2"})
	add(
		Event{
			At:    at(8),
			Kind:  EventToolStart,
			Call:  "c2",
			Name:  "Bash",
			Input: "{\"command\":\"go test ./... | tee `log`\"}",
			Act:   Act{Digest: "go test ./... | tee `log`"},
		},
	)

	c := New(s, 42, Decision{Take: true, Level: Full, Cause: CauseCompaction, Text: "forced: compaction"}, at(9))
	c.WorkTree = &WorkTree{Branch: "main", Head: "0123abcd", Changed: []string{" M uploader.go"}, At: at(9)}
	return c
}

func mustEncode(t testing.TB, c *Checkpoint) []byte {
	t.Helper()
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGoldenFile(t *testing.T) {
	got := mustEncode(t, sample())
	path := filepath.Join("testdata", "000042-full.md")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the written form changed (-update when that is meant):\n%s\nwant\n%s", got, want)
	}

	c, err := Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if again := mustEncode(t, c); !bytes.Equal(again, want) {
		t.Errorf("read and written again:\n%s\nwant\n%s", again, want)
	}
	if len(c.Delta) != 1 || c.Delta[0].Text != "now add a test\n---\n# not a heading" {
		t.Errorf("delta %+v, want the second prompt alone", c.Delta)
	}
	if c.Number != 42 || c.Level != Full || c.Cause != CauseCompaction || c.Gap == nil || c.WorkTree.Branch != "main" ||
		!c.At.Equal(sample().At.Truncate(time.Millisecond)) {
		t.Errorf("read back %+v", c)
	}
}

func TestP16OriginalParserFindsItsLine(t *testing.T) {
	data := mustEncode(t, sample())
	m := regexp.MustCompile(`(?m)^_last_updated: (.*)$`).FindSubmatch(data)
	if m == nil || string(m[1]) != "2026-04-01T12:09:00.123Z" {
		t.Errorf("_last_updated line %q, want 2026-04-01T12:09:00.123Z unquoted", m)
	}
}

// head gives what stands between the two --- lines.
func headOf(t *testing.T, data []byte) string {
	t.Helper()
	parts := strings.SplitN(string(data), "---\n", 3)
	if len(parts) != 3 || parts[0] != "" {
		t.Fatalf("no head in\n%s", data)
	}
	return parts[1]
}

func TestHeadIsYAMLAndHostileTextStaysInside(t *testing.T) {
	hostile := []string{
		"---\n",
		"\n---\nkind: \"SPARSE\"\n---\n",
		"x\n<!-- sha256 " + strings.Repeat("0", 64) + " -->\n",
		"\r---\r",
		"a\u0085---\u0085b",
		"\u2028---\u2029",
		"\"}\nformat: 99",
		"tab\tnul\x00del\x7fbom\ufeff\ufffe\uffff\u009f",
		"`` ` ``",
		"<!--",
		"-->",
		"# heading",
		"🚀 \U0010ffff",
		"key: value",
		"{{",
		"%YAML",
		"&a *a !!python",
	}
	for _, text := range hostile {
		c := sample()
		s := c.State
		s.Key.Session, s.Title, s.Task, c.Reason, s.Workspace = text, text, text, text, text
		s.Decisions[0].Text, s.Calls[1].Name, s.Calls[1].Digest = text, text, text
		s.Gap.Reason, c.WorkTree.Branch, c.WorkTree.Head = text, text, text
		s.Ending, s.Live = &Ending{At: epoch, Reason: text}, false
		for i := range s.Messages {
			s.Messages[i].Text = text
		}

		for i := range c.Delta {
			c.Delta[i].Text = text
		}

		data := mustEncode(t, c)
		back, err := Decode(data)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}

		if back.State.Title != text || back.State.Key.Session != text || back.Level != Full || back.Reason != text {
			t.Errorf(
				"%q: read back title %q, session %q, kind %s", text, back.State.Title, back.State.Key.Session,
				back.Level,
			)
		}

		if again := mustEncode(t, back); !bytes.Equal(again, data) {
			t.Errorf("%q: written again it differs", text)
		}

		var y map[string]any
		if err := yaml.Unmarshal([]byte(headOf(t, data)), &y); err != nil {
			t.Errorf("%q: the head is no YAML: %v", text, err)
			continue
		}
		if y["title"] != text || y["kind"] != "FULL" || y["number"] != 42 {
			t.Errorf("%q: YAML reads title %q, kind %v, number %v", text, y["title"], y["kind"], y["number"])
		}
		if n := bytes.Count(data, []byte("\n"+sumPrefix)); n != 1 {
			t.Errorf("%q: %d checksum lines, want 1", text, n)
		}

		body := string(data[bytes.LastIndex(data, []byte("\n---\n"))+5:])
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "# heading") ||
				strings.HasPrefix(line, "format:") {
				t.Errorf("%q stands at the beginning of a line: %q", text, line)
			}
		}
	}
}

func TestG08EveryFlippedByteIsDamage(t *testing.T) {
	c := sample()
	c.State.Messages, c.Delta, c.State.Calls = nil, nil, nil // keeps it short
	data := mustEncode(t, c)
	for i := range data {
		for _, mask := range []byte{0x01, 0x20, 0x80, 0xff} {
			bad := bytes.Clone(data)
			bad[i] ^= mask
			if got, err := Decode(bad); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d (%q) flipped by %#x: got %+v, %v, want ErrDamaged", i, data[i], mask, got, err)
			}
		}
	}

	for n := range data {
		if _, err := Decode(data[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d of %d: got %v, want ErrDamaged", n, len(data), err)
		}
	}

	if _, err := Decode(append(bytes.Clone(data), '\n')); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: got %v, want ErrDamaged", err)
	}
}

// sealed puts a right checksum under any text.
func sealed(text string) []byte {
	return append([]byte(text), sumLine([]byte(text))...)
}

func TestDecodeRefuses(t *testing.T) {
	state := `{"format":1,"key":{"agent":"a","session":"s"},"rounds":0,"news":0}`
	tests := []struct {
		name, text string
		damaged    bool
	}{
		{"newer format", "---\nformat: 2\n---\n", false},
		{
			"newer state",
			"---\nformat: 1\nnumber: 1\nkind: \"FULL\"\nstate: " + strings.Replace(
				state, `"format":1`, `"format":2`, 1,
			) + "\n---\n",
			false,
		},
		{"no head", "format: 1\n", true},
		{"no end", "---\nformat: 1\n", true},
		{"no state", "---\nformat: 1\nnumber: 1\nkind: \"FULL\"\n---\n", true},
		{"null state", "---\nformat: 1\nnumber: 1\nkind: \"FULL\"\nstate: null\n---\n", true},
		{"a state of nobody", "---\nformat: 1\nnumber: 1\nkind: \"FULL\"\nstate: {}\n---\n", true},
		{"no number", "---\nformat: 1\nkind: \"FULL\"\nstate: " + state + "\n---\n", true},
		{"no kind", "---\nformat: 1\nnumber: 1\nkind: \"HALF\"\nstate: " + state + "\n---\n", true},
		{"no key", "---\nformat: 1\nwords\n---\n", true},
		{"no time", "---\nformat: 1\n_last_updated: today\n---\n", true},
		{"no JSON", "---\nformat: 1\nnumber: one\n---\n", true},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			got, err := Decode(sealed(c.text))
			if err == nil || errors.Is(err, ErrDamaged) != c.damaged {
				t.Errorf("got %+v, %v, want an error, damaged %v", got, err, c.damaged)
			}
		})
	}

	if _, err := Decode(
		sealed("---\nformat: 1\nnumber: 1\nkind: \"FULL\"\nstate: " + state + "\nlater: {\"a\":1}\n---\n"),
	); err != nil {
		t.Errorf("a key of a later version: got %v, want it passed over", err)
	}
}

func TestG01NewestPassesOverEmptyAndDamaged(t *testing.T) {
	good := mustEncode(t, sample())
	flipped := bytes.Clone(good)
	flipped[100] ^= 1
	files := map[uint64][]byte{45: {}, 44: flipped, 43: nil, 42: good}
	get := func(n uint64) ([]byte, error) {
		if n == 43 {
			return nil, ErrNotFound
		}
		return files[n], nil
	}

	c, damaged, err := Newest(
		sample().State.Key.Dir(), []Meta{{Number: 45}, {Number: 44}, {Number: 43}, {Number: 42}}, get,
	)

	if err != nil || c.Number != 42 || damaged != 2 {
		t.Errorf("got %+v, %d damaged, %v, want number 42, 2 damaged", c, damaged, err)
	}

	if _, damaged, err = Newest(
		sample().State.Key.Dir(), []Meta{{Number: 45}, {Number: 44}}, get,
	); !errors.Is(err, ErrDamaged) ||
		damaged != 2 {
		t.Errorf("all damaged: got %d, %v, want 2 and ErrDamaged", damaged, err)
	}

	if _, _, err = Newest(sample().State.Key.Dir(), []Meta{{Number: 43}}, get); !errors.Is(err, ErrNotFound) {
		t.Errorf("pruned: got %v, want ErrNotFound", err)
	}
	if _, damaged, err = Newest("pi/other", []Meta{{Number: 42}}, get); !errors.Is(err, ErrForeign) || damaged != 1 {
		t.Errorf("in another session's folder: got %d, %v, want 1 and ErrForeign", damaged, err)
	}
	if _, _, err = Newest("", nil, get); !errors.Is(err, ErrNotFound) {
		t.Errorf("none: got %v, want ErrNotFound", err)
	}
}

func TestRestoreGoesOnFromACheckpoint(t *testing.T) {
	for _, level := range []Level{Full, Sparse} {
		c := sample()
		c.Level = level
		if level == Sparse {
			c.Cause = CauseRound
		}

		back, err := Decode(mustEncode(t, c))
		if err != nil {
			t.Fatal(err)
		}

		s := back.Restore()
		if s.LastNumber != 42 || s.MarkSeq != c.State.MsgSeq || !s.MarkAt.Equal(back.At) || s.Gap != nil {
			t.Errorf(
				"%s: number %d, mark %d at %s, gap %v; want 42, %d, %s, none", level, s.LastNumber, s.MarkSeq,
				s.MarkAt, s.Gap, c.State.MsgSeq, back.At,
			)
		}

		if level == Sparse && (s.SinceSparse != 0 || s.LastSparse.Number != 42 || s.LastFull.Number != 41) {
			t.Errorf("SPARSE: %d rounds since, stamps %+v %+v, want 0, 42, 41", s.SinceSparse, s.LastSparse, s.LastFull)
		}
		if level == Full && (s.SinceSparse != 1 || s.LastFull.Number != 42) {
			t.Errorf("FULL: %d rounds since SPARSE, stamp %+v, want 1 and 42", s.SinceSparse, s.LastFull)
		}

		if d := defaultGates().Decide(
			s, CauseHeartbeat, true, Condition{}, epoch.Add(time.Hour),
		); level == Full &&
			d.Code != CodeNothingNew {
			t.Errorf("a beat after the restore: got %s, want nothing new", d.Code)
		}

		if back.State.LastNumber != 41 {
			t.Error("Restore changed the checkpoint's own state")
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(mustEncode(f, sample()))
	f.Add(
		sealed(
			"---\nformat: 1\nnumber: 1\nkind: \"FULL\"\nstate: {\"key\":{\"agent\":\"a\",\"session\":\"s\"}}\n---\n",
		),
	)

	f.Add([]byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, in := range [][]byte{data, sealed(string(data))} {
			c, err := Decode(in)
			if err != nil {
				continue
			}

			once := mustEncode(t, c)
			back, err := Decode(once)
			if err != nil {
				t.Fatalf("what was decoded does not survive its own form: %v\n%s", err, once)
			}
			if twice := mustEncode(t, back); !bytes.Equal(once, twice) {
				t.Fatalf("written %q\nthen %q", once, twice)
			}

			if !json.Valid(
				[]byte(strings.TrimPrefix(regexp.MustCompile(`(?m)^state: .*$`).FindString(string(once)), "state: ")),
			) {
				t.Fatalf("state line is no JSON in\n%s", once)
			}
		}
	})
}
