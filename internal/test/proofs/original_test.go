package proofs

import (
	"belay/internal/agent"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/recovery"
)

// The recovery loop of the original scripts read forward, took the assistant's text alone, stopped at the first message
// over its 2 KB, and died at the first line that it could not parse. Each test here is one thing on which it failed.

// session is an OpenClaw transcript in the making.
type session struct {
	b strings.Builder
	n int
}

func newSession() *session {
	s := &session{}
	s.b.WriteString(
		`{"type":"session","version":3,"id":"33333333-3333-4333-8333-333333333333","timestamp":"2026-04-01T21:40:00.000Z","cwd":"/proj/demo"}` + "\n",
	)
	return s
}

func (s *session) message(role string, content any) *session {
	raw, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}

	parent := "null"
	if s.n > 0 {
		parent = fmt.Sprintf(`"e%07d"`, s.n)
	}

	s.n++
	stop := ""
	if role == "assistant" {
		stop = `,"stopReason":"stop"`
	}

	fmt.Fprintf(
		&s.b,
		`{"type":"message","id":"e%07d","parentId":%s,"timestamp":"2026-04-01T21:%02d:%02d.000Z","message":{"role":%q,"content":%s,"timestamp":%d%s}}`+"\n",
		s.n, parent, 41+s.n/60, s.n%60, role, raw, 1775079600000+int64(s.n)*1000, stop,
	)

	return s
}

func (s *session) user(text string) *session      { return s.message("user", text) }
func (s *session) assistant(text string) *session { return s.message("assistant", text) }

// delta recovers a transcript as the original section, with belay's defaults unless roles are named.
func delta(t *testing.T, content string, format recovery.Format) recovery.Result {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "s.jsonl")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	r, err := query.Open(
		filepath.Join(dir, "state"), all.All(agent.Host{}),
	).Recover(
		context.Background(),
		query.Question{Name: state.Name{Agent: "openclaw"},
			Transcript: file, Options: recovery.Options{Start: recovery.StartManual, Format: format}, NoWorkTree: true},
	)

	if err != nil {
		t.Fatal(err)
	}

	limit := recovery.BriefBytes
	if format == recovery.Delta {
		limit = recovery.DeltaBytes
	}
	if len(r.Text) > limit {
		t.Fatalf("%d bytes printed, the cap is %d", len(r.Text), limit)
	}

	return r
}

func wantIn(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not in the text:\n%s", w, text)
		}
	}
}

// P33: a delta over the cap kept its oldest part.
func TestP33DeltaOverTheCapKeepsTheNewest(t *testing.T) {
	s := newSession().user("go")
	for i := range 40 {
		s.assistant(fmt.Sprintf("answer %02d: %s", i, strings.Repeat("word ", 30)))
	}

	r := delta(t, s.b.String(), recovery.Delta)
	wantIn(t, r.Text, "answer 39", "answer 38", "earlier left out")
	if strings.Contains(r.Text, "answer 00") {
		t.Error("the oldest answer took the place of newer ones")
	}
	if strings.Index(r.Text, "answer 38") > strings.Index(r.Text, "answer 39") {
		t.Error("the answers are not in time order")
	}
}

// P34: one message over the cap ended in nothing at all.
func TestP34OneMessageOverTheCapIsShortened(t *testing.T) {
	r := delta(
		t,
		newSession().user("go").assistant("It begins here. "+strings.Repeat("ü", 4000)+" It ends here.").b.String(),
		recovery.Delta,
	)

	wantIn(t, r.Text, "It begins here.", "[…]", "It ends here.")
	if len(r.Messages) != 1 || !r.Messages[0].Shortened {
		t.Errorf(
			"got %d messages, shortened %v; want one that says it was shortened", len(r.Messages),
			len(r.Messages) == 1 && r.Messages[0].Shortened,
		)
	}
}

// P35: a torn or bad line ended the recovery.
func TestP35TornAndBadLinesCostThemselvesAlone(t *testing.T) {
	lines := strings.SplitAfter(
		newSession().user(
			"go",
		).assistant(
			"the first answer",
		).assistant(
			"the second answer",
		).assistant(
			"never finished",
		).b.String(),
		"\n",
	)

	torn := lines[4][:len(lines[4])/2]
	content := strings.Join(
		lines[:3], "",
	) + "this line is no record\n" + `{"type":"message","message":{"role":"assistant","content":"no time stamp here"}}` + "\n" + lines[3] + torn

	r := delta(t, content, recovery.Delta)
	wantIn(t, r.Text, "the first answer", "no time stamp here", "the second answer")
	if r.Lost.BadLines != 1 || r.Lost.TornBytes != int64(len(torn)) {
		t.Errorf("lost %+v; want 1 bad line and %d torn bytes", r.Lost, len(torn))
	}
}

// P37: the user's words since the checkpoint were dropped.
func TestP37TheUsersWordsAreThere(t *testing.T) {
	content := newSession().user(
		"build the parser",
	).assistant(
		"done",
	).user(
		"No: never touch the billing table.",
	).b.String()
	wantIn(t, delta(t, content, recovery.Brief).Text, "build the parser", "never touch the billing table")
}

// P36: a tool's arguments were worked out and then not printed.
func TestP36ToolArgumentsAreThere(t *testing.T) {
	content := newSession().user("deploy").message("assistant", []map[string]any{
		{"type": "text", "text": "Deploying."},
		{
			"type":      "toolCall",
			"id":        "call_1",
			"name":      "exec",
			"arguments": map[string]any{"command": "make deploy STAGE=blue"},
		},
	}).b.String()

	wantIn(t, delta(t, content, recovery.Delta).Text, "[Tool: exec(make deploy STAGE=blue)]")
	wantIn(t, delta(t, content, recovery.Brief).Text, "exec `make deploy STAGE=blue`")
}
