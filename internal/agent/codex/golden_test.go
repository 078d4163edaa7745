package codex

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// summary is what the golden file keeps of one rollout.
type summary struct {
	Kinds      map[string]int     `json:"kinds"`
	Turns      int                `json:"turns"` // distinct turn ids
	Open       []string           `json:"open,omitempty"`
	MadeUp     int                `json:"madeup,omitempty"`
	Failed     int                `json:"failed,omitempty"`
	Background int                `json:"background,omitempty"`
	Retracted  int                `json:"retracted,omitempty"`
	Losses     *checkpoint.Losses `json:"losses,omitempty"`
	Last       string             `json:"last"` // the last assistant text, hashed
}

func summarise(b checkpoint.Batch) summary {
	s := summary{Kinds: map[string]int{}}
	turns, ended, last := map[string]bool{}, map[string]bool{}, ""
	for _, e := range b.Entries {
		if e.Op == checkpoint.Retract {
			s.Retracted++
			continue
		}

		s.Kinds[string(e.Kind)]++
		if e.Turn != "" {
			turns[e.Turn] = true
		}

		switch e.Kind {
		case checkpoint.EntryCall:
			s.Open = append(s.Open, e.Call)
		case checkpoint.EntryResult:
			if ended[e.Call] {
				continue // the command's end and its output are two records
			}
			if ended[e.Call] = !e.Background; ended[e.Call] {
				s.Open = slices.DeleteFunc(s.Open, func(c string) bool { return c == e.Call })
			}

		case checkpoint.EntryAssistant:
			last = e.Text
		}

		for n, on := range map[*int]bool{&s.MadeUp: e.MadeUp, &s.Failed: e.Failed, &s.Background: e.Background} {
			if on {
				*n++
			}
		}
	}

	s.Turns = len(turns)
	s.Last = fmt.Sprintf("%x", sha256.Sum256([]byte(last)))[:12]
	if l := b.Losses; l.BadLines+l.Holes+l.Repeats+l.Rescued+l.Oversized+l.Replaced > 0 || l.Torn > 0 {
		s.Losses = &l
	}

	return s
}

// goldenFiles are the rollouts under testdata, and the public ones where they lie beside the repository.
func goldenFiles(t testing.TB) (files map[string]string) {
	t.Helper()
	files = map[string]string{}
	own, err := filepath.Glob(filepath.Join("testdata", "reader", "*", "*.jsonl"))
	if err != nil || len(own) < 27 {
		t.Fatalf("%d files in testdata, %v", len(own), err)
	}

	for _, f := range own {
		files[filepath.ToSlash(strings.TrimPrefix(f, filepath.Join("testdata", "reader")+string(filepath.Separator)))] = f
	}

	public := filepath.Join("..", "..", "..", "..", "shared", "transcripts", "codex", "2026-02")
	for _, name := range []string{
		"rollout-2026-02-23T12-41-04-019c8a4d-8f45-7010-8b5d-7fad920aa6f9.jsonl",
		"rollout-2026-02-23T20-34-25-019c8bfe-ec25-79e0-97d7-bda6a9c575ff.jsonl",
	} {
		path := filepath.Join(public, name)
		if _, err := os.Stat(path); err != nil {
			t.Logf("left out: no %s beside the repository", name)
			continue
		}
		files["public/"+name] = path
	}

	return files
}

// TestGoldenRollouts: what each file tells, plain and compressed, and that it stays as it is.
func TestGoldenRollouts(t *testing.T) {
	golden := filepath.Join("testdata", "reader", "golden.json")
	want := map[string]summary{}
	if b, err := os.ReadFile(golden); err == nil {
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
	}

	for name, path := range goldenFiles(t) {
		content := read(t, path)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		r := openTranscript(agent.Source{Path: path})
		batch := all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: true})
		if err := r.Close(); err != nil {
			t.Error(err)
		}

		got := summarise(batch)
		if *update {
			want[name] = got
		}
		if g, w := marshal(got), marshal(want[name]); g != w {
			t.Errorf("%s: got %s\nwant %s", name, g, w)
		}

		after, err := os.Stat(path)
		if err != nil || after.Size() != before.Size() || after.ModTime() != before.ModTime() ||
			after.Mode() != before.Mode() ||
			read(t, path) != content {
			t.Errorf("%s: changed by being read: %v", name, err)
		}

		copied := filepath.Join(t.TempDir(), filepath.Base(path))
		write(t, copied, content)
		pack(t, copied)
		r = openTranscript(agent.Source{Path: copied})
		if again := all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: true}); marshal(again) != marshal(batch) {
			t.Errorf("%s: compressed it tells something else", name)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}

	if *update {
		b, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		write(t, golden, string(b)+"\n")
	}
}

