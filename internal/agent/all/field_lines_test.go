package all

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
)

// What a damaged transcript costs is the same whoever wrote it: these rows run over every agent that writes lines.

const session = "11111111-1111-4111-8111-111111111111"

// lineForm is how an agent writes a conversation. Record n is the person's when n is odd, else the model's.
type lineForm struct {
	agent, file, head string
	say               func(n int, text string) string
}

var lineForms = []lineForm{
	{"claude-code", session + ".jsonl", "", func(n int, text string) string {
		content := any(text)
		if n%2 == 0 {
			content = []map[string]string{{"type": "text", "text": text}}
		}
		return marshal(
			map[string]any{
				"type":       role(n),
				"uuid":       id(n),
				"parentUuid": id(n - 1),
				"sessionId":  session,
				"cwd":        "/proj",
				"timestamp":  stamp,
				"message":    map[string]any{"role": role(n), "content": content},
			},
		)
	}},
	{
		"codex",
		filepath.Join("sessions", "2026", "01", "05", "rollout-2026-01-05T10-00-00-"+session+".jsonl"),
		fmt.Sprintf(
			`{"timestamp":%q,"type":"session_meta","payload":{"id":%q,"session_id":%q,"cwd":"/proj","source":"exec"}}`,
			stamp, session, session,
		),
		func(n int, text string) string {
			kind := map[bool]string{true: "user.text", false: "unknown"}[n%2 == 1]
			return marshal(
				map[string]any{"timestamp": stamp, "type": "response_item", "payload": map[string]any{
					"type": "message",
					"id":   id(n),
					"role": role(n),
					"content": []map[string]string{
						{"type": "text", "text": text},
					},
					"internal_chat_message_metadata_passthrough": map[string]any{
						"turn_id":            "t",
						"content_item_kinds": []string{kind},
					},
				}},
			)
		},
	},
	{
		"gemini",
		"session-2026-01-05T10-00-11111111.jsonl",
		fmt.Sprintf(`{"sessionId":%q,"projectHash":"ab","startTime":%q,"kind":"main"}`, session, stamp),
		func(n int, text string) string {
			who := map[bool]string{true: "user", false: "gemini"}[n%2 == 1]
			return marshal(
				map[string]any{
					"id":        id(n),
					"timestamp": stamp,
					"type":      who,
					"content":   []map[string]string{{"text": text}},
				},
			)
		},
	},
	{"openclaw", session + ".jsonl", piHead, piSays},
	{"pi", "2026-01-05T10-00-00-000Z_" + session + ".jsonl", piHead, piSays},
	{"oh-my-pi", "2026-01-05T10-00-00-000Z_" + session + ".jsonl", titleHead() + "\n" + piHead, piSays},
	{
		"droid",
		session + ".jsonl",
		`{"type":"session_start","id":"` + session + `","title":"x","owner":"user","version":2,"cwd":"/proj"}`,
		func(n int, text string) string {
			return marshal(map[string]any{
				"type":      "message",
				"id":        id(n),
				"timestamp": stamp,
				"parentId":  id(n - 1),
				"message": map[string]any{
					"role":    role(n),
					"content": []map[string]string{{"type": "text", "text": text}},
				},
			})
		},
	},
}

const (
	stamp  = "2026-01-05T10:00:00.000Z"
	piHead = `{"type":"session","version":3,"id":"` + session + `","timestamp":"` + stamp + `","cwd":"/proj"}`
)

// titleHead is oh-my-pi's first line, which is padded to 256 bytes with its newline.
func titleHead() string {
	head := `{"type":"title","v":1,"title":"","updatedAt":"` + stamp + `","pad":"`
	return head + strings.Repeat(" ", 255-len(head)-len(`"}`)) + `"}`
}

func piSays(n int, text string) string {
	message := map[string]any{
		"role":      role(n),
		"content":   []map[string]string{{"type": "text", "text": text}},
		"timestamp": 1767607200000 + n,
	}

	if n%2 == 0 {
		message["stopReason"] = "stop"
	}

	return marshal(
		map[string]any{"type": "message", "id": id(n), "parentId": id(n - 1), "timestamp": stamp, "message": message},
	)
}

func role(n int) string { return map[bool]string{true: "user", false: "assistant"}[n%2 == 1] }

