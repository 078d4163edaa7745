package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/recovery"
)

// The field cases that are a file, as a person meets them: belay recover --transcript FILE, with nothing else known.

const caseFiles = "../../internal/agent/claude/testdata/reader/cases/"

// recovered runs belay recover, which must succeed, and gives its text and its JSON form.
func (h home) recovered(t *testing.T, args ...string) (text string, r recovery.Result) {
	t.Helper()
	args = append([]string{"recover"}, args...)
	text, code := h.belay(t, string(h), args...)
	out, code2 := h.belay(t, string(h), append(args, "--json")...)
	if code != exitOK || code2 != exitOK {
		t.Fatalf("belay %q: exit codes %d and %d, want 0", args, code, code2)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("belay %q --json: %v\n%s", args, err, out)
	}

	return text, r
}

// saidTexts are the texts of all messages, in their order.
func saidTexts(r recovery.Result) []string {
	list := make([]string, len(r.Messages))
	for i, m := range r.Messages {
		list[i] = m.Text
	}
	return list
}

// fileCase is one transcript, and what a person must be told of it.
type fileCase struct {
	file     string
	messages int           // that are told, which is all there are
	lost     recovery.Lost // what could not be read
	holds    []string      // in the text
	lacks    []string
}

func (c fileCase) run(t *testing.T) {
	t.Helper()
	path, err := filepath.Abs(caseFiles + c.file + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}

	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	text, r := newHome(t).recovered(t, "--transcript", path)
	if took := time.Since(began); took > 10*time.Second { // two runs; R02 asks for 1 s each
		t.Errorf("recover took %v, want 1s (5s at most)", took/2)
	}
	if got := len(r.Messages); got != c.messages {
		t.Errorf("%d messages, want %d: %q", got, c.messages, saidTexts(r))
	}
	if r.Lost != c.lost {
		t.Errorf("lost %+v, want %+v", r.Lost, c.lost)
	}

	for _, want := range c.holds {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}

	for _, no := range c.lacks {
		if strings.Contains(text, no) {
			t.Errorf("%q is in\n%s", no, text)
		}
	}

	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the transcript changed by being read: %v", err)
	}
}

func TestT01TornTail(t *testing.T) {
	fileCase{
		"T01-torn-tail",
		5,
		recovery.Lost{TornBytes: 150},
		[]string{"1 torn line of 150 bytes", "> step 4", "step 5"},
		nil,
	}.run(
		t,
	)
}

func TestT02BadLineInTheMiddle(t *testing.T) {
	fileCase{
		"T02-bad-line-middle",
		6,
		recovery.Lost{BadLines: 2},
		[]string{"2 bad transcript lines", "step 1", "step 3", "step 5", "step 6", "step 7"},
		nil,
	}.run(
		t,
	)
}

func TestT03GluedRecords(t *testing.T) {
	fileCase{
		"T03-glued-records",
		5,
		recovery.Lost{BadLines: 1},
		[]string{"1 bad transcript line", "the record after the stub", "step 5"},
		nil,
	}.run(
		t,
	)
}

func TestT05NULAfterRecord(t *testing.T) {
	fileCase{
		"T05-nul-after-record",
		5,
		recovery.Lost{Holes: 1, HoleBytes: 4096},
		[]string{"1 hole(s) of 4096 bytes", "valid, then padding", "next turn"},
		[]string{"\x00"},
	}.run(
		t,
	)
}

func TestT08TornHeader(t *testing.T) {
	fileCase{"T08-torn-header", 4, recovery.Lost{BadLines: 1}, nil, nil}.run(t)
}

func TestT13MixedSchema(t *testing.T) {
	fileCase{
		"T13-mixed-schema",
		7,
		recovery.Lost{},
		[]string{"no ordinal", "a bare string message", "last one"},
		nil,
	}.run(
		t,
	)
}

