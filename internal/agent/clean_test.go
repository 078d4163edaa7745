package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/gemini"
	"belay/internal/agent/kit/tools"
)

// tokenID is an id of a record that any set of rules takes for a key of a code host.
var tokenID = "ghp_" + "zQ8vK2mX5nB7cR4tY6wP1sD3fG9hJ0kLaU2e"

// noting is an agent of whose reader only the cursors matter.
type noting struct {
	agent.Agent
	from []checkpoint.Cursor
}

type place struct {
	ID   string `json:"i"`
	Hash uint64 `json:"h"`
	More []any  `json:"m"`
}

func (n *noting) Open(agent.Source) checkpoint.Transcript { return n }

func (n *noting) Tools() tools.Table { return nil }

func (n *noting) Read(_ context.Context, from checkpoint.Cursor, _ checkpoint.ReadOptions) (checkpoint.Batch, error) {
	n.from = append(n.from, from)
	data, err := json.Marshal(place{tokenID, 18446744073709551557, []any{"text", 7, map[string]any{"deep": tokenID}}})
	return checkpoint.Batch{Cursor: checkpoint.Cursor(data)}, err
}

func (n *noting) Close() error { return nil }

// A reader gets its own cursor back, and what is kept of it has neither the secret nor another place.
func TestCursorWithAnIDThatLooksLikeASecret(t *testing.T) {
	n := &noting{}
	tr := agent.OpenTranscript(n, agent.Source{})
	var kept checkpoint.Cursor
	for range 3 {
		b, err := tr.Read(t.Context(), kept, checkpoint.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		kept = b.Cursor
	}

	if strings.Contains(string(kept), tokenID) {
		t.Errorf("the kept cursor %s holds the secret", kept)
	}

	var p place
	if err := json.Unmarshal(
		[]byte(kept), &p,
	); err != nil || p.Hash != 18446744073709551557 ||
		fmt.Sprint(p.More[:2]) != "[text 7]" {
		t.Errorf("the kept cursor %s, %v; want all but the secret as it was", kept, err)
	}

	if len(n.from) != 3 || !strings.Contains(string(n.from[1]), tokenID) || n.from[1] != n.from[2] {
		t.Errorf("the reader went on from %q, want its own cursor", n.from)
	}
}

// A document whose newest message has such an id is not told again, by the same reader or by the next.
func TestDocumentWithAnIDThatLooksLikeASecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "session-1.json")
	message := func(id, kind, text string) string {
		return fmt.Sprintf(`{"id":%q,"timestamp":"2026-01-05T10:00:00.000Z","type":%q,"content":%q}`, id, kind, text)
	}
	write := func(messages ...string) {
		doc := `{"sessionId":"11111111-1111-4111-8111-111111111111","projectHash":"h","messages":[` + strings.Join(
			messages, ",",
		) + `]}`
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	open := func() checkpoint.Transcript {
		tr := agent.OpenTranscript(
			gemini.New(agent.Host{}), agent.Source{Path: path, Session: "11111111-1111-4111-8111-111111111111"},
		)
		t.Cleanup(func() { _ = tr.Close() })
		return tr
	}

	read := func(tr checkpoint.Transcript, from checkpoint.Cursor, want ...string) checkpoint.Cursor {
		t.Helper()
		b, err := tr.Read(t.Context(), from, checkpoint.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, e := range b.Entries {
			if e.Op == checkpoint.Reset || e.Text != "" {
				got = append(got, fmt.Sprint(e.Op, " ", e.Text))
			}
		}

		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("from %q: %q, want %q", from, got, want)
		}

		return b.Cursor
	}

	one, two, three := message(
		"m1", "user", "a wish",
	), message(
		tokenID, "gemini", "an answer",
	), message(
		"m3", "user", "more",
	)

	write(one, two)
	tr := open()
	put := fmt.Sprint(checkpoint.Upsert, " ")
	kept := read(tr, "", put+"a wish", put+"an answer")
	kept = read(tr, kept)
	read(open(), kept)
	write(one, two, three)
	read(open(), kept, put+"more")
	read(tr, kept, put+"more")
}
