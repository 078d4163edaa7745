package agentzero

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/wholefile"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const handmade = "testdata/chat.handmade.json"

// msg is one message of a history.
type msg map[string]any

func user(id, text string) msg {
	return msg{"_cls": "Message", "id": id, "ai": false, "content": map[string]any{"user_message": text}}
}

func ai(id, tool string, args any) msg {
	said, err := json.Marshal(
		map[string]any{"thoughts": []string{"secret thought"}, "headline": "h", "tool_name": tool, "tool_args": args},
	)
	if err != nil {
		panic(err)
	}
	return msg{"_cls": "Message", "id": id, "ai": true, "content": string(said)}
}

func answered(id, text string) msg { return ai(id, "response", map[string]string{"text": text}) }

func toolResult(id, tool, text string) msg {
	return msg{
		"_cls":    "Message",
		"id":      id,
		"ai":      false,
		"content": map[string]any{"tool_name": tool, "tool_result": text},
	}
}

func topic(summary string, messages ...msg) map[string]any {
	return map[string]any{"_cls": "Topic", "summary": summary, "messages": messages}
}

// chatFile makes a chat.json whose agents have these topics.
func chatFile(kind, guid string, agents ...[]map[string]any) string {
	var chain []map[string]any
	for n, topics := range agents {
		h := map[string]any{"_cls": "History", "counter": 1, "bulks": []any{}, "topics": topics, "current": topic("")}
		chain = append(chain, map[string]any{"number": n, "data": map[string]any{}, "history": string(marshal(h))})
	}

	head := fmt.Sprintf(
		`{"id": "aB3dE6gH", "name": "x", "created_at": "2026-04-03T10:00:00+00:00", "type": %q, "agents": %s, "streaming_agent": 0, `,
		kind, marshal(chain),
	)

	return head + fmt.Sprintf(
		`"log": {"guid": %q, "logs": [{"no": 0, "id": "u1", "type": "user", "timestamp": 1775210000.5}]}, "data": {}, "output_data": {}}`,
		guid,
	)
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	old := time.Now().Add(-time.Hour) // what was written just now is told in another way: see document
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, src agent.Source, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	b, err := New(agent.Host{}).Open(src).Read(context.Background(), from, opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Cursor) > 1000 {
		t.Errorf("a cursor of %d bytes", len(b.Cursor))
	}

	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) []string {
	var out []string
	for _, e := range list {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = strings.TrimSpace(string(e.Op) + " " + e.ID)
		}
		if e.Failed {
			s += " failed"
		}

		for _, v := range []string{e.Call, e.Name, e.Input, e.Text, e.Output, e.Mode, e.Session} {
			if v != "" {
				s += " " + v
			}
		}

		out = append(out, s)
	}

	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestGolden(t *testing.T) {
	b := read(
		t, agent.Source{Path: handmade, Session: "aB3dE6gH"}, "",
		checkpoint.ReadOptions{Whole: true, Final: true},
	)

	kinds := map[string]int{}
	words := ""
	for _, e := range b.Entries {
		kinds[string(e.Kind)]++
		if e.Kind == checkpoint.EntryUser || e.Kind == checkpoint.EntryAssistant {
			words = e.Text
		}
	}

	var got strings.Builder
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&got, "%s=%d ", k, kinds[k])
	}

	fmt.Fprintf(&got, "turns=%d calls=%d last=%.8x\n", kinds["user"], kinds["call"], sha256.Sum256([]byte(words)))
	if *update {
		put(t, "testdata/golden.txt", got.String())
	}

	want, err := os.ReadFile("testdata/golden.txt")
	if err != nil || got.String() != string(want) {
		t.Errorf("%v: got %swant %s", err, got.String(), want)
	}

	same(t, handmade, show(b.Entries), []string{
		"compaction Earlier the user set up the project.",
		"compaction Setup done.",
		"user list files",
		`call h2 code_execution_tool {"runtime":"terminal","code":"ls"}`,
		"result h2 code_execution_tool a.txt",
		"assistant One file: a.txt",
		"turn-end",
		"user read it",
	})

	if at := b.Entries[2].At; !at.Equal(time.Unix(1775210000, 0)) {
		t.Errorf("the prompt is of %v, want the log's time", at)
	}
}

