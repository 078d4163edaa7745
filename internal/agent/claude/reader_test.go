package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
)

const (
	sessionOne = "11111111-1111-4111-8111-111111111111"
	sessionTwo = "22222222-2222-4222-8222-222222222222"
)

var whole = checkpoint.ReadOptions{Whole: true}

func caseFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "reader", "cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// transcript makes a live transcript of sessionOne with content and a reader for it.
func transcript(t testing.TB, content []byte) (checkpoint.Transcript, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), sessionOne+".jsonl")
	write(t, path, content)
	return open(t, path), path
}

func open(t testing.TB, path string) checkpoint.Transcript {
	r := openTranscript(agent.Source{Path: path, Session: sessionOne})
	t.Cleanup(func() { r.Close() })
	return r
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, path, content string) {
	t.Helper()
	w, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// all reads on from a cursor until there is nothing more.
func all(t testing.TB, r checkpoint.Transcript, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	var sum checkpoint.Batch
	for n := 0; ; n++ {
		b, err := r.Read(context.Background(), from, opt)
		if err != nil {
			t.Fatalf("read from %q: %v", from, err)
		}
		if n == 0 {
			sum.First, sum.Skipped = b.First, b.Skipped
		}

		sum.Entries = append(sum.Entries, b.Entries...)
		sum.Losses.Add(b.Losses)
		if len(b.Cursor) > 300 {
			t.Errorf("cursor of %d bytes: %s", len(b.Cursor), b.Cursor)
		}

		from, sum.Cursor = b.Cursor, b.Cursor
		if !b.More {
			return sum
		}
	}
}

// brief is one entry as a word or two, for tables.
func brief(entries []checkpoint.Entry) []string {
	var list []string
	for _, e := range entries {
		s := string(e.Op) + string(e.Kind)
		for _, v := range []string{e.Text, e.Call, e.Output} {
			if v != "" {
				s += " " + v
			}
		}

		if e.Aside {
			s += " aside"
		}
		if e.Failed {
			s += " failed"
		}
		if e.MadeUp {
			s += " made up"
		}
		if e.Background {
			s += " background"
		}
		if e.Child != "" {
			s += " child:" + e.Child
		}

		list = append(list, s)
	}

	return list
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	g, _ := json.MarshalIndent(got, "", " ")
	w, _ := json.MarshalIndent(want, "", " ")
	if !bytes.Equal(g, w) {
		t.Errorf("%s:\n got %.3000s\nwant %.3000s", what, g, w)
	}
}

func texts(entries []checkpoint.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Text + "\n" + e.Output + "\n")
	}
	return b.String()
}

// records counts entries by the records they come from.
func records(entries []checkpoint.Entry) int {
	ids := map[string]bool{}
	for _, e := range entries {
		if e.Kind != checkpoint.EntryTurnEnd && e.Op == "" {
			id, _, _ := strings.Cut(e.ID, "#")
			ids[id] = true
		}
	}

	return len(ids)
}

// The rows that are one file and a count.
func TestFieldFiles(t *testing.T) {
	bad := func(lines ...int64) (list []int64) { return lines }
	for _, c := range []struct {
		file    string
		final   bool
		records int
		losses  checkpoint.Losses
		bad     []int64
	}{
		{"T01-torn-tail", true, 5, checkpoint.Losses{Torn: 150}, nil},
		{"T02-bad-line-middle", true, 6, checkpoint.Losses{BadLines: 2}, bad(4, 5)},
		{"T03-glued-records", true, 5, checkpoint.Losses{BadLines: 1, Rescued: 1}, bad(3)},
		{"T05-nul-after-record", true, 5, checkpoint.Losses{Holes: 1, HoleBytes: 4096}, nil},
		{"T05-nul-after-record", false, 5, checkpoint.Losses{Torn: 4096}, nil},
		{"T08-torn-header", true, 4, checkpoint.Losses{BadLines: 1}, bad(1)},
		{"T13-mixed-schema", true, 7, checkpoint.Losses{}, nil},
		{"T15-empty", true, 0, checkpoint.Losses{}, nil},
		{"L03-lone-high-surrogate", true, 3, checkpoint.Losses{Replaced: 1}, nil},
		{"L08-bom-crlf-blank", true, 3, checkpoint.Losses{BadLines: 1}, bad(6)},
		{"L09-escaped-nul", true, 3, checkpoint.Losses{}, nil},
		{"R01-duplicate-uuid", true, 7, checkpoint.Losses{Repeats: 5}, nil},
		{"R02-parent-cycle", true, 5, checkpoint.Losses{}, nil},
		{"R04-phantom-parent", true, 7, checkpoint.Losses{}, nil},
		{"S01-interleaved", true, 15, checkpoint.Losses{BadLines: 1, Rescued: 1}, bad(10)},
		{"S07-stub-only", true, 0, checkpoint.Losses{}, nil},
	} {
		t.Run(fmt.Sprintf("%s/final=%v", c.file, c.final), func(t *testing.T) {
			content := caseFile(t, c.file+".jsonl")
			r, path := transcript(t, content)
			got := all(t, r, "", checkpoint.ReadOptions{Whole: true, Final: c.final})
			if n := records(got.Entries); n != c.records {
				t.Errorf("got %d records, want %d: %q", n, c.records, brief(got.Entries))
			}

			var lines []int64
			for _, b := range got.Losses.Bad {
				lines = append(lines, b.Line)
			}

			got.Losses.Bad = nil
			if c.losses.Torn == 150 { // T01: whatever its torn line has
				c.losses.Torn = int64(len(content) - bytes.LastIndexByte(content, '\n') - 1)
			}

			equal(t, "losses", got.Losses, c.losses)
			equal(t, "bad lines", lines, c.bad)
			for _, e := range got.Entries {
				for _, s := range []string{e.Text, e.Output, e.Input} {
					if !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\x01") {
						t.Errorf("entry %s is not clean: %q", e.ID, s)
					}
				}
			}

			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
				t.Errorf("the file changed by being read: %v", err)
			}
		})
	}
}

