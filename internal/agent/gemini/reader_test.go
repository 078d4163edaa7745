package gemini

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
)

// TestGolden: what each transcript comes to, and that nothing of it changes by being read, by being found, or by hooks
// that name it.
func TestGolden(t *testing.T) {
	var got strings.Builder
	for _, path := range transcriptFiles(t) {
		before := looks(t, filepath.Dir(path))
		b := readAll(t, open(path), "", checkpoint.ReadOptions{})
		fmt.Fprintf(&got, "%s: %s\n", filepath.Base(path), digest(b))
		newestAnswer(path, time.Time{})
		headerOf(path)
		liveFile(path, "x")
		if after := looks(t, filepath.Dir(path)); !maps.Equal(before, after) {
			t.Errorf("%s: its folder changed by being read: got %v, want %v", path, after, before)
		}
	}

	const golden = "testdata/golden.txt"
	if *update {
		put(t, golden, got.String())
	}

	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// TestReadInPieces: however often and with whatever pauses and restarts a file is looked at while it grows, the fold
// comes to the same.
func TestReadInPieces(t *testing.T) {
	for _, path := range transcriptFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if isDocument(path) {
			continue
		}

		want := standing(readAll(t, open(path), "", checkpoint.ReadOptions{Whole: true}).Entries)
		for _, restart := range []bool{false, true} {
			grow := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
			put(t, grow, "")
			tr := open(grow)
			var entries []checkpoint.Entry
			var cur checkpoint.Cursor
			for i := 0; i < len(data); i += 97 {
				more(t, grow, string(data[i:min(i+97, len(data))]))
				if restart {
					if err := tr.Close(); err != nil {
						t.Fatal(err)
					}
					tr = open(grow)
				}

				b := readAll(t, tr, cur, checkpoint.ReadOptions{Whole: true})
				cur, entries = b.Cursor, append(entries, b.Entries...)
			}

			if got := standing(entries); got != want {
				t.Errorf("%s, restart %v: got\n%s\nwant\n%s", path, restart, got, want)
			}
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestForms(t *testing.T) {
	call := `{"id":"c1","name":"run_shell_command","args":{"command":"ls"},"status":"success","result":[{"functionResponse":{"id":"c1","response":{"output":"a.txt"}}}]}`
	failing := strings.ReplaceAll(call, `a.txt`, `Output: x\nExit Code: 3\nProcess Group PGID: 9`)
	asked := `{"id":"m2","type":"gemini","content":"I look.","toolCalls":[` + call + `]}`
	tests := []struct{ name, lines, want string }{
		{
			"bare and in batches, each once",
			said(
				"m1", "user", "hello",
			) + "\n" + batch(
				said("m1", "user", "hello"), said("m2", "gemini", "hi"),
			) + "\n" + said(
				"m2", "gemini", "hi",
			),
			"user m1 hello\nassistant m2 hi",
		},
		{
			"same id twice: the last wins",
			said("m2", "gemini", "one") + "\n" + said("m2", "gemini", "one and more"),
			"assistant m2 one\nassistant m2 one and more",
		},
		{"the calls come with the second", said("m2", "gemini", "I look.") + "\n" + asked + "\n" + asked,
			"assistant m2 I look.\ncall run_shell_command {\"command\":\"ls\"}\nresult run_shell_command a.txt"},
		{
			"a failing command",
			strings.ReplaceAll(asked, call, failing),
			"assistant m2 I look.\ncall run_shell_command {\"command\":\"ls\"}\nresult,failed run_shell_command Output: x\nExit Code: 3\nProcess Group PGID: 9",
		},
		{
			"a call that goes on",
			strings.ReplaceAll(asked, "success", "executing"),
			"assistant m2 I look.\ncall run_shell_command {\"command\":\"ls\"}",
		},
		{
			"rewound",
			said(
				"m1", "user", "one",
			) + "\n" + said(
				"m2", "gemini", "two",
			) + "\n" + said(
				"m3", "user", "three",
			) + "\n" + `{"$rewindTo":"m2"}` + "\n" + said(
				"m4", "user", "four",
			),
			"user m1 one\nassistant m2 two\nuser m3 three\nretract m3\nretract m2\nuser m4 four",
		},
		{"rewound to nowhere", said("m1", "user", "one") + "\n" + `{"$rewindTo":"gone"}`, "user m1 one\nretract m1"},
		{
			"what a batch leaves out was said",
			said("m1", "user", "one") + "\n" + batch(said("m2", "gemini", "two")),
			"user m1 one\nassistant m2 two",
		},
		{
			"no words of a person's",
			said(
				"c0", "user", "<session_context>tree</session_context>",
			) + "\n" + said(
				"m1", "user", "<hook_context>from a hook</hook_context>\n\nhello",
			) + "\n" +
				said(
					"m2", "user", "/help me",
				) + "\n" + said(
				"m3", "user", "/usr/bin/x is gone, why?",
			),
			"user m1 hello\nuser,aside m2 /help me\nuser m3 /usr/bin/x is gone, why?",
		},
		{
			"the program's words on a loop",
			said(
				"m1", "user", "hello",
			) + "\n" + said(
				"m2", "user", "System: Potential loop detected. Details: x. Please take a step back",
			),
			"user m1 hello",
		},
		{
			"belay's own words come back",
			said(
				"m1", "user",
				`<hook_context>&lt;belay-record k="abc"&gt;old words&lt;/belay-record k="abc"&gt;</hook_context>`+"\n\nhello",
			),
			"own abc\nuser m1 hello",
		},
		{
			"a compaction",
			said(
				"m1", "user", "one",
			) + "\n" + said(
				"m2", "gemini", "two",
			) + "\n" + said(
				"s", "user", "<state_snapshot>all</state_snapshot>",
			) + "\n" +
				said(
					"t", "gemini", thanksForSummary,
				) + "\n" + said(
				"n1", "user", "one",
			) + "\n" + said(
				"n2", "gemini", "two",
			) + "\n" +
				batch(
					said("s", "user", "<state_snapshot>all</state_snapshot>"),
					said("t", "gemini", thanksForSummary), said("n1", "user", "one"),
					said("n2", "gemini", "two"),
				) + "\n" + said(
				"m3", "user", "one",
			),
			"user m1 one\nassistant m2 two\ncompaction s <state_snapshot>all</state_snapshot>\nuser m3 one",
		},
		{
			"an old compaction, in a batch alone",
			said(
				"m1", "user", "one",
			) + "\n" + batch(
				said("s", "user", "<state_snapshot>all</state_snapshot>"),
				said("t", "gemini", thanksForSummary),
			) + "\n" + said(
				"m2", "user", "two",
			),
			"user m1 one\ncompaction s <state_snapshot>all</state_snapshot>\nuser m2 two",
		},
		{
			"a compaction by a model that thinks aloud",
			said("m1", "user", "one") + "\n" + said("m2", "gemini", "two") + "\n" +
				batch(
					said("s", "user", "<scratchpad>hm</scratchpad>\n<state_snapshot>all</state_snapshot>"),
					said("t", "gemini", thanksForSummary), said("n1", "user", "one"),
					said("n2", "gemini", "two"),
				) +
				"\n" + said("m3", "user", "three"),
			"user m1 one\nassistant m2 two\ncompaction s <state_snapshot>all</state_snapshot>\nuser m3 three",
		},
		{
			"a summary of another form",
			said(
				"m1", "user", "one",
			) + "\n" + batch(
				said("s", "user", "All was well."), said("t", "gemini", thanksForSummary),
				said("n1", "user", "one"),
			),
			"user m1 one\ncompaction s All was well.",
		},
		{
			"a person who quotes a summary",
			said("m1", "user", "what is a <state_snapshot>?"),
			"user m1 what is a <state_snapshot>?",
		},
		{
			"thoughts are left out",
			`{"id":"m2","type":"gemini","content":[{"text":"**Hm**","thought":true},{"text":"Words"},{"functionCall":{"name":"x"}}]}`,
			"assistant m2 Words",
		},
		{"made up after a death", said("m2", "gemini", interruptedReply), ""},
		{
			"broken off in a call",
			strings.ReplaceAll(asked, `"success","result"`, `"cancelled","result"`),
			"assistant m2 I look.\ncall run_shell_command {\"command\":\"ls\"}\nresult,failed run_shell_command a.txt\ninterrupt cut:m2",
		},
		{
			"broken off",
			said("m1", "user", "one") + "\n" + said("e", "info", "Request cancelled."),
			"user m1 one\ninterrupt e",
		},
		{
			"an error",
			said("m1", "user", "one") + "\n" + said("e", "error", "[API Error: 400]"),
			"user m1 one\nturn-end,failed e",
		},
		{
			"a bad line costs itself",
			said("m1", "user", "one") + "\n{\"id\":\"m2\",\"type\":\"ge\n" + said("m3", "user", "three"),
			"user m1 one\nuser m3 three",
		},
		{
			"a record behind a stub",
			said("m1", "user", "one") + "\n{\"id\":\"m2\",\"ty" + said("m3", "user", "three"),
			"user m1 one\nuser m3 three",
		},
		{
			"a whole document on one line",
			`{"sessionId":"s","projectHash":"h","messages":[` + said("m1", "user", "one") + "]}",
			"user m1 one",
		},
		{
			"other types than expected",
			`{"id":"m1","type":"user","content":7,"toolCalls":"x"}` + "\n" + `{"$set":[]}` + "\n" + `{"$rewindTo":5}` + "\n[]\n" + said(
				"m3", "user", "three",
			),
			"user m3 three",
		},
	}

	for _, tt := range tests {
		path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
		put(t, path, head+tt.lines+"\n")
		if got := tell(readAll(t, open(path), "", checkpoint.ReadOptions{}).Entries); got != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// TestRewindAfterRestart: a later reader knows what a record takes back, though it began after it.
func TestRewindAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	put(t, path, head+said("m1", "user", "one")+"\n"+said("m2", "gemini", "two")+"\n")
	b := readAll(t, open(path), "", checkpoint.ReadOptions{})
	more(
		t,
		path,
		said(
			"m3", "user", "three",
		)+"\n"+batch(
			said("m1", "user", "one"), said("m2", "gemini", "two"), said("m3", "user", "three"),
		)+"\n"+`{"$rewindTo":"m2"}`+"\n",
	)

	if got, want := tell(
		readAll(t, open(path), b.Cursor, checkpoint.ReadOptions{}).Entries,
	), "user m3 three\nretract m3\nretract m2"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestN01OldThenNew: the two forms of one session give the same messages under the same ids; a document that is written
// anew is nothing new.
func TestN01OldThenNew(t *testing.T) {
	old := readAll(t, open("testdata/transcripts/N01-gemini-old.json"), "", checkpoint.ReadOptions{})
	if got, want := tell(old.Entries), "user m1 What is 2+2?\nassistant m2 4"; got != want {
		t.Errorf("old form: got\n%s\nwant\n%s", got, want)
	}

	now := readAll(t, open("testdata/transcripts/N01-gemini-new.jsonl"), "", checkpoint.ReadOptions{})
	want := "user m1 What is 2+2?\nassistant m2 4\nuser m3 a bare record: and 3+3?\nassistant m4 6\nuser m5 last bare record"
	if got := tell(now.Entries); got != want {
		t.Errorf("new form: got\n%s\nwant\n%s", got, want)
	}
}

func docOf(messages ...string) string {
	return "{\n  \"sessionId\": \"s\",\n  \"projectHash\": \"h\",\n  \"messages\": [\n" + strings.Join(
		messages, ",\n",
	) + "\n  ],\n  \"summary\": \"x\"\n}"
}

func TestDocument(t *testing.T) {
	one, two, three := said("m1", "user", "one"), said("m2", "gemini", "two"), said("m3", "user", "three")
	richer := strings.TrimSuffix(
		two, "}",
	) + `,"toolCalls":[{"id":"c","name":"read_file","args":{},"status":"success","resultDisplay":"r"}]}`

	steps := []struct{ name, text, want string }{
		{"an empty file", "", ""},
		{"two messages", docOf(one, two), "user m1 one\nassistant m2 two"},
		{"the same again", docOf(one, two) + "\n", ""},
		// It is told as a whole: its words are the same ones.
		{"a message got richer", docOf(one, richer), "assistant m2 two\ncall read_file {}\nresult read_file r"},
		{"in the middle of being written", docOf(one, richer, three)[:200], ""},
		{"one more", docOf(one, richer, three), "user m3 three"},
		{"cut before what was told", docOf(one)[:120], ""},
		{"whole again", docOf(one, richer, three), ""},
		{"another conversation", docOf(said("x1", "user", "other")), "reset\nuser x1 other"},
		{"and more of it", docOf(said("x1", "user", "other"), said("x2", "gemini", "words")), "assistant x2 words"},
	}

	for _, restart := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.json")
		tr := open(path)
		var cur checkpoint.Cursor
		for _, s := range steps {
			put(t, path, s.text)
			if restart {
				tr = open(path)
			}

			b := readAll(t, tr, cur, checkpoint.ReadOptions{})
			cur = b.Cursor
			if got := tell(b.Entries); got != s.want {
				t.Errorf("restart %v, %s: got\n%s\nwant\n%s", restart, s.name, got, s.want)
			}
		}
	}
}

// TestFormChanges: the program turns the old form into the new one beside it. Another reader begins anew and says so.
func TestFormChanges(t *testing.T) {
	dir := t.TempDir()
	old, now := filepath.Join(
		dir, "session-2026-01-01T00-00-aaaaaaaa.json",
	), filepath.Join(
		dir, "session-2026-01-01T00-00-aaaaaaaa.jsonl",
	)

	put(t, old, docOf(said("m1", "user", "one")))
	put(t, now, head+said("m1", "user", "one")+"\n"+said("m2", "user", "two")+"\n")
	b := readAll(t, open(old), "", checkpoint.ReadOptions{})
	b = readAll(t, open(now), b.Cursor, checkpoint.ReadOptions{})
	if got, want := tell(b.Entries), "reset\nuser m1 one\nuser m2 two"; got != want {
		t.Errorf("old to new: got\n%s\nwant\n%s", got, want)
	}

	if got, want := tell(
		readAll(t, open(old), b.Cursor, checkpoint.ReadOptions{}).Entries,
	), "reset\nuser m1 one"; got != want {
		t.Errorf("new to old: got\n%s\nwant\n%s", got, want)
	}
}

// TestFirstSightOfALargeFile: the first prompt and the newest part, whatever the file's size.
func TestFirstSightOfALargeFile(t *testing.T) {
	var b strings.Builder
	b.WriteString(head)
	for i := range 3000 {
		b.WriteString(
			said(
				fmt.Sprintf("u%d", i), "user", fmt.Sprintf("prompt %d", i),
			) + "\n" + said(
				fmt.Sprintf("g%d", i), "gemini", strings.Repeat("answer ", 20),
			) + "\n",
		)
	}

	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")
	put(t, path, b.String())
	got := readAll(t, open(path), "", checkpoint.ReadOptions{})
	var prompts []string
	for _, e := range got.Entries {
		if e.Kind == checkpoint.EntryUser {
			prompts = append(prompts, e.Text)
		}
	}

	if len(prompts) != 21 || prompts[0] != "prompt 0" || prompts[1] != "prompt 2980" || prompts[20] != "prompt 2999" ||
		got.Skipped == 0 ||
		!got.First {
		t.Errorf(
			"got %d prompts, %q first, skipped %d, want the first and the newest 20", len(prompts),
			prompts[:min(2, len(prompts))], got.Skipped,
		)
	}

	// What was passed over is no news when the program writes the conversation anew.
	more(
		t, path,
		batch(said("u1", "user", "prompt 1"), said("u2999", "user", "prompt 2999"), said("new", "user", "news"))+"\n",
	)

	for name, tr := range map[string]checkpoint.Transcript{"the same reader": nil, "another": open(path)} {
		if tr == nil {
			tr = open(path)
			got = readAll(t, tr, "", checkpoint.ReadOptions{})
			more(t, path, batch(said("u2", "user", "prompt 2"), said("new2", "user", "more news"))+"\n")
			if s := tell(readAll(t, tr, got.Cursor, checkpoint.ReadOptions{}).Entries); s != "user new2 more news" {
				t.Errorf("%s: got\n%s\nwant the news alone", name, s)
			}
			continue
		}
		if s := tell(
			readAll(t, tr, got.Cursor, checkpoint.ReadOptions{}).Entries,
		); !strings.HasPrefix(s, "user new") ||
			strings.Contains(s, "prompt") {
			t.Errorf("%s: got\n%s\nwant the news alone", name, s)
		}
	}
}

// TestFirstSightOfALargeDocument: the same for the older form.
func TestFirstSightOfALargeDocument(t *testing.T) {
	var list []string
	for i := range 6000 {
		list = append(
			list, said(fmt.Sprintf("u%d", i), "user", fmt.Sprintf("prompt %d", i)),
			said(fmt.Sprintf("g%d", i), "gemini", "answer"),
		)
	}

	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-aaaaaaaa.json")
	put(t, path, docOf(list...))
	got := readAll(t, open(path), "", checkpoint.ReadOptions{})
	if n := len(
		got.Entries,
	); n != 41 || got.Entries[0].Text != "prompt 0" || got.Entries[1].Text != "prompt 5980" ||
		got.Skipped == 0 {
		t.Errorf("got %d entries, skipped %d, want the first prompt and the newest 20 turns", n, got.Skipped)
	}

	if whole := readAll(t, open(path), "", checkpoint.ReadOptions{Whole: true}); len(whole.Entries) != 12_000 {
		t.Errorf("whole: got %d entries, want all", len(whole.Entries))
	}
}

func TestMissingAndForeign(t *testing.T) {
	for _, name := range []string{"session-2026-01-01T00-00-aaaaaaaa.jsonl", "session-2026-01-01T00-00-aaaaaaaa.json"} {
		path := filepath.Join(t.TempDir(), name)
		b, err := open(path).Read(context.Background(), "x", checkpoint.ReadOptions{})
		if !errors.Is(err, fs.ErrNotExist) || b.Cursor != "x" {
			t.Errorf("%s: got %q, %v, want fs.ErrNotExist and the cursor as it was", name, b.Cursor, err)
		}
	}

	path := filepath.Join(t.TempDir(), "session-2026-01-01T00-00-11111111.jsonl")
	put(t, path, head+said("m1", "user", "one")+"\n")
	b := readAll(
		t, openTranscript(agent.Source{Path: path, Session: "11111111-0000-4000-8000-000000000000"}), "",
		checkpoint.ReadOptions{},
	)

	if len(b.Entries) != 1 || b.Entries[0].Session != "11111111-1111-4111-8111-111111111111" {
		t.Errorf("got %+v, want the entry of the session that the header names", b.Entries)
	}
}

func TestWorkspace(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "tmp/proj/.project_root"), dir)
	path := filepath.Join(dir, "tmp/proj/chats/session-2026-01-01T00-00-aaaaaaaa.jsonl")
	put(t, path, head+said("m1", "user", "one")+"\n")
	b := readAll(t, open(path), "", checkpoint.ReadOptions{})
	if len(b.Entries) != 2 || b.Entries[0].Workspace != payload.RealPath(dir) {
		t.Errorf("got %+v, want the workspace first", b.Entries)
	}
}

func FuzzLines(f *testing.F) {
	for _, name := range []string{"rewind-and-checkpoint.handmade.jsonl", "0.61-tools-then-resume.jsonl"} {
		data, err := os.ReadFile("testdata/transcripts/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}

	f.Add([]byte(`{"id":"m","type":"gemini","content":[["x"]],"toolCalls":[{"args":[],"result":[7]}]}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, name := range []string{"session-a-aaaaaaaa.jsonl", "session-a-aaaaaaaa.json"} {
			path := filepath.Join(dir, strconv.Itoa(os.Getpid())+name)
			put(t, path, string(in))
			all := readAll(t, open(path), "", checkpoint.ReadOptions{Final: true})
			for _, e := range all.Entries {
				if strings.ToValidUTF8(e.Text+e.Output+e.Input+e.ID, "") != e.Text+e.Output+e.Input+e.ID ||
					len(e.Text) > checkpoint.CutText ||
					len(e.Output) > checkpoint.CutTool {
					t.Errorf("entry is not fit to keep: %+v", e)
				}
			}

			if all.Cursor == "" {
				continue
			}

			if again := readAll(
				t, open(path), all.Cursor, checkpoint.ReadOptions{},
			); len(again.Entries) != 0 &&
				isDocument(path) {
				t.Errorf("read again: got %s, want nothing", tell(again.Entries))
			}

			newestAnswer(path, time.Time{})
		}
	})
}