func TestT15EmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	text, r := newHome(t).recovered(t, "--agent", "claude-code", "--transcript", path)
	if len(r.Messages) > 0 || r.Lost != (recovery.Lost{}) || strings.Contains(text, "Not readable") {
		t.Errorf("an empty file: %d messages, lost %+v, want a valid empty session:\n%s", len(r.Messages), r.Lost, text)
	}
}

// L03: the tool's result with half an emoji is not shown; when a person or the model says it, U+FFFD stands there.
func TestL03LoneSurrogate(t *testing.T) {
	fileCase{
		"L03-lone-high-surrogate",
		2,
		recovery.Lost{},
		[]string{"a whole pair is kept: \U0001F3F7"},
		[]string{`\ud83c`},
	}.run(
		t,
	)

	text := saidInstead(t, "L03-lone-high-surrogate", "make a page", `Your AI Avatar \ud83c`)
	if n := strings.Count(
		text, "\uFFFD",
	); n == 0 || !utf8.ValidString(text) || strings.Contains(text, `\ud83c`) ||
		!strings.Contains(text, "\U0001F3F7") {
		t.Errorf("%d U+FFFD; want the half replaced, the pair whole, valid UTF-8:\n%s", n, text)
	}
}

// saidInstead recovers from a case file in which other words were said; words are the inside of a JSON string.
func saidInstead(t *testing.T, file, old, words string) string {
	t.Helper()
	data, err := os.ReadFile(caseFiles + file + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "t.jsonl")
	if err := os.WriteFile(path, bytes.Replace(data, []byte(old), []byte(words), 1), 0o600); err != nil {
		t.Fatal(err)
	}

	text, r := newHome(t).recovered(t, "--transcript", path)
	if len(r.Messages) == 0 {
		t.Errorf("no messages in\n%s", text)
	}

	return text
}

func TestL08BlanksAndLineEnds(t *testing.T) {
	fileCase{
		"L08-bom-crlf-blank",
		3,
		recovery.Lost{BadLines: 1},
		[]string{"line 1 with BOM", "physical line 5", "physical line 7, no final newline"},
		nil,
	}.run(
		t,
	)
}

func TestL09EscapedNUL(t *testing.T) {
	fileCase{"L09-escaped-nul", 2, recovery.Lost{}, nil, []string{"\x00", "\x01"}}.run(t)
	text := saidInstead(t, "L09-escaped-nul", `"content":"start"`, `"content":"bin \u0000\u0001\u001b[2J end"`)
	if strings.ContainsAny(text, "\x00\x01\x1b") || !strings.Contains(text, "bin ") || !strings.Contains(text, " end") {
		t.Errorf("want the words without their control characters in\n%s", text)
	}
}

func TestR01DuplicateUUID(t *testing.T) {
	fileCase{"R01-duplicate-uuid", 7, recovery.Lost{}, nil, nil}.run(t)
}

// R02: a cycle of parents and a record that is its own: no walk is endless, and nothing is cut off.
func TestR02ParentCycle(t *testing.T) {
	fileCase{"R02-parent-cycle", 5, recovery.Lost{}, []string{"turn one", "answer", "own parent", "> end"}, nil}.run(t)
}

// R04: the prompt after the phantom parent, and all that lies before it, is there.
func TestR04PhantomParent(t *testing.T) {
	c := fileCase{
		"R04-phantom-parent",
		7,
		recovery.Lost{},
		[]string{"step 1", "step 4", "first prompt after resume", "answer to it", "next"},
		nil,
	}

	c.run(t)
	path, err := filepath.Abs(caseFiles + c.file + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}

	_, r := newHome(
		t,
	).recovered(
		t, "--transcript", path, "--format", "delta", "--roles", "user,assistant", "--max-messages", "20",
	)

	if len(r.Messages) != 7 {
		t.Errorf("%d records in the delta, want all 7: %q", len(r.Messages), saidTexts(r))
	}
}