// Any file cut anywhere is read without an error, the cursor lies after a newline, and reading on from it, in a later
// run, gives exactly the rest.
func TestEveryCutResumesExactly(t *testing.T) {
	const cuts = 40
	path := filepath.Join(t.TempDir(), nameOf(threadOne))
	reads := func(from checkpoint.Cursor) checkpoint.Batch {
		r := openTranscript(agent.Source{Path: path})
		defer r.Close()
		return all(t, r, from, whole)
	}

	for _, name := range []string{
		"captured/normal.final", "captured/int-midtool.final", "generated/0.171-compacted",
		"generated/0.171-subagent-parent", "handmade/legacy-0.5x-rare-items.handmade",
	} {
		content := read(t, filepath.Join("testdata", "reader", filepath.FromSlash(name)+".jsonl"))
		write(t, path, content)
		entire := reads("")
		for i := range cuts {
			n := len(content) * i / cuts
			write(t, path, content[:n])
			first := reads("")
			if off := int(offset(t, first.Cursor)); off != strings.LastIndexByte(content[:n], '\n')+1 {
				t.Fatalf("%s cut at %d: cursor at %d is not after the last newline", name, n, off)
			}

			write(t, path, content)
			rest := reads(first.Cursor)
			first.Entries = append(first.Entries, rest.Entries...)
			first.Losses.Add(rest.Losses)
			if g, w := marshal(first.Entries), marshal(entire.Entries); g != w {
				t.Fatalf(
					"%s cut at %d: %d entries in two reads, %d in one", name, n, len(first.Entries),
					len(entire.Entries),
				)
			}

			if g, w := marshal(first.Losses), marshal(entire.Losses); g != w || rest.Cursor != entire.Cursor {
				t.Fatalf("%s cut at %d: got %s %s\nwant %s %s", name, n, g, rest.Cursor, w, entire.Cursor)
			}
		}
	}
}

// offset is where in its rollout a cursor is.
func offset(t testing.TB, c checkpoint.Cursor) int64 {
	t.Helper()
	s, ok := lines.ParseCursor[state](c)
	if !ok {
		t.Fatalf("cursor %q cannot be read", c)
	}
	return s.Off
}

func FuzzReader(f *testing.F) {
	for _, name := range []string{
		"captured/int-midtool.final", "generated/0.171-compacted", "handmade/legacy-0.5x-rare-items.handmade",
	} {
		for i, l := range strings.SplitAfter(read(f, filepath.Join("testdata", "reader", filepath.FromSlash(name)+".jsonl")), "\n") {
			if i%4 == 1 {
				f.Add([]byte(l))
			}
		}
	}

	f.Add([]byte(event(`{"type":"thread_rolled_back","num_turns":-5}`)))
	f.Add([]byte(says("m", "user", "user.text", "<belay-record k=\"a\">x")))
	path := filepath.Join(f.TempDir(), nameOf(threadOne)) // one for each worker process
	f.Fuzz(func(t *testing.T, content []byte) {
		write(t, path, string(content))
		r := openTranscript(agent.Source{Path: path, Session: threadOne})
		defer r.Close()
		got := all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: true})
		if off := offset(t, got.Cursor); off != int64(bytes.LastIndexByte(content, '\n')+1) {
			t.Errorf("cursor at %d is not after the last newline", off)
		}

		for _, e := range got.Entries {
			if len(e.Text) > checkpoint.CutText || len(e.Output) > checkpoint.CutTool ||
				len(e.Input) > checkpoint.CutTool {
				t.Errorf("entry %q is too large: %d, %d, %d", e.ID, len(e.Text), len(e.Output), len(e.Input))
			}
			for _, s := range []string{
				e.ID, e.Text, e.Input, e.Output, e.Call, e.Turn, e.Session, e.Name, e.Workspace, e.Model,
			} {
				if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
					t.Errorf("not fit to keep: %q", s)
				}
			}
		}
	})
}

// FuzzPacked: whatever a compressed file holds, it is read or refused, and nothing stays open or behind.
func FuzzPacked(f *testing.F) {
	small := filepath.Join(f.TempDir(), "rollout.jsonl")
	write(f, small, meta(threadOne, "/p")+says("u", "user", "user.text", "ask"))
	pack(f, small)
	f.Add([]byte(read(f, small+packed)))
	f.Add([]byte("rubbish"))
	path := filepath.Join(f.TempDir(), nameOf(threadOne))
	f.Fuzz(func(t *testing.T, content []byte) {
		write(t, path+packed, string(content))
		r := openTranscript(agent.Source{Path: path, Session: threadOne})
		all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: true})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		New(agent.Host{}).Recognise(content)
	})
}
