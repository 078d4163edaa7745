package repair_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
	"belay/internal/transcript/repair"
	"belay/internal/vfs"
)

const (
	piHead   = `{"type":"session","version":3,"id":"11111111-1111-4111-8111-111111111111","timestamp":"2026-01-05T10:00:00.000Z","cwd":"/proj"}`
	piAsk    = `{"type":"message","id":"a1","parentId":null,"timestamp":"2026-01-05T10:00:01.000Z","message":{"role":"user","content":"hi","timestamp":1}}`
	piCall   = `{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-01-05T10:00:02.000Z","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"bash","arguments":{}}],"timestamp":2}}`
	piResult = `{"type":"message","id":"a3","parentId":"a2","timestamp":"2026-01-05T10:00:03.000Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[],"isError":false,"timestamp":3}}`
	piNext   = `{"type":"message","id":"a4","parentId":"a2","timestamp":"2026-01-05T10:00:04.000Z","message":{"role":"user","content":"on","timestamp":4}}`

	codexMeta = `{"timestamp":"2026-01-05T10:00:00.000Z","ordinal":0,"type":"session_meta","payload":{"id":"01a22e0e-6127-7a33-a886-85a2d4e36f24","cwd":"/proj"}}`
	codexTurn = `{"timestamp":"2026-01-05T10:00:01.000Z","ordinal":1,"type":"turn_context","payload":{"turn_id":"t","cwd":"/proj","model":"m"}}`
	codexAsk  = `{"timestamp":"2026-01-05T10:00:02.000Z","ordinal":2,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}}`
	codexCall = `{"timestamp":"2026-01-05T10:00:03.000Z","ordinal":3,"type":"response_item","payload":{"type":"custom_tool_call","call_id":"c1","name":"apply_patch","input":"x"}}`
	rollout   = "rollout-2026-01-05T10-00-00-01a22e0e-6127-7a33-a886-85a2d4e36f24.jsonl"

	geminiHead = `{"sessionId":"b8570c78-7334-4cee-bdd8-9b9221417295","projectHash":"h","startTime":"2026-01-05T10:00:00.000Z","lastUpdated":"2026-01-05T10:00:00.000Z","kind":"main"}`
	geminiAsk  = `{"id":"m1","timestamp":"2026-01-05T10:00:01.000Z","type":"user","content":"hi"}`
	geminiCall = `{"id":"m2","timestamp":"2026-01-05T10:00:02.000Z","type":"gemini","content":"","toolCalls":[{"id":"c1","name":"ls","args":{},"status":"executing"}]}`
	geminiList = `{"$set":{"messages":[{"id":"m2","timestamp":"2026-01-05T10:00:02.000Z","type":"gemini","content":"","toolCalls":[{"id":"c1","name":"ls","args":{},"status":"success","result":[]}]}]}}`
)