// L08: the rest without a newline is held while the agent lives.
func TestL08RestIsHeldWhileLive(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "L08-bom-crlf-blank.jsonl"))
	live := all(t, r, "", whole)
	if n := records(live.Entries); n != 2 || live.Losses.Torn == 0 {
		t.Errorf("live: got %d records, torn %d; want 2 and its bytes", n, live.Losses.Torn)
	}

	final := all(t, r, live.Cursor, checkpoint.ReadOptions{Final: true})
	equal(t, "final", brief(final.Entries), []string{"user physical line 7, no final newline"})
	if again := all(t, r, final.Cursor, checkpoint.ReadOptions{Final: true}); again.Losses.Repeats != 0 {
		t.Errorf("the rest counts as a repeat: %+v", again.Losses)
	}
}

func TestT11EveryPrefix(t *testing.T) {
	good := caseFile(t, "T11-base-good.jsonl")
	dir := t.TempDir()
	for n := 0; n <= len(good); n++ {
		path := filepath.Join(dir, "t.jsonl")
		write(t, path, good[:n])
		r := openTranscript(agent.Source{Path: path, Session: sessionOne})
		got := all(t, r, "", whole)
		r.Close()
		if want := bytes.Count(good[:n], []byte("\n")); records(got.Entries) != want {
			t.Fatalf("first %d bytes: got %d records, want %d", n, records(got.Entries), want)
		}
	}
}

func TestT13EveryFormOfContent(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "T13-mixed-schema.jsonl"))
	got := texts(all(t, r, "", whole).Entries)
	for _, want := range []string{
		"with ordinal", "no ordinal", "uuid is a number here", "a bare string message", "last one",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestL01LongLine(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"type":"user","uuid":"u1","sessionId":"s1","message":{"role":"user","content":"before"}}` + "\n")
	b.WriteString(
		`{"type":"user","uuid":"u2","sessionId":"s1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"`,
	)
	b.Write(bytes.Repeat([]byte("x"), 15_000_000))
	b.WriteString(`"}]}}` + "\n")
	b.WriteString(
		`{"type":"assistant","uuid":"u3","sessionId":"s1","message":{"role":"assistant","content":[{"type":"text","text":"after"}]}}` + "\n",
	)
	r, _ := transcript(t, b.Bytes())
	got := all(t, r, "", checkpoint.ReadOptions{}) // first sight: the long line is in its window
	if len(got.Entries) != 3 || got.Entries[0].Text != "before" || got.Entries[2].Text != "after" {
		t.Fatalf("got %d entries, want before, the result, after", len(got.Entries))
	}
	if n := len(got.Entries[1].Output); n == 0 || n > checkpoint.CutTool {
		t.Errorf("result of %d bytes, want 1 to %d", n, checkpoint.CutTool)
	}
}

func TestL03SurrogatesAndL09Controls(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "L03-lone-high-surrogate.jsonl"))
	got := texts(all(t, r, "", whole).Entries)
	if n := strings.Count(got, "\uFFFD"); n != 1 || !strings.Contains(got, "a whole pair is kept: \U0001F3F7") {
		t.Errorf("got %d U+FFFD and %q", n, got)
	}

	r, _ = transcript(t, caseFile(t, "L09-escaped-nul.jsonl"))
	if got := texts(all(t, r, "", whole).Entries); !strings.Contains(got, "bin  end") {
		t.Errorf("control characters: got %q", got)
	}
}

