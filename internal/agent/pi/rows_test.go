package pi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
)

// chat makes a transcript of n prompts and answers by turns, numbered from first.
func chat(first, n int) []string {
	lines := []string{headLine}
	parent := ""
	for i := first; i < first+n; i++ {
		id := fmt.Sprintf("id%05d", i)
		role := []string{"user", "assistant"}[i%2]
		lines = append(lines, said(id, parent, role, fmt.Sprintf("words %05d", i)))
		parent = id
	}

	return lines
}

func TestT08TornHeader(t *testing.T) {
	torn := `{"type":"session","version":3,"id":"11111111-111`
	dir := t.TempDir()
	path := filepath.Join(dir, "11111111-1111-4111-8111-111111111111.jsonl")
	put(t, path, strings.Join(append([]string{torn}, chat(0, 4)[1:]...), "\n")+"\n")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	b := whole(t, path, true)
	if got := len(standing(b.Entries, talk...)); got != 4 || b.Losses.BadLines != 1 {
		t.Errorf("got %d records and %d bad lines, want 4 and 1", got, b.Losses.BadLines)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the transcript changed (%v)", err)
	}

	place := filepath.Join(dir, "agents", "main", "sessions")
	if err := os.MkdirAll(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(place, filepath.Base(path))); err != nil {
		t.Fatal(err)
	}

	found, err := OpenClaw(agenttest.Host("", "OPENCLAW_STATE_DIR="+dir)).Locate(context.Background(), agent.Query{})
	if err != nil || len(found) != 1 || found[0].Session != "11111111-1111-4111-8111-111111111111" {
		t.Errorf("got %v, %v, want the session that the file's name tells", found, err)
	}

	// The row's own file has records of another agent behind the header: nothing to tell, and no error.
	if b := whole(t, "testdata/T08-torn-header.jsonl", true); b.Losses.BadLines != 1 {
		t.Errorf("row's file: %d bad lines, want 1", b.Losses.BadLines)
	}
}

func TestT11EveryPrefix(t *testing.T) {
	data := strings.Join(chat(0, 6), "\n") + "\n"
	path := filepath.Join(t.TempDir(), "a.jsonl")
	put(t, path, "")
	for n := range len(data) + 1 {
		if n > 0 {
			add(t, path, data[n-1:n])
		}

		b := whole(t, path, true)
		got := len(standing(b.Entries, talk...))
		want := max(strings.Count(data[:n], "\n")-1, 0) // the header is no talk
		if n > 0 && n < len(data) && data[n] == '\n' && strings.Count(data[:n], "\n") > 0 {
			want++ // whole, but for its newline
		}
		if got != want || b.Losses.BadLines != 0 {
			t.Fatalf("first %d bytes: %d records and %d bad lines, want %d and 0", n, got, b.Losses.BadLines, want)
		}
	}
}

func TestT01TornTail(t *testing.T) {
	lines := chat(0, 5)
	path := write(t, lines[:5]...)
	add(t, path, lines[5][:40])
	for _, final := range []bool{false, true} {
		if b := whole(t, path, final); len(standing(b.Entries, talk...)) != 4 || b.Losses.Torn != 40 {
			t.Errorf(
				"final %v: got %d records and %d torn bytes, want 4 and 40", final,
				len(standing(b.Entries, talk...)), b.Losses.Torn,
			)
		}
	}
}

// A whole record without its newline is told when nobody writes any more, again at each look, and the cursor stays.
func TestL08LastNewlineMissing(t *testing.T) {
	lines := chat(0, 3)
	path := write(t, lines[:3]...)
	add(t, path, lines[3])
	tr := open(t, path)
	live := readAll(t, tr, "", checkpoint.ReadOptions{})
	if got := len(standing(live.Entries, talk...)); got != 2 {
		t.Errorf("while live: %d records, want 2", got)
	}

	for range 2 {
		b := readAll(t, tr, live.Cursor, checkpoint.ReadOptions{Final: true})
		if got := standing(b.Entries, talk...); len(got) != 1 || b.Cursor != live.Cursor || b.Losses.Repeats != 0 {
			t.Errorf("at the end: %q, cursor %q, want the third record and cursor %q", got, b.Cursor, live.Cursor)
		}
	}

	add(t, path, "\n")
	if got := standing(readAll(t, tr, live.Cursor, checkpoint.ReadOptions{}).Entries, talk...); len(got) != 1 {
		t.Errorf("with its newline: %q, want the third record", got)
	}
}