// TestEachAgentsForm: what is made for an agent is in its own form. Holds are what the copy must hold, line by line.
func TestEachAgentsForm(t *testing.T) {
	for _, c := range []struct {
		name, agent, file string
		text, holds       []string
	}{
		{"pi: an open call in the middle", "pi", "x.jsonl", []string{piHead, piAsk, piCall, piNext, ""},
			[]string{
				piHead, piAsk, piCall,
				`"parentId":"a2","timestamp":"2026-01-05T10:00:02.000Z","message":{"role":"toolResult","toolCallId":"c1","toolName":"bash","content":[{"text":"[Interrupted:`,
				`"role":"user","content":"on"`, "",
			}},
		{"pi: a lone result", "pi", "x.jsonl", []string{piHead, piAsk, piResult, ""},
			[]string{piHead, piAsk, `{"type":"message","id":"a2","parentId":"a1",`, piResult, ""}},
		{"pi: a torn header", "pi", "2026-01-05T10-00-00-000Z_11111111-1111-4111-8111-111111111111.jsonl", []string{piHead[:len(piHead)-1] + `,"x`, piAsk, ""}, []string{
			piHead, piAsk, "",
		}},
		{"codex: an open patch", "codex", rollout, []string{codexMeta, codexTurn, codexAsk, codexCall, ""},
			[]string{
				codexMeta, codexTurn, codexAsk, codexCall,
				`"type":"response_item","payload":{"type":"custom_tool_call_output","call_id":"c1","output":"[Interrupted:`,
				"",
			}},
		{"codex: no header", "codex", rollout, []string{codexTurn, codexAsk, ""},
			[]string{
				`"ordinal":0,"type":"session_meta","payload":{"id":"01a22e0e-6127-7a33-a886-85a2d4e36f24","timestamp":"2026-01-05T10:00:01.000Z","cwd":"/proj"`,
				codexTurn, codexAsk, "",
			}},
		{"gemini: a call that never ended", "gemini", "session-2026-01-05T10-00-b8570c78.jsonl", []string{
			geminiHead, geminiAsk, geminiCall, "",
		},
			[]string{geminiHead, geminiAsk, geminiCall, `"status":"cancelled"`, ""}},
		{"gemini: a call of which only a list says how it ended", "gemini", "session-2026-01-05T10-00-b8570c78.jsonl", []string{
			geminiHead, geminiAsk, geminiCall, geminiList, "",
		},
			[]string{geminiHead, geminiAsk, geminiCall, geminiList, ""}},
		{"gemini: a torn header", "gemini", "session-2026-01-05T10-00-b8570c78.jsonl", []string{geminiHead[:120], geminiAsk, ""},
			[]string{`{"sessionId":"b8570c78-7334-4cee-bdd8-9b9221417295","projectHash":"h",`, geminiAsk, ""}},
		{"gemini: a document that breaks off", "gemini", "session-2026-01-05T10-00-b8570c78.json", []string{`{"sessionId":"s","projectHash":"h","messages":[`, geminiAsk + `,`, geminiAsk[:30]},
			[]string{`{"sessionId":"s","projectHash":"h","messages":[`, geminiAsk + "]}"}},
	} {
		g, _ := all.ByName(agent.Host{}, c.agent)
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, []byte(strings.Join(c.text, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}

		repairOne(t, g, path, c.name)
		got := strings.Split(string(load(t, filepath.Join(filepath.Dir(path), "copy", c.file))), "\n")
		if len(got) != len(c.holds) {
			t.Errorf("%s: got %d lines, want %d:\n%s", c.name, len(got), len(c.holds), strings.Join(got, "\n"))
			continue
		}

		for i, want := range c.holds {
			if !strings.Contains(got[i], want) || want == "" && got[i] != "" {
				t.Errorf("%s: line %d is %s, want %s in it", c.name, i+1, got[i], want)
			}
		}
	}
}

// TestHeaderThatCannotBeMade: nothing is invented; the report says what is missing.
func TestHeaderThatCannotBeMade(t *testing.T) {
	g, _ := all.ByName(agent.Host{}, "pi")
	path := filepath.Join(t.TempDir(), "unnamed.jsonl")
	if err := os.WriteFile(path, []byte(piAsk+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	x := examined(t, g, path)
	if want := "the first record is missing, and cannot be made again: "; x.Resumable || len(x.WhyNot) != 1 ||
		!strings.HasPrefix(x.WhyNot[0], want) {
		t.Errorf("got resumable %v, %v, want %q and why", x.Resumable, x.WhyNot, want)
	}
}

// TestCompressedRollout: an archive is examined by what is in it; its copy is plain.
func TestCompressedRollout(t *testing.T) {
	g, _ := all.ByName(agent.Host{}, "codex")
	text := strings.Join([]string{codexMeta, codexTurn, codexAsk, codexCall, ""}, "\n")
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}

	packed := z.EncodeAll([]byte(text), nil)
	path := filepath.Join(t.TempDir(), rollout+".zst")
	for cut, want := range map[int]bool{0: true, 9: false} {
		if err := os.WriteFile(path, packed[:len(packed)-cut], 0o600); err != nil {
			t.Fatal(err)
		}

		x := examined(t, g, path)
		if x.File != path || x.Resumable != want {
			t.Errorf(
				"cut by %d: got %s, resumable %v (%v), want %s, %v", cut, x.File, x.Resumable, x.WhyNot, path,
				want,
			)
		}

		if cut == 0 {
			out := filepath.Join(filepath.Dir(path), rollout)
			if err := x.Repair(t.Context(), vfs.OS{}, out, nil); err != nil {
				t.Fatal(err)
			}
			if got := string(load(t, out)); !strings.HasPrefix(got, text) {
				t.Errorf("the copy is %q, want it to begin with what was packed", got)
			}
			if err := x.Repair(t.Context(), vfs.OS{}, path, nil); !errors.Is(err, repair.ErrOriginal) {
				t.Errorf("repair over the archive: got %v, want %v", err, repair.ErrOriginal)
			}
		}

		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestMadeResultsStayInDoubt: belay's own readers take no made result for an outcome.
func TestMadeResultsStayInDoubt(t *testing.T) {
	for _, c := range []struct{ agent, file, text string }{
		{"claude-code", "s.jsonl", string(load(t, cases+"R05-open-tool-use.jsonl"))},
		{"pi", "s.jsonl", piHead + "\n" + piAsk + "\n" + piCall + "\n"},
		{"codex", rollout, codexMeta + "\n" + codexTurn + "\n" + codexAsk + "\n" + codexCall + "\n"},
	} {
		g, _ := all.ByName(agent.Host{}, c.agent)
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}

		x := examined(t, g, path)
		out := filepath.Join(t.TempDir(), c.file)
		if err := x.Repair(t.Context(), vfs.OS{}, out, nil); err != nil {
			t.Fatal(err)
		}

		r := g.Open(agent.Source{Path: out})
		b, err := r.Read(t.Context(), "", checkpoint.ReadOptions{Final: true, Whole: true})
		if err = errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}

		made := 0
		for _, e := range b.Entries {
			if e.Kind == checkpoint.EntryResult && e.MadeUp {
				made++
			}
		}

		if made != len(x.OpenCalls) || made == 0 {
			t.Errorf("%s: %d results are known to be made, want %d", c.agent, made, len(x.OpenCalls))
		}
	}
}