func TestR01RepeatsAcrossRestart(t *testing.T) {
	content := caseFile(t, "R01-duplicate-uuid.jsonl")
	lines := bytes.SplitAfter(content, []byte("\n"))
	r, path := transcript(t, bytes.Join(lines[:7], nil))
	first := all(t, r, "", whole)
	write(t, path, content)
	same := all(t, r, first.Cursor, whole)
	later := all(t, open(t, path), first.Cursor, whole) // knows the ids again by reading before the cursor
	equal(t, "after a restart", later, same)
	if got := records(
		first.Entries,
	) + records(
		same.Entries,
	); got != 7 ||
		first.Losses.Repeats+same.Losses.Repeats != 5 {
		t.Errorf("got %d records and %d + %d repeats, want 7 and 5", got, first.Losses.Repeats, same.Losses.Repeats)
	}
}

func TestR05OpenCalls(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "R05-open-tool-use.jsonl"))
	open := map[string]bool{}
	for _, e := range all(t, r, "", whole).Entries {
		switch e.Kind {
		case checkpoint.EntryCall:
			open[e.Call] = true
		case checkpoint.EntryResult:
			delete(open, e.Call)
		}
	}

	equal(t, "open calls", open, map[string]bool{"call_b": true, "call_c": true})
}

func TestR08BothBranchesAndR09FileOrder(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "R08-two-branches.jsonl"))
	got := texts(all(t, r, "", whole).Entries)
	for _, want := range []string{"flag", "billing"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}

	r, _ = transcript(t, caseFile(t, "R09-time-disorder.jsonl"))
	var order []string
	for _, e := range all(t, r, "", whole).Entries {
		order = append(order, e.ID[len(e.ID)-1:])
	}

	equal(t, "order", order, []string{"1", "2", "3", "4", "5"})
}

func TestF01HalfRecord(t *testing.T) {
	r, path := transcript(t, []byte(`{"type":"user","uuid":"u1",`))
	got := all(t, r, "", whole)
	if len(got.Entries) != 0 || got.Losses.Torn != 27 {
		t.Errorf("half: got %q, torn %d", brief(got.Entries), got.Losses.Torn)
	}
	add(t, path, `"message":{"content":"hello"}}`+"\n")
	equal(t, "whole", brief(all(t, r, got.Cursor, whole).Entries), []string{"user hello"})
}

func TestF03RewrittenToTheSameSize(t *testing.T) {
	r, path := transcript(t, caseFile(t, "F03-before.jsonl"))
	before := all(t, r, "", whole)
	write(t, path, caseFile(t, "F03-after.jsonl")) // in place: the same inode
	after := all(t, r, before.Cursor, whole)
	if len(after.Entries) == 0 || after.Entries[0].Op != checkpoint.Reset {
		t.Fatalf("no reset first: %q", brief(after.Entries))
	}
	if n := records(after.Entries); n != 8 {
		t.Errorf("got %d new records, want 8", n)
	}
}

func TestF04Rotation(t *testing.T) {
	line := func(n int) string {
		return fmt.Sprintf(
			`{"type":"user","uuid":"u%d","sessionId":"%s","message":{"content":"n%d"}}`, n, sessionOne, n,
		) + "\n"
	}

	r, path := transcript(t, []byte(line(0)))
	got := all(t, r, "", whole)
	for n := 1; n <= 3; n++ {
		add(t, path, line(n))
	}

	if err := os.Rename(path, path+".bak"); err != nil {
		t.Fatal(err)
	}

	for n := 4; n <= 6; n++ {
		add(t, path, line(n))
	}

	equal(t, "entries", brief(all(t, r, got.Cursor, whole).Entries),
		[]string{"user n1", "user n2", "user n3", "reset", "user n4", "user n5", "user n6"})
}

func TestF11AnotherNewFileDoesNotUnbind(t *testing.T) {
	r, path := transcript(t, caseFile(t, "F11-old.jsonl"))
	got := all(t, r, "", whole)
	write(t, filepath.Join(filepath.Dir(path), sessionTwo+".jsonl"), caseFile(t, "F11-new-header-only.jsonl"))
	add(t, path, `{"type":"user","uuid":"new","message":{"content":"still the old file"}}`+"\n")
	equal(t, "entries", brief(all(t, r, got.Cursor, whole).Entries), []string{"user still the old file"})
}