// What a sequence of rewritten files tells, each part once.
func TestRewrites(t *testing.T) {
	type step struct {
		file string
		want []string
	}

	one := []msg{user("u1", "list files"), ai("a1", "code_execution_tool", msg{"code": "ls"})}
	two := append(slices.Clone(one), toolResult("r1", "code_execution_tool", "a.txt"), answered("a2", "one file"))
	three := []msg{user("u2", "go on"), ai("a3", "memory_load:all", msg{"q": 1})}
	first := []string{"user list files", `call a1 code_execution_tool {"code":"ls"}`}
	end := []string{"result a1 code_execution_tool a.txt", "assistant one file", "turn-end"}
	for name, steps := range map[string][]step{
		"a call and its result come one after the other": {
			{chatFile("user", "g1", []map[string]any{topic("", one...)}), first},
			{chatFile("user", "g1", []map[string]any{topic("", two...)}), end},
			{chatFile("user", "g1", []map[string]any{topic("", two...)}), nil},
		},
		"a call that breaks is warned of": {
			{chatFile("user", "g1", []map[string]any{topic("", one...)}), first},
			{chatFile("user", "g1", []map[string]any{topic("", append(slices.Clone(one), msg{"id": "w", "ai": false, "content": msg{"system_warning": "no such tool"}})...)}),
				[]string{"result failed a1 code_execution_tool no such tool"}},
		},
		"an intervention is a prompt": {
			{chatFile("user", "g1", []map[string]any{topic("", one...)}), first},
			{chatFile("user", "g1", []map[string]any{topic("", one...), topic("", msg{"id": "i", "ai": false, "content": msg{"user_intervention": "stop that"}})}), []string{
				"user stop that",
			}},
		},
		"the middle is summed up": {
			{chatFile("user", "g1", []map[string]any{topic("", two...), topic("", three...)}), append(append(slices.Clone(first), end...), "user go on", `call a3 memory_load:all {"q":1}`)},
			{chatFile("user", "g1", []map[string]any{topic("They listed files."), topic("", append(slices.Clone(three), toolResult("r3", "memory_load", "none"))...)}),
				[]string{"compaction They listed files.", "result a3 memory_load:all none"}},
			{chatFile("user", "g1", []map[string]any{topic("They listed files."), topic("", append(slices.Clone(three), toolResult("r3", "memory_load", "none"))...)}), nil},
		},
		"the chat is reset": {
			{chatFile("user", "g1", []map[string]any{topic("", one...)}), first},
			{chatFile("user", "g2", []map[string]any{topic("")}), nil},
			{chatFile("user", "g2", []map[string]any{topic("", user("n1", "anew"))}), []string{"clear", "user anew"}},
		},
		"the user cuts the chat back": {
			{chatFile("user", "g1", []map[string]any{topic("", two...), topic("", three...)}), append(append(slices.Clone(first), end...), "user go on", `call a3 memory_load:all {"q":1}`)},
			{chatFile("user", "g1", []map[string]any{topic("", two...)}), []string{"retract u2"}},
			{chatFile("user", "g1", []map[string]any{topic("", append(slices.Clone(two), user("u3", "another way"))...)}), []string{
				"user another way",
			}},
			{chatFile("user", "g1", []map[string]any{topic("", one...)}), []string{"retract a2", "retract u3"}},
			{chatFile("user", "g1", []map[string]any{topic("")}), []string{"retract u1"}},
		},
		"a background context tells nothing": {
			{chatFile("background", "g1", []map[string]any{topic("", two...)}), nil},
			{chatFile("background", "g1", []map[string]any{topic("", append(slices.Clone(two), three...)...)}), nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "chat.json")
			cur := checkpoint.Cursor("")
			for i, s := range steps {
				put(t, path, s.file)
				b := read(t, agent.Source{Path: path, Session: "aB3dE6gH"}, cur, checkpoint.ReadOptions{})
				same(t, fmt.Sprint("step ", i), show(b.Entries), s.want)
				cur = b.Cursor
			}
		})
	}
}

func TestSubordinates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.json")
	put(
		t,
		path,
		chatFile(
			"user", "g",
			[]map[string]any{topic("", user("u1", "do it"), ai("a1", "call_subordinate", msg{"message": "part"}))},
			[]map[string]any{topic("", user("s1", "part"), answered("s2", "part done"))},
		),
	)

	for child, want := range map[string][]string{
		"":   {"child-end", "user do it", `call a1 call_subordinate {"message":"part"}`},
		"A1": {"user part", "assistant part done", "turn-end"},
		"A2": nil,
		"x":  nil,
	} {
		b := read(t, agent.Source{Path: path, Session: "aB3dE6gH", Child: child}, "", checkpoint.ReadOptions{})
		same(t, "agent "+child, show(b.Entries), want)
	}

	b := read(t, agent.Source{Path: path, Session: "other"}, "", checkpoint.ReadOptions{})
	for _, e := range b.Entries {
		if e.Session != "aB3dE6gH" {
			t.Errorf("a file of another session: %+v", e)
		}
	}
}