func id(n int) any {
	if n == 0 {
		return nil
	}
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
}

func said(n int) string { return fmt.Sprintf("words %d", n) }

// records gives lines from..to, and their words.
func (f lineForm) records(from, to int) (lines, words []string) {
	for n := from; n <= to; n++ {
		lines = append(lines, f.say(n, said(n)))
		words = append(words, said(n))
	}
	return lines, words
}

// all puts the head, where there is one, before lines and ends each with a newline.
func (f lineForm) all(lines ...string) string {
	if f.head != "" {
		lines = append([]string{f.head}, lines...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// heads is how many lines lie before the first record.
func (f lineForm) heads() int64 { return int64(min(1, len(f.head)) + strings.Count(f.head, "\n")) }

func (f lineForm) put(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), f.file)
	rewrite(t, path, text)
	return path
}

// reads is a reader of the agent's, as the daemon opens one.
func (f lineForm) reads(t *testing.T, path string) checkpoint.Transcript {
	t.Helper()
	a, ok := ByName(agent.Host{}, f.agent)
	if !ok {
		t.Fatalf("no agent %s", f.agent)
	}

	r := a.Open(agent.Source{Path: path, Session: session})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})

	return r
}

// whole is what a reader that begins now finds, when no writer lives.
func (f lineForm) whole(t *testing.T, path string) checkpoint.Batch {
	t.Helper()
	return readOn(t, f.reads(t, path), "", checkpoint.ReadOptions{Whole: true, Final: true})
}

func readOn(
	t *testing.T,
	r checkpoint.Transcript,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) checkpoint.Batch {
	t.Helper()
	sum := checkpoint.Batch{Cursor: from}
	for {
		b, err := r.Read(context.Background(), sum.Cursor, opt)
		if err != nil {
			t.Fatalf("read from %q: %v", sum.Cursor, err)
		}

		sum.Entries, sum.Cursor = append(sum.Entries, b.Entries...), b.Cursor
		sum.Losses.Add(b.Losses)
		if !b.More {
			return sum
		}
	}
}

// talk gives the words that stand, in order: what was taken back is out.
func talk(entries []checkpoint.Entry) []string {
	var list []checkpoint.Entry
	for _, e := range entries {
		i := slices.IndexFunc(list, func(o checkpoint.Entry) bool { return o.ID == e.ID })
		switch {
		case e.Op == checkpoint.Retract && i >= 0:
			list = slices.Delete(list, i, i+1)
		case e.Op != checkpoint.Upsert || e.Kind != checkpoint.EntryUser && e.Kind != checkpoint.EntryAssistant:
		case i >= 0 && e.ID != "":
			list[i] = e
		default:
			list = append(list, e)
		}
	}

	words := make([]string, len(list))
	for i, e := range list {
		words[i] = e.Text
	}

	return words
}

func wantTalk(t *testing.T, b checkpoint.Batch, want []string) {
	t.Helper()
	if got := talk(b.Entries); !slices.Equal(got, want) {
		t.Errorf("got %d records %.300q, want %d %.300q", len(got), got, len(want), want)
	}
}

// bad gives the lines and the offsets of the bad lines.
func bad(l checkpoint.Losses) (list [][2]int64) {
	for _, b := range l.Bad {
		list = append(list, [2]int64{b.Line, b.Offset})
	}
	return list
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func everyLineForm(t *testing.T, test func(t *testing.T, f lineForm)) {
	for _, f := range lineForms {
		t.Run(f.agent, func(t *testing.T) { test(t, f) })
	}
}

func TestT01TornTailOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 5)
		torn := f.say(6, said(6))
		torn = torn[:len(torn)*2/3]
		b := f.whole(t, f.put(t, f.all(lines...)+torn))
		wantTalk(t, b, words)
		if got, want := b.Losses.Torn, int64(len(torn)); got != want || b.Losses.BadLines != 0 {
			t.Errorf("%d torn bytes and %d bad lines, want %d and 0", got, b.Losses.BadLines, want)
		}
	})
}

func TestT02BadLinesInTheMiddleOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 6)
		cut, raw := f.say(9, said(9)), f.say(10, "a raw \x01 control")
		cut = cut[:len(cut)/2]
		raw = strings.Replace(raw, `\u0001`, "\x01", 1)
		before := f.all(lines[:3]...)
		b := f.whole(t, f.put(t, before+cut+"\n"+raw+"\n"+strings.Join(lines[3:], "\n")+"\n"))
		wantTalk(t, b, words)
		first, off := f.heads()+4, int64(len(before))
		want := [][2]int64{{first, off}, {first + 1, off + int64(len(cut)) + 1}}
		if got := bad(b.Losses); !slices.Equal(got, want) || b.Losses.BadLines != 2 {
			t.Errorf("%d bad lines at %v (line, offset), want 2 at %v", b.Losses.BadLines, got, want)
		}
	})
}

func TestT03GluedRecordsOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 5)
		stub := f.say(9, said(9))
		lines[2] = stub[:40] + lines[2]
		b := f.whole(t, f.put(t, f.all(lines...)))
		wantTalk(t, b, words)
		if b.Losses.Rescued != 1 || b.Losses.BadLines != 1 {
			t.Errorf("%d rescued and %d lost, want 1 and 1", b.Losses.Rescued, b.Losses.BadLines)
		}

		// Two whole records on one line: nothing of it is lost.
		lines, words = f.records(1, 5)
		b = f.whole(t, f.put(t, f.all(lines[0], lines[1]+lines[2], lines[3], lines[4])))
		wantTalk(t, b, words)
	})
}

func TestT05NULBlocksOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 5)
		lines[4] += strings.Repeat("\x00", 9<<10)
		b := f.whole(t, f.put(t, f.all(lines...)+strings.Repeat("\x00", 143<<10)))
		wantTalk(t, b, words)
		if b.Losses.BadLines != 0 || b.Losses.Holes == 0 || b.Losses.HoleBytes < 143<<10 {
			t.Errorf("losses %+v, want a hole of %d bytes or more and no bad line", b.Losses, 143<<10)
		}

		// A hole of any length is never held in memory.
		lines, _ = f.records(1, 5)
		path := f.put(t, f.all(lines...))
		const hole = 256 << 20
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()+hole); err != nil {
			t.Fatal(err)
		}

		add(t, path, "\n"+f.say(6, said(6))+"\n")
		r := f.reads(t, path)
		before := allocated()
		b = readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		if grown := allocated() - before; grown > hole/4 {
			t.Errorf("%d bytes were allocated for a hole of %d", grown, hole)
		}

		wantTalk(t, b, append(words, said(6)))
		if b.Losses.HoleBytes != hole {
			t.Errorf("a hole of %d bytes, want %d", b.Losses.HoleBytes, hole)
		}
	})
}

func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

func TestT08TornFirstLineOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 5)
		torn, rest := f.head, lines
		if torn == "" {
			torn, rest, words = lines[0], lines[1:], words[1:]
		}

		path := f.put(t, torn[:len(torn)/2]+"\n"+strings.Join(rest, "\n")+"\n")
		old := time.Now().Add(-time.Hour).Truncate(time.Second)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}

		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		b := f.whole(t, path)
		wantTalk(t, b, words)
		if b.Losses.BadLines != 1 {
			t.Errorf("%d bad lines, want 1", b.Losses.BadLines)
		}

		for _, e := range b.Entries {
			if e.Session != "" && e.Session != session {
				t.Errorf("entry of session %q, want the one that the file's name tells", e.Session)
			}
		}

		after, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err != nil || err2 != nil || !bytes.Equal(before, after) || !info.ModTime().Equal(old) {
			t.Errorf("the transcript changed by being read: %v %v, stamp %v, want %v", err, err2, info.ModTime(), old)
		}
	})
}

func TestT11EveryPrefixOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 2)
		text := f.all(lines...)
		path := f.put(t, "")
		for n := range len(text) + 1 {
			add(t, path, text[max(0, n-1):n])
			r := f.reads(t, path)
			b, err := r.Read(context.Background(), "", checkpoint.ReadOptions{Whole: true})
			if err != nil {
				t.Fatalf("first %d bytes: %v", n, err)
			}

			want := words[:max(0, strings.Count(text[:n], "\n")-int(f.heads()))]
			if got := talk(b.Entries); !slices.Equal(got, want) || b.Losses.BadLines != 0 {
				t.Fatalf("first %d bytes: got %q and %d bad lines, want %q and none", n, got, b.Losses.BadLines, want)
			}
		}
	})
}