func TestF12ShrunkToTheNewTurn(t *testing.T) {
	r, path := transcript(t, caseFile(t, "F12-before.jsonl"))
	before := all(t, r, "", whole)
	if n := records(before.Entries); n != 40 {
		t.Fatalf("before: got %d records, want 40", n)
	}

	write(t, path, caseFile(t, "F12-after.jsonl"))
	after := all(t, r, before.Cursor, whole)
	equal(t, "after", brief(after.Entries), []string{"reset", "user only the new turn is left"})
}

// A file that lost its end, and gets it back with more, gives what is new once and says that its past changed.
func TestShrunkFileGivesNothingTwice(t *testing.T) {
	content := caseFile(t, "F12-before.jsonl")
	lines := bytes.SplitAfter(content, []byte("\n"))
	r, path := transcript(t, content)
	got := all(t, r, "", whole)
	write(t, path, bytes.Join(lines[:10], nil))
	shrunk := all(t, r, got.Cursor, whole)
	equal(t, "shrunk", brief(shrunk.Entries), []string{"reset"})
	if shrunk.Losses.Repeats != 0 {
		t.Errorf("records read again count as repeats: %d", shrunk.Losses.Repeats)
	}

	add(t, path, `{"type":"user","uuid":"new","message":{"content":"more"}}`+"\n")
	equal(t, "then", brief(all(t, r, shrunk.Cursor, whole).Entries), []string{"user more"})
}

// What was read but could not be kept is read again from the older cursor.
func TestOlderCursorGivesTheSameAgain(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "R04-phantom-parent.jsonl"))
	first := all(t, r, "", whole)
	equal(t, "from the start again", all(t, r, "", whole), first)
	one, err := r.Read(context.Background(), "", checkpoint.ReadOptions{Whole: true})
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b, err := r.Read(ctx, `{"o":0}`, whole)
	if !errors.Is(err, context.Canceled) || b.Cursor != `{"o":0}` {
		t.Errorf("cancelled: got cursor %q, %v", b.Cursor, err)
	}

	again := all(t, r, `{"o":0}`, whole)
	equal(t, "after an error", again.Entries, one.Entries)
}

func TestAbsentAndOddCursors(t *testing.T) {
	r := open(t, filepath.Join(t.TempDir(), "no.jsonl"))
	for _, c := range []checkpoint.Cursor{"", `{"o":7}`} {
		if b, err := r.Read(context.Background(), c, whole); !errors.Is(err, fs.ErrNotExist) || b.Cursor != c {
			t.Errorf("absent file from %q: got %q, %v", c, b.Cursor, err)
		}
	}

	good, _ := transcript(t, caseFile(t, "R05-open-tool-use.jsonl"))
	for _, c := range []checkpoint.Cursor{"rubbish", `{"o":-5}`, `{"o":3}`, `{"o":99999999}`, `{"o":9223372036854775807}`} {
		if got := all(
			t, good, c, whole,
		); len(got.Entries) == 0 || got.Entries[0].Op != checkpoint.Reset ||
			records(got.Entries) != 4 {
			t.Errorf("cursor %q: got %q, want a reset and all", c, brief(got.Entries))
		}
	}
}

func TestS04EachRecordSaysItsSession(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "S04-wrong-file.jsonl"))
	by := map[string]int{}
	for _, e := range all(t, r, "", whole).Entries {
		by[e.Session]++
		if e.Session != "" && e.Workspace != "/proj/demo" {
			t.Errorf("entry of another session without its workspace: %+v", e)
		}
	}

	equal(t, "records by session", by, map[string]int{"": 5, sessionTwo: 4})
}

func TestM07HugeResult(t *testing.T) {
	r, _ := transcript(t, caseFile(t, "M07-one-huge-result.jsonl"))
	remember := 0
	for _, e := range all(t, r, "", checkpoint.ReadOptions{}).Entries {
		remember += strings.Count(e.Text, "remember")
		if len(e.Output) > checkpoint.CutTool {
			t.Errorf("output of %d bytes, want at most %d", len(e.Output), checkpoint.CutTool)
		}
		if e.Output != "" && (!strings.HasPrefix(e.Output, "BEGIN") || !strings.Contains(e.Output, "END")) {
			t.Errorf("head and tail of the output: %.20q ... %q", e.Output, e.Output[len(e.Output)-20:])
		}
	}

	if remember != 2 {
		t.Errorf("got %d remember lines, want 2", remember)
	}
}
