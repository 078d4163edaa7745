package claude

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

var update = flag.Bool("update-reader", false, "rewrite the reader's golden file")

// summary is what the golden file keeps of one transcript.
type summary struct {
	Kinds      map[string]int     `json:"kinds"`
	Turns      int                `json:"turns"` // distinct turn ids
	Open       []string           `json:"open,omitempty"`
	MadeUp     int                `json:"madeup,omitempty"`
	Failed     int                `json:"failed,omitempty"`
	Background int                `json:"background,omitempty"`
	Aside      int                `json:"aside,omitempty"`
	Children   int                `json:"children,omitempty"`
	Losses     *checkpoint.Losses `json:"losses,omitempty"`
	Last       string             `json:"last"` // the last assistant text, hashed
}

func summarise(b checkpoint.Batch) summary {
	s := summary{Kinds: map[string]int{}}
	turns, open, last := map[string]bool{}, []string{}, ""
	count := func(n *int, on bool) {
		if on {
			*n++
		}
	}

	for _, e := range b.Entries {
		s.Kinds[string(e.Kind)]++
		if e.Turn != "" {
			turns[e.Turn] = true
		}

		switch e.Kind {
		case checkpoint.EntryCall:
			open = append(open, e.Call)
		case checkpoint.EntryResult:
			for i, c := range open {
				if c == e.Call {
					open = append(open[:i], open[i+1:]...)
					break
				}
			}

		case checkpoint.EntryAssistant:
			last = e.Text
		}

		count(&s.MadeUp, e.MadeUp)
		count(&s.Failed, e.Failed)
		count(&s.Background, e.Background)
		count(&s.Aside, e.Aside)
		count(&s.Children, e.Child != "")
	}

	s.Turns, s.Open = len(turns), open
	s.Last = fmt.Sprintf("%x", sha256.Sum256([]byte(last)))[:12]
	if l := b.Losses; l.BadLines+l.Holes+l.Repeats+l.Rescued+l.Oversized+l.Replaced > 0 || l.Torn > 0 {
		s.Losses = &l
	}

	return s
}

// goldenFiles are the transcripts under testdata, and the public ones where they lie beside the repository.
func goldenFiles(t testing.TB) (files map[string]string) {
	t.Helper()
	files = map[string]string{}
	own, err := filepath.Glob(filepath.Join("testdata", "reader", "*", "*.jsonl"))
	if err != nil || len(own) < 50 {
		t.Fatalf("%d files in testdata, %v", len(own), err)
	}

	for _, f := range own {
		files[filepath.ToSlash(strings.TrimPrefix(f, filepath.Join("testdata", "reader")+string(filepath.Separator)))] = f
	}

	public := filepath.Join("..", "..", "..", "..", "shared", "transcripts", "claude-code")
	for _, name := range []string{
		"short.jsonl", "tool_heavy.jsonl", "subagent.jsonl", "compacted/258c7280-ae70-4798-800f-63464d01a85d.jsonl",
		"old-1.0/edge_cases.jsonl", "old-1.0/representative_messages.jsonl",
	} {
		if path := filepath.Join(public, name); fileThere(path) {
			files["public/"+name] = path
		} else {
			t.Logf("left out: no %s beside the repository", name)
		}
	}

	return files
}

func fileThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestGoldenTranscripts(t *testing.T) {
	golden := filepath.Join("testdata", "reader", "golden.json")
	want := map[string]summary{}
	if b, err := os.ReadFile(golden); err == nil {
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
	}

	for name, path := range goldenFiles(t) {
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		r := openTranscript(agent.Source{Path: path})
		got := summarise(all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: true}))
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if *update {
			want[name] = got
		}

		equal(t, name, got, want[name])
		after, err := os.Stat(path)
		if err != nil || after.Size() != before.Size() || after.ModTime() != before.ModTime() ||
			after.Mode() != before.Mode() {
			t.Errorf("%s: changed by being read: %v", name, err)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
			t.Errorf("%s: content changed by being read: %v", name, err)
		}
	}

	if *update {
		b, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		write(t, golden, append(b, '\n'))
	}
}

// Any file cut anywhere is read without an error, the cursor lies after a newline, and reading on from it, in a later
// run, gives exactly the rest.
func TestEveryCutResumesExactly(t *testing.T) {
	const cuts = 50
	path := filepath.Join(t.TempDir(), sessionOne+".jsonl")
	read := func(from checkpoint.Cursor) checkpoint.Batch {
		r := openTranscript(agent.Source{Path: path, Session: sessionOne})
		defer r.Close()
		return all(t, r, from, whole)
	}

	for _, name := range []string{
		"captured/kill-parallel.final", "captured/int-midtool.final", "captured/compact.final",
		"captured/subagent.final",
		"captured/errors.final", "handmade/crash-resume-compact.handmade", "handmade/newer-2.1.246.handmade",
		"cases/T03-glued-records", "cases/T05-nul-after-record", "cases/T13-mixed-schema", "cases/S01-interleaved",
		"cases/R01-duplicate-uuid", "cases/L08-bom-crlf-blank",
	} {
		content, err := os.ReadFile(filepath.Join("testdata", "reader", filepath.FromSlash(name)+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}

		write(t, path, content)
		entire := read("")
		for i := range cuts {
			n := len(content) * i / cuts
			write(t, path, content[:n])
			first := read("")
			if off := int(offset(t, first.Cursor)); off != bytes.LastIndexByte(content[:n], '\n')+1 {
				t.Fatalf("%s cut at %d: cursor at %d is not after the last newline", name, n, off)
			}

			write(t, path, content)
			rest := read(first.Cursor)
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

// offset is where in the file a cursor is.
func offset(t testing.TB, c checkpoint.Cursor) int64 {
	t.Helper()
	s, ok := lines.ParseCursor[state](c)
	if !ok {
		t.Fatalf("cursor %q cannot be read", c)
	}
	return s.Off
}

func marshal(v any) string {
	b, _ := json.Marshal(v) // plain structs always encode
	return string(b)
}

func FuzzReader(f *testing.F) {
	for _, name := range []string{
		"T03-glued-records", "T05-nul-after-record", "T13-mixed-schema", "L08-bom-crlf-blank", "R05-open-tool-use",
	} {
		f.Add(caseFile(f, name+".jsonl"))
	}

	f.Add(
		[]byte(
			`{"type":"assistant","uuid":"a","message":{"model":"<synthetic>","content":"x"},"isApiErrorMessage":true}` + "\n",
		),
	)

	f.Add([]byte(`{"type":"user","uuid":"u","message":{"content":"<belay-record k=\"a\">x"}}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, _ := transcript(t, content)
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
				e.ID, e.Text, e.Input, e.Output, e.Call, e.Group, e.Turn, e.Child, e.Session, e.Name, e.Workspace,
			} {
				if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
					t.Errorf("not fit to keep: %q", s)
				}
			}
		}
	})
}
