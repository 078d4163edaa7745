package all

import (
	"path/filepath"
	"testing"

	"belay/internal/agent"
)

func TestByName(t *testing.T) {
	for _, name := range []string{
		"claude-code", "codex", "gemini", "opencode", "openclaw", "pi", "oh-my-pi", "droid", "cursor", "copilot",
		"agent-zero", "dumplings", "chat-session",
	} {
		a, ok := ByName(agent.Host{}, name)
		if !ok || a.Name() != name {
			t.Errorf("ByName(%q): %v %v, want that agent", name, a, ok)
		}
	}
	for _, name := range []string{"", "claude", "Claude-Code"} {
		if a, ok := ByName(agent.Host{}, name); ok {
			t.Errorf("ByName(%q): %v, want none", name, a.Name())
		}
	}
}

// TestEveryAgentKeepsTheRules: what the rest of belay relies on, whoever the agent is.
func TestEveryAgentKeepsTheRules(t *testing.T) {
	names := map[string]bool{}
	for _, a := range All(agent.Host{}) {
		if names[a.Name()] {
			t.Errorf("%s is registered twice", a.Name())
		}

		names[a.Name()] = true
		if a.Limits().BriefBytes <= 0 {
			t.Errorf("%s: no limit for a brief", a.Name())
		}

		for _, payload := range []string{"", "{", "null", "[]", `{"session_id":"s"}`, "\x00\xff"} {
			in, err := a.Decode(t.Context(), agent.Hook{Event: "no such event", Payload: []byte(payload)})
			if len(in.Events) > 0 {
				t.Errorf("%s: %q (%v) means %d events, want none", a.Name(), payload, err, len(in.Events))
			}
		}

		r := a.Open(agent.Source{Path: filepath.Join(t.TempDir(), "absent.jsonl"), Session: "s"})
		if r == nil {
			t.Errorf("%s: no reader for a transcript that is not there yet", a.Name())
			continue
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", a.Name(), err)
		}
	}
}

// TestOneEventWaits: a session's start waits for its brief, or what comes first in a plugin, and nothing else does; and
// its answer can carry one.
func TestOneEventWaits(t *testing.T) {
	for _, a := range All(agent.Host{}) {
		waits := ""
		for _, e := range a.Events() {
			if e.Waits {
				waits += e.Name
			}
		}

		_, wired := a.(agent.Installer)
		if wired = wired && a.Name() != "agent-zero"; !wired { // its extension puts a brief in when it comes
			if waits != "" {
				t.Errorf("%s: %s waits, and nothing could", a.Name(), waits)
			}
			continue
		}

		if len(a.Reply(waits, "the brief")) == 0 {
			t.Errorf("%s: events that wait: %q, want one, whose answer carries a brief", a.Name(), waits)
		}
	}
}