func TestR05OpenCallsAreNamed(t *testing.T) {
	fileCase{
		"R05-open-tool-use",
		2,
		recovery.Lost{},
		[]string{"make deploy-staging", "make smoke", "Result unknown", "In doubt"},
		[]string{"tool_use"},
	}.run(
		t,
	)
}

func TestR08BothBranches(t *testing.T) {
	path, err := filepath.Abs(caseFiles + "R08-two-branches.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	text, _ := newHome(t).recovered(t, "--transcript", path)
	for _, want := range []string{"flag", "billing"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// R09: the order is the file's, whatever the stamps say, in the text and in its JSON form.
func TestR09TimeDisorder(t *testing.T) {
	path, err := filepath.Abs(caseFiles + "R09-time-disorder.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var want []string
	for line := range bytes.Lines(data) {
		var rec struct{ UUID string }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		want = append(want, rec.UUID)
	}

	_, r := newHome(
		t,
	).recovered(
		t, "--transcript", path, "--format", "delta", "--roles", "user,assistant", "--max-messages", "20",
		"--max-bytes", "9000",
	)

	var got []string
	for _, m := range r.Messages {
		got = append(got, m.ID)
	}

	if len(want) != 5 || !slices.Equal(got, want) {
		t.Errorf("order %q, want that of the file %q", got, want)
	}

	at := 0
	for _, m := range r.Messages {
		i := strings.Index(r.Text[at:], m.Text)
		if i < 0 {
			t.Fatalf("%q is not behind the one before it in\n%s", m.Text, r.Text)
		}
		at += i
	}
}

func TestM07OneHugeResult(t *testing.T) {
	path, err := filepath.Abs(caseFiles + "M07-one-huge-result.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	text, _ := newHome(t).recovered(t, "--transcript", path, "--max-bytes", "4096")
	if n := strings.Count(text, "remember"); n != 2 || len(text) > 4096 {
		t.Errorf("%d remember lines in %d bytes, want both in 4096:\n%s", n, len(text), text)
	}
}

func TestC12FutureStamps(t *testing.T) {
	path, err := filepath.Abs(caseFiles + "C12-future-stamps.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	h := newHome(t)
	all, r := h.recovered(t, "--transcript", path)
	if len(r.Messages) == 0 || strings.Contains(all, "in 5 years") || strings.Contains(all, "years from now") {
		t.Errorf("%d messages in\n%s", len(r.Messages), all)
	}

	// The border of a delta is a place in the file: an age drops nothing because of a stamp.
	_, since := h.recovered(
		t, "--transcript", path, "--since", "2h", "--format", "delta", "--roles", "user,assistant",
		"--max-messages", "20",
	)

	if len(since.Messages) != len(r.Messages) {
		t.Errorf("--since 2h: %q, want all of %q", saidTexts(since), saidTexts(r))
	}
}

// T11: what a live read accepts, recovery never fails on. The readers are tried at every byte; the program at some.
func TestT11RecoverOfPrefixes(t *testing.T) {
	data, err := os.ReadFile(caseFiles + "T11-base-good.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	talks := func(prefix []byte) (n int) { // whole lines with words of a person or the model
		for line := range bytes.Lines(prefix) {
			if bytes.HasSuffix(line, []byte("\n")) &&
				(bytes.Contains(line, []byte(`"type":"text"`)) || bytes.Contains(line, []byte(`"role":"user","content":"`))) {
				n++
			}
		}
		return n
	}

	h := newHome(t)
	path := filepath.Join(t.TempDir(), "t.jsonl")
	for i := range 12 {
		cut := len(data) * i / 11
		if i%3 == 0 { // at a line's end
			cut = bytes.LastIndexByte(data[:cut], '\n') + 1
		}
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}

		_, r := h.recovered(t, "--agent", "claude-code", "--transcript", path)
		if want := talks(data[:cut]); len(r.Messages) != want {
			t.Errorf("first %d bytes: %d messages, want %d", cut, len(r.Messages), want)
		}
	}
}
