package claude

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
)

// made writes a session in the way of Claude Code 2.1: prompts, answers, calls, results, and the program's own notes,
// which are most of the bytes. It returns at least size bytes and how many prompts are in them.
func made(size int) (content []byte, prompts int) {
	var b bytes.Buffer
	prose := strings.Repeat("The parser keeps one record per line and moves past it. 行を読む。", 12)
	note := strings.Repeat("program text ", 800)
	for n := 1; b.Len() < size; n++ {
		common := fmt.Sprintf(`"sessionId":"%s","cwd":"/proj/demo","version":"2.1.328","gitBranch":"main"`, sessionOne)
		fmt.Fprintf(
			&b, `{"type":"queue-operation","operation":"enqueue","sessionId":"%s","content":"prompt %d"}`+"\n",
			sessionOne, n,
		)

		fmt.Fprintf(
			&b,
			`{"parentUuid":null,"isSidechain":false,"promptId":"p%d","type":"user","message":{"role":"user","content":"prompt %d: please go on with the parser"},"uuid":"u%d","timestamp":"2026-11-30T15:05:12.242Z","permissionMode":"default",%s}`+"\n",
			n, n, n, common,
		)

		fmt.Fprintf(
			&b,
			`{"parentUuid":"u%d","isSidechain":false,"attachment":{"type":"prompt_snapshot","systemPrompt":"%s"},"type":"attachment","uuid":"at%d",%s}`+"\n",
			n, note, n, common,
		)

		fmt.Fprintf(
			&b,
			`{"type":"api-request-blob","sessionId":"%s","message":{"role":"user","content":[{"type":"text","text":"%s"}]}}`+"\n",
			sessionOne, note,
		)

		for c := range 3 {
			fmt.Fprintf(
				&b,
				`{"parentUuid":"u%d","isSidechain":false,"message":{"content":[{"text":"%s","type":"text"}],"id":"m%d-%d","model":"claude-sonnet-4-5","role":"assistant","stop_reason":"tool_use","type":"message"},"type":"assistant","uuid":"a%d-%d","timestamp":"2026-11-30T15:05:13.242Z",%s}`+"\n",
				n, prose, n, c, n, c, common,
			)

			fmt.Fprintf(
				&b,
				`{"parentUuid":"a%d-%d","isSidechain":false,"message":{"content":[{"id":"t%d-%d","input":{"command":"go test ./...","description":"run"},"name":"Bash","type":"tool_use"}],"id":"m%d-%d","model":"claude-sonnet-4-5","role":"assistant","stop_reason":"tool_use","type":"message"},"type":"assistant","uuid":"c%d-%d",%s}`+"\n",
				n, c, n, c, n, c, n, c, common,
			)

			fmt.Fprintf(
				&b,
				`{"parentUuid":"c%d-%d","isSidechain":false,"promptId":"p%d","type":"user","message":{"role":"user","content":[{"tool_use_id":"t%d-%d","type":"tool_result","content":"%s","is_error":false}]},"uuid":"r%d-%d","toolUseResult":{"stdout":"%s","stderr":"","interrupted":false},%s}`+"\n",
				n, c, n, n, c, prose, n, c, prose, common,
			)
		}

		fmt.Fprintf(
			&b,
			`{"parentUuid":"r","isSidechain":false,"message":{"content":[{"text":"answer %d","type":"text"}],"id":"m%d","model":"claude-sonnet-4-5","role":"assistant","stop_reason":"end_turn","type":"message"},"type":"assistant","uuid":"e%d",%s}`+"\n",
			n, n, n, common,
		)

		prompts = n
	}

	return b.Bytes(), prompts
}

func TestFirstSight(t *testing.T) {
	content, prompts := made(3 << 20)
	r, path := transcript(t, content)
	got := all(t, r, "", checkpoint.ReadOptions{})
	if !got.First || got.Skipped < 1<<20 {
		t.Errorf("first %v, skipped %d; want a window of a 3 MB file", got.First, got.Skipped)
	}

	var said []string
	for _, e := range got.Entries {
		if e.Kind == checkpoint.EntryUser {
			said = append(said, strings.Fields(e.Text)[1])
		}
	}

	want := []string{"1:"}
	for n := prompts - 19; n <= prompts; n++ {
		want = append(want, fmt.Sprintf("%d:", n))
	}

	equal(t, "prompts", said, want)
	if w := got.Entries[0].Workspace; w != "/proj/demo" {
		t.Errorf("workspace of the head: got %q", w)
	}

	add(t, path, userLine("new", `"and then"`)+"\n")
	equal(t, "after it", brief(all(t, r, got.Cursor, whole).Entries), []string{"user and then"})
	equal(t, "after it, later run", brief(all(t, open(t, path), got.Cursor, whole).Entries), []string{"user and then"})

	entire := all(t, open(t, path), "", whole)
	if n := len(entire.Entries); n != 11*prompts+prompts+1 || entire.Skipped != 0 {
		t.Errorf("whole: got %d entries, skipped %d; want %d and 0", n, entire.Skipped, 12*prompts+1)
	}
}

func TestFirstSightStopsAtACompaction(t *testing.T) {
	content, prompts := made(1 << 20)
	tail, _ := made(1)
	content = append(
		content,
		`{"parentUuid":null,"type":"system","subtype":"compact_boundary","uuid":"boundary"}`+"\n"...)
	content = append(
		content,
		`{"parentUuid":"boundary","type":"user","uuid":"sum","isCompactSummary":true,"message":{"content":"the summary"}}`+"\n"...)
	content = append(content, bytes.ReplaceAll(tail, []byte(`"uuid":"`), []byte(`"uuid":"x`))...)
	r, _ := transcript(t, content)
	got := brief(all(t, r, "", checkpoint.ReadOptions{}).Entries)

	// The boundary is the record before the summary, and has nothing that the summary has not.
	equal(t, "head", got[:2], []string{"user prompt 1: please go on with the parser", "compaction the summary"})
	if prompts < 10 {
		t.Errorf("only %d prompts: the test needs more", prompts)
	}
}

func TestReadIsBoundedAndSaysMore(t *testing.T) {
	content, _ := made(12 << 20)
	r, _ := transcript(t, content)
	b, err := r.Read(t.Context(), "", whole)
	if err != nil || !b.More || len(b.Entries) > 4010 || !b.First {
		t.Fatalf("got %d entries, more %v, first %v, %v", len(b.Entries), b.More, b.First, err)
	}
	if rest := all(t, r, b.Cursor, whole); len(rest.Entries) == 0 || rest.First {
		t.Errorf("rest: got %d entries, first %v", len(rest.Entries), rest.First)
	}
}
