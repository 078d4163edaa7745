package agentzero

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
)

// The agents of the chain that were at work when the file was written are running sub-agents, by their names; the
// others are over. A subordinate's own session says nothing of others.
func TestStreamingAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "chat.json")
	src := agent.Source{Path: path, Session: "c"}
	const form = `{"id":"c","type":"user","agents":[{"number":0,"history":"{\"current\":{\"messages\":[{\"id\":\"u\",\"ai\":false,\"content\":{\"user_message\":\"hi\"}}]}}"},` +
		`{"number":1,"profile":"researcher"},{"number":2,"profile":"coder"}],"streaming_agent":%s}`
	cur := checkpoint.Cursor("")
	s := checkpoint.NewState(checkpoint.NewKey(name, "", "c", "/w"))
	for i, c := range []struct {
		now     string
		running []string
		entries int
	}{{"1", []string{
		"researcher A1",
	}, 3}, {"2", []string{"researcher A1", "coder A2"}, 2}, {"null", nil, 2}, {`"x"`, nil, 0}} {
		put(t, path, fmt.Sprintf(form, c.now))
		b := read(t, src, cur, checkpoint.ReadOptions{})
		if len(b.Entries) != c.entries {
			t.Errorf("step %d: got %v, want %d entries", i, show(b.Entries), c.entries)
		}

		s.Apply(
			checkpoint.Event{
				Key:     s.Key,
				Kind:    checkpoint.EventEntries,
				At:      time.Now(),
				Entries: b.Entries,
				Cursor:  b.Cursor,
			},
		)

		var running []string
		for _, child := range s.Children {
			if child.Running {
				running = append(running, child.Name+" "+child.ID)
			}
		}

		same(t, fmt.Sprint("step ", i), running, c.running)
		cur = b.Cursor
	}

	src.Child = "A1"
	if b := read(
		t, src, "", checkpoint.ReadOptions{},
	); slices.ContainsFunc(
		b.Entries, func(e checkpoint.Entry) bool { return e.Child != "" },
	) {
		t.Errorf("the subordinate's own: got %v, want nothing of others", show(b.Entries))
	}
}

// TestBackgroundIsNeverStored: of a context of type BACKGROUND neither the file nor an event nor a search tells
// anything, wherever the file says what it is.
func TestBackgroundIsNeverStored(t *testing.T) {
	root := t.TempDir()
	whole := chatFile("background", "g", []map[string]any{topic("", user("u1", "secret errand"))})
	kind := `"type": "background", `
	late := strings.Replace(whole, kind, "", 1)
	late = late[:len(late)-1] + `, "type": "BACKGROUND"}`
	for i, text := range []string{whole, late} {
		path := filepath.Join(root, "usr", "chats", fmt.Sprint("c", i), "chat.json")
		put(t, path, text)
		for _, opt := range []checkpoint.ReadOptions{{}, {Whole: true}, {Whole: true, Final: true}} {
			if b := read(t, agent.Source{Path: path, Session: "aB3dE6gH"}, "", opt); len(b.Entries) > 0 {
				t.Errorf("file %d, %+v: got %v, want nothing", i, opt, show(b.Entries))
			}
		}
	}

	if found, err := (&Agent{roots: []string{root}}).Locate(
		context.Background(), agent.Query{},
	); err != nil ||
		len(found) > 1 {
		t.Errorf("locate: got %v, %v, want none but the one that says at its end what it is", found, err)
	}

	for _, e := range New(agent.Host{}).Events() {
		for _, kind := range []string{"background", "BACKGROUND"} {
			in, err := New(
				agent.Host{},
			).Decode(
				t.Context(),
				agent.Hook{
					Event: e.Name,
					Payload: marshal(
						msg{
							"session_id":   "s",
							"context_type": kind,
							"prompt":       "secret errand",
							"tool_name":    "x",
							"call":         "c",
							"has_words":    true,
						},
					),
				},
			)
			if err != nil || len(in.Events) > 0 || in.Ask != agent.AskNothing {
				t.Errorf("%s of a %s context: got %+v, %v, want nothing", e.Name, kind, in, err)
			}
		}
	}
}