// The profile is told at first and when it changes; an agent's own goes before the chat's.
func TestProfiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.json")
	src := agent.Source{Path: path, Session: "c"}
	const form = `{"id":"c","agent_profile":"%s","agents":[{"number":0,"profile":"%s","history":"{\"current\":{\"messages\":[{\"id\":\"u\",\"ai\":false,\"content\":{\"user_message\":\"hi\"}}]}}"}]}`
	cur := checkpoint.Cursor("")
	for i, c := range []struct {
		chat, own string
		want      []string
	}{
		{"default", "", []string{"meta default", "user hi"}},
		{"default", "coder", []string{"meta coder"}},
		{"other", "coder", nil},
	} {
		put(t, path, fmt.Sprintf(form, c.chat, c.own))
		b := read(t, src, cur, checkpoint.ReadOptions{})
		same(t, fmt.Sprint("step ", i), show(b.Entries), c.want)
		cur = b.Cursor
	}
}

func TestWhatTheModelSays(t *testing.T) {
	for said, want := range map[string]answer{
		`{"tool_name":"response","tool_args":{"text":"done"}}`:         {tool: "response", words: "done"},
		`{"tool_name":"response","tool_args":{"message":"done"}}`:      {tool: "response", words: "done"},
		"```json\n{\"tool\":\"search\",\"args\":{\"q\":1}}\n```":       {tool: "search", args: []byte(`{"q":1}`)},
		"Sure. {\"tool_name\": \"search\", \"tool_args\": {\"q\": 1}}": {tool: "search", args: []byte(`{"q": 1}`)},
		`{"tool_name": "search", "tool_args": {"q": 'x'}}`:             {tool: "search", args: []byte(`"{\"tool_name\": \"search\", \"tool_args\": {\"q\": 'x'}}"`)},
		`just words`:                     {words: "just words"},
		`{"thoughts":["x"]}`:             {words: `{"thoughts":["x"]}`},
		`{"tool_name":"response"`:        {tool: "response", words: `{"tool_name":"response"`},
		`code { with braces } and so on`: {words: `code { with braces } and so on`},
	} {
		if got := parseAnswer(
			said,
		); got.tool != want.tool || got.words != want.words ||
			string(got.args) != string(want.args) {
			t.Errorf(
				"%s: got %q %q %q, want %q %q %q", said, got.tool, got.words, got.args, want.tool, want.words,
				want.args,
			)
		}
	}
}

func TestSecretsAndOwnWordsAreNotKept(t *testing.T) {
	key := "ghp_" + strings.Repeat("a1B2", 9)
	own := checkpoint.Frame("mark123", "what belay said")
	path := filepath.Join(t.TempDir(), "chat.json")
	put(
		t,
		path,
		chatFile(
			"user",
			"g",
			[]map[string]any{
				topic(
					"", user("u1", "use "+key+" now\n"+own),
					ai("a1", "code_execution_tool", msg{"code": "curl " + key}),
					toolResult("r1", "code_execution_tool", key),
				),
			},
		),
	)

	b := read(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{})
	text := strings.Join(show(b.Entries), "\n")
	if strings.Contains(text, key) || strings.Contains(text, "what belay said") ||
		strings.Contains(text, "secret thought") ||
		!strings.Contains(text, "own") {
		t.Errorf("kept:\n%s", text)
	}
}

// A file that is being written tells nothing, wherever it breaks off, and is no error; with no writer alive, what is
// whole counts. What was told before is not told again when it is whole.
func TestHalfFiles(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), "chat.json")
	src := agent.Source{Path: path, Session: "aB3dE6gH"}
	put(t, path, string(data))
	all := read(t, src, "", checkpoint.ReadOptions{Whole: true})
	for n := 0; n < len(data); n += 31 {
		put(t, path, string(data[:n]))
		if b := read(
			t, src, all.Cursor, checkpoint.ReadOptions{},
		); len(b.Entries) > 0 || b.Cursor != all.Cursor ||
			b.Losses.Torn == 0 {
			t.Fatalf("cut at %d: %v, torn %d", n, show(b.Entries), b.Losses.Torn)
		}

		if b := read(t, src, all.Cursor, checkpoint.ReadOptions{Final: true}); len(b.Entries) > 0 {
			t.Fatalf("cut at %d, no writer: %v was told before", n, show(b.Entries))
		}

		b := read(t, src, "", checkpoint.ReadOptions{Final: true, Whole: true})
		if got := show(b.Entries); !slices.Equal(got, show(all.Entries)[:len(got)]) {
			t.Fatalf("cut at %d, no writer: %v", n, got)
		}
	}
}

func TestReadingChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usr", "chats", "aB3dE6gH", "chat.json")
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	put(t, path, string(data))
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}

	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	a := &Agent{roots: []string{filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(path))))}}
	if found, err := a.Locate(context.Background(), agent.Query{Session: "aB3dE6gH"}); err != nil || len(found) != 1 {
		t.Errorf("locate: %v %v", found, err)
	}

	read(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{Whole: true})
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	now, err := os.ReadFile(path)
	names, lerr := os.ReadDir(filepath.Dir(path))
	if err != nil || lerr != nil || !bytes.Equal(now, data) || !before.ModTime().Equal(after.ModTime()) ||
		before.Mode() != after.Mode() ||
		len(names) != 1 {
		t.Errorf("reading changed something: %v %v, %v to %v, %d names", err, lerr, before, after, len(names))
	}
}

// bigChat writes a chat of about so many bytes, most of it in tool results.
func bigChat(t testing.TB, path string, size int) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}

	defer file.Close()
	f := bufio.NewWriterSize(file, 1<<20)
	line := strings.Repeat(`words \\\"quoted\\\" and a line\\n`, 60)
	io.WriteString(
		f,
		`{"id": "big00000", "type": "user", "agents": [{"number": 0, "data": {}, "history": "{\"_cls\": \"History\", \"bulks\": [], \"topics\": [{\"_cls\": \"Topic\", \"messages\": [`,
	)

	for n := 0; n*len(line) < size; n++ {
		comma := ""
		if n > 0 {
			comma = ", "
		}

		fmt.Fprintf(
			f,
			`%s{\"_cls\": \"Message\", \"id\": \"u%d\", \"ai\": false, \"content\": {\"user_message\": \"question %d\"}}, {\"_cls\": \"Message\", \"id\": \"r%d\", \"ai\": true, \"content\": \"%s\"}`,
			comma, n, n, n, line,
		)
	}

	if _, err := io.WriteString(
		f, `]}], \"current\": {\"_cls\": \"Topic\", \"messages\": []}}"}], "log": {"guid": "g", "logs": []}}`,
	); err != nil {
		t.Fatal(err)
	}

	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
}

// N03: a huge chat is read in bounded memory. The short form has 30 MB; BELAY_HUGE names another size in MB.
func TestN03HugeChat(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a huge file")
	}

	size := hugeChat
	if mb, err := strconv.Atoi(os.Getenv("BELAY_HUGE")); err == nil {
		size = mb << 20
	}

	path := filepath.Join(t.TempDir(), "chat.json")
	bigChat(t, path, size)
	var before, after runtime.MemStats
	peak := uint64(0)
	stop := make(chan struct{})
	done := make(chan struct{})
	runtime.GC()
	runtime.ReadMemStats(&before)
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				runtime.ReadMemStats(&after)
				peak = max(peak, after.HeapInuse)
			}
		}
	}()

	began := time.Now()
	b := read(t, agent.Source{Path: path, Session: "big00000"}, "", checkpoint.ReadOptions{})
	took := time.Since(began)
	close(stop)
	<-done
	grown := int64(peak) - int64(before.HeapInuse)
	t.Logf(
		"%d entries in %v, %d MB more heap at its peak, %d MB passed over", len(b.Entries), took, grown>>20,
		b.Skipped>>20,
	)

	if len(b.Entries) < 40 || b.Skipped < int64(size-size/4) || b.Entries[0].Text != "question 0" {
		t.Errorf("%d entries, skipped %d", len(b.Entries), b.Skipped)
	}
	if grown > 48<<20 {
		t.Errorf("%d MB more heap, want 48 at most", grown>>20)
	}
}

func FuzzChat(f *testing.F) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(data)
	f.Add(
		[]byte(
			chatFile(
				"user", "g",
				[]map[string]any{topic("s", user("u1", "x"), ai("a1", "t", msg{}), toolResult("r", "t", "y"))},
			),
		),
	)

	f.Add([]byte(`{"agents":[{"history":{"messages":[{"id":1,"ai":"x","content":[1]}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, err := walk(agent.Source{})(context.Background(), bytes.NewReader(data), func(it wholefile.Item) error {
			for _, e := range it.Entries() {
				if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool ||
					len(e.Output) > checkpoint.CutTool ||
					len(e.ID) > 300 {
					t.Errorf("an entry over its bounds: %+v", e)
				}
			}
			return nil
		})
		_ = err // a document that is not whole, mostly
	})
}