func TestT13OtherVersionsOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 4)
		lines[1] = strings.Replace(lines[1], `"timestamp":"`+stamp+`"`, `"timestamp":[7]`, 1)
		lines[2] = strings.Replace(lines[2], `"timestamp":"`+stamp+`",`, ``, 1)
		lines[2] = strings.TrimSuffix(lines[2], "}") + `,"brand_new":{"x":[1,null]},"ordinal":"seven"}`
		b := f.whole(
			t,
			f.put(
				t,
				f.all(
					lines[0], `{"type":"brand_new_kind","payload":{"a":1}}`, `{"type":7}`, lines[1], lines[2],
					lines[3],
				),
			),
		)

		wantTalk(t, b, words)
		if b.Losses.BadLines != 0 {
			t.Errorf("%d bad lines %v, want none: all of them are records", b.Losses.BadLines, b.Losses.Bad)
		}
	})
}

func TestT15EmptyFileOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		path := f.put(t, "")
		r := f.reads(t, path)
		b := readOn(t, r, "", checkpoint.ReadOptions{})
		if len(b.Entries) != 0 || b.Losses.BadLines != 0 || b.Losses.Torn != 0 {
			t.Errorf("an empty file: %d entries, losses %+v, want nothing", len(b.Entries), b.Losses)
		}

		lines, words := f.records(1, 3)
		add(t, path, f.all(lines...))
		wantTalk(t, readOn(t, r, b.Cursor, checkpoint.ReadOptions{}), words)
	})
}

func TestL01LongLineOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		long := strings.Repeat("x", 15_000_000)
		path := f.put(t, f.all(f.say(1, said(1)), f.say(2, long), f.say(3, said(3))))
		got := talk(f.whole(t, path).Entries) // first sight's window is that of M07
		if len(got) != 3 || got[0] != said(1) || got[2] != said(3) {
			t.Fatalf("got %d records, want 3 with both neighbours", len(got))
		}
		if n := len(got[1]); n == 0 || n > checkpoint.CutText {
			t.Errorf("the long one has %d bytes, want 1 to %d", n, checkpoint.CutText)
		}
	})
}

func TestL03HalfSurrogatesOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		half := strings.Replace(f.say(2, "half HERE of one"), "HERE", `\ud83c`, 1)
		pair := strings.Replace(f.say(3, "a pair HERE"), "HERE", `\ud83e\udd9e`, 1)
		raw := strings.Replace(f.say(4, "raw HERE bytes"), "HERE", "\xff", 1)
		b := f.whole(t, f.put(t, f.all(f.say(1, said(1)), half, pair, raw)))
		wantTalk(t, b, []string{said(1), "half \uFFFD of one", "a pair 🦞", "raw \uFFFD bytes"})
		if b.Losses.Replaced != 2 {
			t.Errorf("%d replaced, want 2", b.Losses.Replaced)
		}
	})
}

func TestL08BlanksAndLineEndsOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 3)
		text := "\ufeff"
		if f.head != "" {
			text += f.head + "\r\n"
		}

		text += lines[0] + "\r\n" + "\n" + "   \t\n" + lines[1] + "\r\n"
		off := int64(len(text))
		text += "{not a record\n" + lines[2] // its newline never came
		path := f.put(t, text)
		r := f.reads(t, path)
		live := readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		wantTalk(t, live, words[:2])
		want := [][2]int64{{f.heads() + 5, off}}
		if got := bad(live.Losses); !slices.Equal(got, want) {
			t.Errorf("bad lines %v (line, offset), want %v", got, want)
		}

		wantTalk(t, f.whole(t, path), words)
		add(t, path, "\n")
		wantTalk(t, readOn(t, r, live.Cursor, checkpoint.ReadOptions{}), words[2:])
	})
}

func TestL09ControlCharactersOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		b := f.whole(
			t,
			f.put(t, f.all(f.say(1, "bin \x00\x01 end"), f.say(2, "red \x1b[31m tab\tline\nend"), f.say(3, said(3)))),
		)

		wantTalk(t, b, []string{"bin  end", "red [31m tab\tline\nend", said(3)})
		for _, e := range b.Entries {
			if !utf8.ValidString(e.Text) {
				t.Errorf("%q is no valid UTF-8", e.Text)
			}
		}
	})
}
