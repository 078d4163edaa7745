package agentzero

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

// told writes an event as words.
func told(e checkpoint.Event) string {
	s := string(e.Kind)
	for _, v := range []string{
		e.Key.Child, e.Source, e.Call, e.Name, e.Input, e.Output, e.Text, string(e.Outcome), e.Reason,
		e.Child, e.Parent,
	} {
		if v != "" {
			s += " " + v
		}
	}

	if e.Count > 0 {
		s += fmt.Sprint(" ", e.Count)
	}

	return s
}

func TestDecode(t *testing.T) {
	who := `"session_id":"aB3dE6gH","context_type":"user","root":"/no/a0","chat_file":"/no/a0/usr/chats/aB3dE6gH/chat.json","turn":"u1"`
	sub := who + `,"agent":1,"profile":"coder"`
	for _, c := range []struct {
		event, payload string
		want           []string
		ask            agent.Ask
	}{
		{"session_start", who, []string{"start startup", "owed"}, agent.AskNothing},
		{"session_start", who + `,"has_words":true`, []string{"start resume", "owed"}, agent.AskNothing},
		{"monologue_start", who + `,"prompt":{"user_message":"list files","system_message":["be quick"]}`, []string{
			"prompt list files",
		}, agent.AskCarry},
		{"intervention", who + `,"prompt":{"user_intervention":"stop"}`, []string{"prompt stop"}, agent.AskNothing},
		{"tool_execute_before", who + `,"call":"a1","tool_name":"search","tool_args":{"q": 1}`, []string{
			`tool-start a1 search {"q":1}`,
		}, agent.AskNothing},
		{"tool_execute_after", who + `,"call":"a1","tool_name":"search","result":"found"`, []string{
			"tool-end a1 search found",
		}, agent.AskNothing},
		{"tool_execute_before", who + `,"call":"a2","tool_name":"response","tool_args":{"text":"x"}`, nil, agent.AskNothing},
		{"monologue_end", who + `,"last_response":"{\"tool_name\":\"response\",\"tool_args\":{\"text\":\"done\"}}"`, []string{
			"stop done",
		}, agent.AskNothing},
		{"monologue_end", who + `,"last_response":"{\"tool_name\":\"response\",\"tool_args\":{\"text\":\"done\"}}","error":"RuntimeError: no model"`, []string{
			"stop failed RuntimeError: no model",
		}, agent.AskNothing},
		{"monologue_end", who + `,"last_response":"","error":"CancelledError: ","cancelled":true`, []string{
			"stop interrupted",
		}, agent.AskNothing},
		{"monologue_end", who + `,"last_response":""`, nil, agent.AskNothing}, // an error, after which it begins anew
		{"monologue_start", sub + `,"prompt":{"user_message":"part"}`, []string{
			"child-start coder A1", "start A1 aB3dE6gH", "prompt A1 part",
		}, agent.AskNothing},
		{"tool_execute_before", sub + `,"call":"a1","tool_name":"search"`, []string{
			"tool-start A1 a1 search",
		}, agent.AskNothing},
		{"monologue_end", sub + `,"last_response":"{\"tool_name\":\"response\",\"tool_args\":{\"text\":\"part done\"}}"`, []string{
			"child-end part done A1", "end A1 part done aB3dE6gH",
		}, agent.AskNothing},
		{"dropped", who + `,"count":7`, []string{"dropped 7"}, agent.AskNothing},
		{"no such event", who, nil, agent.AskNothing},
		{"wake", "", nil, agent.AskNothing},
	} {
		payload := ""
		if c.payload != "" {
			payload = "{" + c.payload + "}"
		}

		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: c.event, Payload: []byte(payload)})
		var got []string
		for _, e := range in.Events {
			s := strings.Replace(told(e), "child-start A1", "child-start coder A1", 1)
			got = append(got, s)
			if e.Key.Agent != name || e.Key.Session != "aB3dE6gH" || e.Key.Workspace != "/no/a0" {
				t.Errorf("%s: key %+v", c.event, e.Key)
			}
		}

		if err != nil || in.Ask != c.ask {
			t.Errorf("%s: %v, ask %v, want %v", c.event, err, in.Ask, c.ask)
		}

		same(t, c.event+" "+c.payload, got, c.want)

		// The same of a background context is nothing.
		in, err = New(
			agent.Host{},
		).Decode(
			t.Context(),
			agent.Hook{
				Event:   c.event,
				Payload: []byte(strings.Replace(payload, `"context_type":"user"`, `"context_type":"background"`, 1)),
			},
		)

		if err != nil || len(in.Events) > 0 {
			t.Errorf("%s of a background context: %v, %d events, want none", c.event, err, len(in.Events))
		}
	}
}

func TestDecodeBadPayloads(t *testing.T) {
	for payload, want := range map[string]error{
		"": ErrBadPayload, "{": ErrBadPayload, "[]": ErrBadPayload, "null": ErrBadPayload, "\x00": ErrBadPayload,
		"{}": ErrNoSession, `{"session_id":7}`: ErrNoSession, `{"session_id":"` + strings.Repeat("x", 300) + `"}`: ErrNoSession,
	} {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: "monologue_start", Payload: []byte(payload)})
		if !errors.Is(err, want) || len(in.Events) > 0 {
			t.Errorf("%.40q: %v, %d events, want %v", payload, err, len(in.Events), want)
		}
	}
}

func TestDecodeKeepsNoSecrets(t *testing.T) {
	key := "ghp_" + strings.Repeat("a1B2", 9)
	for _, event := range []string{"monologue_start", "tool_execute_before", "tool_execute_after", "monologue_end"} {
		in, err := New(
			agent.Host{},
		).Decode(
			t.Context(),
			agent.Hook{
				Event: event,
				Payload: []byte(
					`{"session_id":"s","prompt":{"user_message":"` + key + `"},"call":"c","tool_name":"t","tool_args":{"k":"` + key + `"},"result":"` + key + `","error":"` + key + `"}`,
				),
			},
		)

		if err != nil || len(in.Events) == 0 {
			t.Fatal(event, err)
		}

		for _, e := range in.Events {
			if strings.Contains(told(e), key) {
				t.Errorf("%s keeps a key: %s", event, told(e))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("monologue_start", []byte(`{"session_id":"s","agent":1,"prompt":"x"}`))
	f.Add("monologue_end", []byte(`{"session_id":"s","last_response":"{"}`))
	f.Fuzz(func(t *testing.T, event string, payload []byte) {
		in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: event, Payload: payload})
		if err != nil && len(in.Events) > 0 {
			t.Errorf("an error and %d events", len(in.Events))
		}

		for _, e := range in.Events {
			if len(e.Text) > checkpoint.CutText || len(e.Input) > checkpoint.CutTool || len(e.Call) > 300 {
				t.Errorf("an event over its bounds: %+v", e)
			}
		}
	})
}