func TestR01RepeatsCountOnce(t *testing.T) {
	lines := chat(0, 6)
	more := said("id00006", "id00005", "user", "new after reopen")
	path := write(t, slices.Concat(lines, lines[2:], []string{more})...)
	b := whole(t, path, false)
	if got := len(standing(b.Entries, talk...)); got != 7 || b.Losses.Repeats != 5 {
		t.Errorf("got %d records and %d repeats, want 7 and 5", got, b.Losses.Repeats)
	}
	if n := slices.IndexFunc(b.Entries, func(e checkpoint.Entry) bool { return e.Op == checkpoint.Retract }); n >= 0 {
		t.Errorf("entry %d takes something back", n)
	}

	// The repeats come in another run: its reader knows them from what lies before the cursor.
	put(t, path, strings.Join(lines, "\n")+"\n")
	first := whole(t, path, false)
	add(t, path, strings.Join(append(lines[2:], more), "\n")+"\n")
	rest := once(t, path, first.Cursor, checkpoint.ReadOptions{})
	if got := standing(rest.Entries, talk...); len(got) != 1 || rest.Losses.Repeats != 5 {
		t.Errorf("in a later run: got %q and %d repeats, want the new one and 5", got, rest.Losses.Repeats)
	}
}

func TestF03SameSizeReplaced(t *testing.T) {
	before, after := chat(0, 8), chat(100, 8)
	after[0] = strings.Replace(after[0], "/proj/demo", "/proj/DEMO", 1)
	path := write(t, before...)
	tr := open(t, path)
	first := readAll(t, tr, "", checkpoint.ReadOptions{})
	put(t, path, strings.Join(after, "\n")+"\n")
	b := readAll(t, tr, first.Cursor, checkpoint.ReadOptions{})
	if len(b.Entries) == 0 || b.Entries[0].Op != checkpoint.Reset {
		t.Fatalf("got %v, want a reset first", show(b.Entries))
	}
	if got := len(standing(b.Entries, talk...)); got != 8 {
		t.Errorf("%d new records, want 8", got)
	}
}

func TestF12Shrunk(t *testing.T) {
	path := write(t, chat(0, 40)...)
	tr := open(t, path)
	first := readAll(t, tr, "", checkpoint.ReadOptions{Whole: true})
	put(t, path, headLine+"\n"+said("new", "", "user", "only the new turn is left")+"\n")
	b := readAll(t, tr, first.Cursor, checkpoint.ReadOptions{})
	if got, want := show(
		b.Entries,
	), []string{
		"reset",
		`meta "/proj/demo" "11111111-1111-4111-8111-111111111111"`,
		`user "only the new turn is left"`,
	}; !slices.Equal(
		got, want,
	) {
		t.Errorf("got %q, want %q", got, want)
	}

	// An earlier part of the same file: what is known does not come again, and the tree goes on from there.
	put(t, path, strings.Join(append(chat(0, 10), said("next", "id00009", "user", "next")), "\n")+"\n")
	c := readAll(t, tr, b.Cursor, checkpoint.ReadOptions{})
	if got := standing(
		c.Entries,
		talk...); !slices.Equal(got, []string{"next"}) ||
		c.Entries[0].Op != checkpoint.Reset {
		t.Errorf("got %q after %v, want the next prompt after a reset", got, c.Entries[0].Op)
	}

	if n := slices.IndexFunc(c.Entries, func(e checkpoint.Entry) bool { return e.Op == checkpoint.Retract }); n >= 0 {
		t.Errorf("entry %d takes something back", n)
	}
}

// pi gives ids to the records of an old file and writes it anew: the messages are the same ones.
func TestMigrationKeepsMessages(t *testing.T) {
	strip := func(line string) string {
		i, j := strings.Index(line, `"id"`), strings.Index(line, `"timestamp":"`)
		return line[:i] + line[j:]
	}

	lines := chat(0, 6)
	old := []string{strings.Replace(headLine, `"version":3,`, "", 1)}
	for _, l := range lines[1:] {
		old = append(old, strip(l))
	}

	path := write(t, old...)
	tr := open(t, path)
	first := readAll(t, tr, "", checkpoint.ReadOptions{})
	if got := len(standing(first.Entries, talk...)); got != 6 {
		t.Fatalf("%d records without ids, want 6", got)
	}

	put(t, path, strings.Join(append(lines, said("new", "id00005", "user", "new")), "\n")+"\n")
	b := readAll(t, tr, first.Cursor, checkpoint.ReadOptions{})
	if got := standing(b.Entries, talk...); !slices.Equal(got, []string{"new"}) {
		t.Errorf("got %q, want the new one alone", got)
	}
	if got := standing(append(first.Entries, whole(t, path, false).Entries...), talk...); len(got) != 7 {
		t.Errorf("both reads together hold %d messages, want 7: %q", len(got), got)
	}
}

