package proofs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/agent/kit/payload"
	"belay/internal/redact"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/state/query"
	"belay/recovery"
)

const cuts = 50 // places at which each transcript is cut

// TestCutTranscripts cuts every transcript at many places and recovers: it never fails, prints valid UTF-8 under the
// cap, holds the newest answer before the cut, names every call that is open there, and shows nothing from before the
// cursor as new. What must be there is found by reading the lines again with a plain JSON parser.
func TestCutTranscripts(t *testing.T) {
	files := transcripts(t)
	if len(files) < 40 {
		t.Fatalf("%d transcripts found, the repository has more", len(files))
	}

	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			cutOne(t, path)
		})
	}
}

// transcripts lists the repository's line files and, where they are, the public ones beside the repository.
func transcripts(t *testing.T) []string {
	t.Helper()
	var files []string
	seen := map[[32]byte]bool{}
	for _, root := range []string{
		"../../agent/claude/testdata", "../../agent/pi/testdata", "../../../../shared/transcripts/claude-code",
		"../../../../shared/transcripts/openclaw", "../../../../shared/transcripts/pi",
	} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			rel := strings.TrimPrefix(p, root)
			skip := strings.Contains(rel, "traces") || strings.Contains(rel, "hook") ||
				strings.Contains(rel, "sqlite-rows") ||
				strings.Contains(rel, "fuzz") ||
				strings.Contains(rel, "cases")

			if d.IsDir() || !strings.HasSuffix(p, ".jsonl") || skip {
				return nil
			}

			data, err := os.ReadFile(p)
			if sum := sha256.Sum256(data); err == nil && !seen[sum] { // the same files lie in several folders
				seen[sum] = true
				files = append(files, p)
			}

			return err
		})

		if errors.Is(err, fs.ErrNotExist) && strings.Contains(root, "shared") {
			t.Logf("%s is not here: its files are left out", root)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	return files
}

func cutOne(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	name := query.Open(t.TempDir(), all.All(agent.Host{})).Guess(path)
	if name == "" {
		name = "pi" // a file without a header: any agent's reader must bear it
	}

	for i := 1; i <= cuts; i++ {
		at := len(data) * i / cuts
		if i%2 == 0 { // every other cut lies behind a line's end
			if j := bytes.IndexByte(data[at:], '\n'); j >= 0 {
				at += j + 1
			}
		}
		cutAt(t, name, data[:at], data[:at/2])
	}
}

// cutAt recovers from a prefix, with a checkpoint taken at an earlier one.
func cutAt(t *testing.T, agentName string, prefix, earlier []byte) {
	dir := t.TempDir()
	file := filepath.Join(dir, "session.jsonl")
	if err := os.WriteFile(file, prefix, 0o600); err != nil {
		t.Fatal(err)
	}

	f := query.Open(filepath.Join(dir, "state"), all.All(agent.Host{}))
	for _, limit := range []int{600, 9000} {
		r, err := f.Recover(context.Background(), question(agentName, file, recovery.Brief, limit))
		if err != nil {
			t.Fatalf("cut at %d: recover: %v", len(prefix), err)
		}

		checkText(t, r, limit, len(prefix))
		if limit == 9000 {
			checkHolds(t, r, agentName, prefix)
		}
	}

	checkpointAt(t, f, agentName, file, earlier)
	r, err := f.Recover(context.Background(), question(agentName, file, recovery.Delta, 64<<10))
	if err != nil {
		t.Fatalf("cut at %d with a checkpoint: recover: %v", len(prefix), err)
	}

	checkText(t, r, 64<<10, len(prefix))
	checkNew(t, r, agentName, prefix, earlier)
}

func question(agentName, file string, format recovery.Format, limit int) query.Question {
	opt := recovery.Options{Start: recovery.StartManual, Format: format, MaxBytes: limit}
	if format == recovery.Delta {
		opt.MaxMessages = 1000
	}
	return query.Question{Name: state.Name{Agent: agentName}, Transcript: file, Options: opt, NoWorkTree: true}
}

