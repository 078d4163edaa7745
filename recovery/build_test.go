package recovery

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent/kit/tools"
)

var (
	testKey = checkpoint.NewKey("claude-code", "", "11111111-1111-4111-8111-111111111111", "")
	noon    = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
)

// story builds a state through the public fold, one event after the other, seven seconds apart.
type story struct {
	s  *checkpoint.State
	at time.Time
	n  int
}

func newStory() *story {
	return &story{s: checkpoint.NewState(testKey), at: noon.Add(-2 * time.Hour)}
}

func (b *story) event(e checkpoint.Event) *story {
	b.at = b.at.Add(7 * time.Second)
	b.n++
	e.At, e.Key, e.Seq = b.at, b.s.Key, uint64(b.n)
	b.s.Apply(e)
	return b
}

func (b *story) user(text string) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventPrompt, Text: text})
}

func (b *story) answer(text string) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventStop, Text: text})
}

func (b *story) call(id, name, input string) *story {
	return b.event(
		checkpoint.Event{
			Kind:  checkpoint.EventToolStart,
			Call:  id,
			Name:  name,
			Input: input,
			Act:   tools.Generic.Act(name, input),
		},
	)
}

func (b *story) done(id string) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventToolEnd, Call: id})
}

func (b *story) decision(text string) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventMark, Text: text, Decision: true})
}

func (b *story) file(entries ...checkpoint.Entry) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventEntries, Entries: entries})
}

func (b *story) start(source string) *story {
	return b.event(checkpoint.Event{Kind: checkpoint.EventStart, Source: source})
}

// dies is kill -9, seen by the watch over the process.
func (b *story) dies() *story {
	b.s.Live = true
	return b.event(checkpoint.Event{Kind: checkpoint.EventExit, Reason: "its process is gone"})
}

// checkpoint takes one and folds its bookkeeping in, as the daemon does.
func (b *story) checkpoint(number uint64) *checkpoint.Checkpoint {
	b.at = b.at.Add(time.Second)
	c := checkpoint.New(
		b.s.Clone(), number,
		checkpoint.Decision{Take: true, Level: checkpoint.Full, Cause: checkpoint.CauseHeartbeat, Text: "heartbeat"},
		b.at,
	)

	taken := c.Taken()
	b.event(checkpoint.Event{Kind: checkpoint.EventCheckpoint, Taken: &taken})
	return c
}

func plan(t *testing.T, in Input, opt Options) Result {
	t.Helper()
	opt.Marker = "0123456789ab"
	r, err := Plan(in, opt, noon)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	return r
}

func (b *story) plan(t *testing.T, opt Options) Result {
	t.Helper()
	return plan(t, Input{State: b.s}, opt)
}

// sound checks what holds for every text: cap, UTF-8, one frame that ends at the end, nothing hidden.
func sound(t *testing.T, r Result, most int) {
	t.Helper()
	text := r.Text
	if len(text) > most || r.Bytes != len(text) {
		t.Errorf("got %d bytes (told: %d), the cap is %d:\n%s", len(text), r.Bytes, most, text)
	}
	if !utf8.ValidString(text) {
		t.Errorf("cap %d: no valid UTF-8: %q", most, text)
	}

	const end = `</belay-record k="0123456789ab">`
	if !strings.HasPrefix(text, `<belay-record k="0123456789ab">`+"\n") || !strings.HasSuffix(text, "\n"+end) {
		t.Errorf("cap %d: not inside its frame:\n%s", most, text)
	}

	inner := strings.TrimSuffix(strings.TrimPrefix(text, `<belay-record k="0123456789ab">`), end)
	if strings.Contains(strings.ToLower(inner), "belay-record") {
		t.Errorf("cap %d: the frame's name stands inside the frame:\n%s", most, text)
	}

	for _, r := range text {
		if r != '\n' && r != '\t' && r < ' ' || r == 0x7f || Hidden(r) {
			t.Errorf("cap %d: hidden or control character %U in:\n%q", most, r, text)
			break
		}
	}
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("got no %q in:\n%s", w, text)
		}
	}
}

func lacks(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if strings.Contains(text, w) {
			t.Errorf("got %q, which must not be there, in:\n%s", w, text)
		}
	}
}

// once wants each word exactly one time.
func once(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if n := strings.Count(text, w); n != 1 {
			t.Errorf("got %q %d times, want once, in:\n%s", w, n, text)
		}
	}
}

// fromFile reads a case file of Claude Code's form in the plainest way and folds it in as a reader's entries. The true
// reader has tests of its own.
func fromFile(t *testing.T, name string) *story {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}

	defer f.Close()
	b := newStory()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		b.file(entriesOf(t, lines.Bytes())...)
	}

	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}

	return b
}

func entriesOf(t *testing.T, line []byte) []checkpoint.Entry {
	t.Helper()
	var rec struct {
		UUID, Timestamp string
		Message         struct {
			Role    string
			Content json.RawMessage
		}
	}

	if err := json.Unmarshal(line, &rec); err != nil {
		t.Fatalf("case line: %v", err)
	}

	at, _ := time.Parse(time.RFC3339Nano, rec.Timestamp) // a stamp that is none is an absent one
	kind := checkpoint.EntryKind(rec.Message.Role)
	var text string
	if json.Unmarshal(rec.Message.Content, &text) == nil {
		return []checkpoint.Entry{{ID: rec.UUID, Kind: kind, At: at, Text: text}}
	}

	var blocks []struct {
		Type, Text, ID, Name, Content string
		ToolUseID                     string `json:"tool_use_id"`
		Input                         json.RawMessage
	}

	if err := json.Unmarshal(rec.Message.Content, &blocks); err != nil {
		t.Fatalf("case line's content: %v", err)
	}

	var list []checkpoint.Entry
	for i, c := range blocks {
		e := checkpoint.Entry{ID: fmt.Sprintf("%s/%d", rec.UUID, i), At: at}
		switch c.Type {
		case "text":
			e.Kind, e.Text = kind, c.Text
		case "tool_use":
			e.Kind, e.Call, e.Name, e.Input = checkpoint.EntryCall, c.ID, c.Name, string(c.Input)
			e.Act = tools.Generic.Act(e.Name, e.Input)
		case "tool_result":
			e.Kind, e.Call, e.Output = checkpoint.EntryResult, c.ToolUseID, c.Content
		}

		list = append(list, e)
	}

	return list
}