func TestL03LoneSurrogate(t *testing.T) {
	line := func(id, text string) string {
		return `{"type":"message","id":"` + id + `","message":{"role":"user","content":"` + text + `"}}`
	}
	b := whole(
		t,
		write(
			t, headLine, line("a", `half \ud83c here`), line("b", "broken \xff\xfe bytes"),
			line("c", `pair \ud83e\udd9e`),
		),
		false,
	)

	got := standing(b.Entries, talk...)
	want := []string{"half \uFFFD here", "broken \uFFFD\uFFFD bytes", "pair 🦞"}
	if !slices.Equal(got, want) || b.Losses.Replaced != 3 {
		t.Errorf("got %q and %d replaced, want %q and 3", got, b.Losses.Replaced, want)
	}
}

func TestL09ControlCharacters(t *testing.T) {
	b := whole(t, write(
		t, headLine,
		`{"type":"message","id":"a","message":{"role":"user","content":"nul \u0000 esc \u001b[31m tab \t end\r\nline"}}`,
		`{"type":"message","id":"b","message":{"role":"assistant","content":[{"type":"toolCall","id":"c\u0000all","name":"ex\u0007ec","arguments":{"command":"printf \u0000\b\\\\u0000","x":"\ud83c"}}]}}`,
		`{"type":"message","id":"c","message":{"role":"toolResult","toolCallId":"c\u0000all","content":[{"type":"text","text":"out\u0000put"}]}}`,
	), false)

	want := []string{
		`meta "/proj/demo" "11111111-1111-4111-8111-111111111111"`,
		`user "nul  esc [31m tab \t end\nline"`,
		`call "call" "exec" "{\"command\":\"printf \\\\\\\\u0000\",\"x\":\"` + "\uFFFD" + `\"}"`,
		`result "call" "output"`,
	}

	if got := show(b.Entries); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestM07OneHugeResult(t *testing.T) {
	huge := `{"type":"message","id":"h","parentId":"id00001","message":{"role":"toolResult","toolCallId":"x","content":[{"type":"text","text":"` + strings.Repeat(
		"界", 2<<20,
	) + `"}]}}`

	lines := chat(0, 2)
	path := write(t, append(lines, huge, said("z", "h", "user", "remember this"))...)
	for _, full := range []bool{true, false} {
		b := once(t, path, "", checkpoint.ReadOptions{Whole: full})
		if got := standing(
			b.Entries, checkpoint.EntryUser,
		); !slices.Contains(got, "words 00000") ||
			!slices.Contains(got, "remember this") {
			t.Errorf("whole %v: got %q, want both prompts", full, got)
		}

		for _, e := range b.Entries {
			if len(e.Output) > checkpoint.CutTool || !utf8.ValidString(e.Output) {
				t.Errorf("output has %d bytes, want at most %d of valid UTF-8", len(e.Output), checkpoint.CutTool)
			}
		}
	}
}

func TestT15EmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	put(t, path, "")
	tr := open(t, path)
	b := readAll(t, tr, "", checkpoint.ReadOptions{Final: true})
	if len(b.Entries) != 0 || !b.First || b.Cursor == "" {
		t.Errorf("got %+v, want nothing and a cursor", b)
	}

	add(t, path, strings.Join(chat(0, 2), "\n")+"\n")
	if got := standing(readAll(t, tr, b.Cursor, checkpoint.ReadOptions{}).Entries, talk...); len(got) != 2 {
		t.Errorf("got %q, want two records", got)
	}
}

// F01: the cursor moves only past a newline.
func TestF01HalfWrittenLine(t *testing.T) {
	lines := chat(0, 1)
	path := write(t, lines[0])
	tr := open(t, path)
	c := readAll(t, tr, "", checkpoint.ReadOptions{}).Cursor
	add(t, path, lines[1][:50])
	b := readAll(t, tr, c, checkpoint.ReadOptions{})
	if len(b.Entries) != 0 || b.Losses.Torn != 50 {
		t.Errorf("half a line: got %v and %d torn bytes, want nothing and 50", show(b.Entries), b.Losses.Torn)
	}

	add(t, path, lines[1][50:]+"\n")
	if got := readAll(t, tr, b.Cursor, checkpoint.ReadOptions{}).Entries; len(got) != 1 {
		t.Errorf("the line's end: got %v, want one entry", show(got))
	}
}