func checkText(t *testing.T, r recovery.Result, limit, at int) {
	t.Helper()
	if len(r.Text) > limit {
		t.Errorf("cut at %d: %d bytes printed, the cap is %d", at, len(r.Text), limit)
	}
	if !utf8.ValidString(r.Text) {
		t.Errorf("cut at %d: the text is no valid UTF-8", at)
	}
	if r.Text != "" && strings.Count(r.Text, "</belay-record") != 1 {
		t.Errorf("cut at %d: the text does not hold its end exactly once", at)
	}
}

// checkHolds wants the newest answer and every open call of the last turns.
func checkHolds(t *testing.T, r recovery.Result, agentName string, prefix []byte) {
	t.Helper()
	p := plainly(agentName, prefix)
	if p.skip {
		return
	}

	if len(p.answers) > 0 {
		want := norm(p.answers[len(p.answers)-1])
		if got := letters(r.Text); !strings.Contains(got, want[:min(len(want), 60)]) {
			t.Errorf(
				"cut at %d: the newest answer %q is not in the text:\n%s", len(prefix),
				want[:min(len(want), 60)], r.Text,
			)
		}
	}

	for _, id := range p.open {
		if !slices.ContainsFunc(r.InDoubt, func(d recovery.Doubt) bool { return d.ID == id }) {
			t.Errorf("cut at %d: the open call %s is not named", len(prefix), id)
		}
	}
}

// checkpointAt stores a checkpoint of the session as it was when the transcript was shorter.
func checkpointAt(t *testing.T, f query.Folder, agentName, file string, earlier []byte) {
	t.Helper()
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, earlier, 0o600); err != nil {
		t.Fatal(err)
	}

	a, _ := f.Agent(agentName)
	s := checkpoint.NewState(checkpoint.NewKey(agentName, "", "session", ""))
	s.Transcript = file
	tr := a.Open(agent.Source{Path: file, Session: "session"})
	now := time.Now().UTC()
	if _, err := recovery.CatchUp(context.Background(), s, tr, checkpoint.ReadOptions{}, now); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}

	c := checkpoint.New(
		s, 1,
		checkpoint.Decision{Take: true, Level: checkpoint.Full, Cause: checkpoint.CauseManual, Text: "forced: manual"},
		now,
	)

	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Dir.Make(); err != nil {
		t.Fatal(err)
	}

	store, err := f.Dir.OpenStore()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(context.Background(), s.Key, c.Meta(), data); err != nil {
		t.Fatal(err)
	}

	saved := c.Restore()
	if err := f.Dir.SaveState(saved); err != nil {
		t.Fatal(err)
	}

	checktest.Whole(t, f.Dir.Root)

	// Grown in place, as agents do: the same file.
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(whole[len(earlier):]); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkNew wants nothing among the new messages that was there before the cursor, and the newest answer after it.
func checkNew(t *testing.T, r recovery.Result, agentName string, prefix, earlier []byte) {
	t.Helper()
	p := plainly(agentName, prefix)
	if p.skip {
		return
	}

	border := bytes.LastIndexByte(earlier, '\n') + 1
	before, after := plainly(agentName, prefix[:border]), plainly(agentName, prefix[border:])
	for _, m := range r.Messages {
		if m.Role != string(checkpoint.RoleAssistant) {
			continue
		}

		old := slices.ContainsFunc(before.answers, func(a string) bool { return norm(a) == norm(m.Text) })
		again := slices.ContainsFunc(
			after.answers, func(a string) bool { return strings.Contains(norm(m.Text), norm(a)) },
		)

		if old && !again {
			t.Errorf(
				"cut at %d, cursor at %d: %q was said before the cursor and is shown as new", len(prefix),
				border, m.Text,
			)
		}
	}

	if len(after.answers) == 0 {
		return
	}

	want := norm(after.answers[len(after.answers)-1])
	if got := letters(r.Text); !strings.Contains(got, want[:min(len(want), 60)]) {
		t.Errorf(
			"cut at %d, cursor at %d: the newest answer %q is not in the delta:\n%s", len(prefix), border,
			want[:min(len(want), 60)], r.Text,
		)
	}
}

// plain is what a plain reading of the lines finds.
type plain struct {
	answers []string
	open    []string // calls without a result, of the last ten prompts
	skip    bool     // the file has records that move the branch or clear it: not for a plain reading
}

func plainly(agentName string, data []byte) plain {
	var p plain
	asked, order, prompts := map[string]int{}, []string{}, 0
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		var rec map[string]any
		if json.Unmarshal(bytes.Trim(line, "\x00\r"), &rec) != nil {
			continue
		}

		blocks, role := conversation(agentName, rec)
		switch rec["type"] {
		case "leaf", "reset", "branch_summary", "context_edit":
			p.skip = true
		case "compaction", "system":
			if rec["type"] == "compaction" || rec["subtype"] == "compact_boundary" {
				prompts += 10 // what was open before a compaction is no longer
			}
		}

		if len(blocks) == 1 && blocks[0].kind == "text" && role == "user" {
			prompts++
		}

		for _, b := range blocks {
			switch {
			case b.kind == "text" && role == "assistant" && strings.TrimSpace(b.text) != "":
				p.answers = append(p.answers, b.text)
			case b.kind == "call":
				asked[b.id] = prompts
				order = append(order, b.id)
			case b.kind == "result" && !b.madeUp:
				delete(asked, b.id)
			}
		}
	}

	for _, id := range order {
		if at, ok := asked[id]; ok && prompts-at < 10 {
			p.open = append(p.open, id)
		}
	}

	return p
}

type block struct {
	kind, text, id string
	madeUp         bool
}

// conversation gives the blocks of a record that is part of the conversation.
func conversation(agentName string, rec map[string]any) ([]block, string) {
	if agentName == "claude-code" {
		for _, k := range []string{"isSidechain", "isMeta", "isApiErrorMessage", "isCompactSummary"} {
			if rec[k] == true {
				return nil, ""
			}
		}
		if rec["teamName"] != nil || rec["type"] != "user" && rec["type"] != "assistant" {
			return nil, ""
		}
	} else if rec["type"] != "message" {
		return nil, ""
	}

	m, ok := rec["message"].(map[string]any)
	if !ok {
		return nil, ""
	}

	role, _ := m["role"].(string)
	if m["model"] == "<synthetic>" || m["provider"] == "openclaw" || rec["appendMode"] == "side" {
		return nil, ""
	}

	if role == "toolResult" {
		id, _ := m["toolCallId"].(string)
		raw, _ := json.Marshal(m["content"])
		return []block{
			{
				kind: "result",
				id:   id,
				madeUp: strings.Contains(string(raw), "missing tool result") ||
					strings.Contains(string(raw), "No result provided"),
			},
		}, role
	}

	if s, ok := m["content"].(string); ok {
		return []block{{kind: "text", text: s}}, role
	}

	var out []block
	list, _ := m["content"].([]any)
	for _, x := range list {
		b, _ := x.(map[string]any)
		text, _ := b["text"].(string)
		id, _ := b["id"].(string)
		switch b["type"] {
		case "text":
			out = append(out, block{kind: "text", text: text})
		case "tool_use", "toolCall":
			out = append(out, block{kind: "call", id: id})
		case "tool_result":
			id, _ = b["tool_use_id"].(string)
			raw, _ := json.Marshal(b["content"])
			out = append(
				out,
				block{kind: "result", id: id, madeUp: strings.Contains(string(raw), "Tool call interrupted")},
			)
		}
	}

	return out, role
}

// norm compares texts without quoting, layout and what belay takes out of them.
func norm(s string) string {
	rest := payload.WithoutOwn(s)
	return letters(redact.Text(rest))
}

func letters(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r > ' ' && r != '>' && r != '‹' && r != '<' && r != '·' && r != '-' && r != '\u00a0' && r < 0x2000 ||
			r > 0x3000 {
			b.WriteRune(r)
		}
	}

	return b.String()
}
