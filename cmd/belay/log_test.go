package main

import (
	"belay/internal/agent"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"belay/internal/agent/all"
)

// TestTheLogHoldsNoWords: at the lowest level, with stores that fail, transcripts that are damaged and clients that
// talk nonsense, no word that was said in a session is in the log, be it a secret or none.
func TestTheLogHoldsNoWords(t *testing.T) {
	h := newHome(t)
	h.configure(t, "log: {level: debug}\n")
	p := &planter{}
	for i := range 40 {
		word := fmt.Sprintf("quokka%02dzebra", i)
		p.plants = append(p.plants, plant{word + ` "said" {` + word + `}: 12:99`, word})
	}

	files := h.transcripts(t, p)
	_, kill := h.daemon(t)
	for i, a := range all.All(agent.Host{}) {
		session := fmt.Sprintf("33333333-3333-4333-8333-%012d", i)
		p.set = map[string]string{"cwd": string(h), "workspace": string(h), "directory": string(h)}
		for _, k := range []string{"session_id", "sessionId", "conversation_id"} {
			p.set[k] = session
		}

		for _, k := range []string{"transcript_path", "session_file", "chat_file"} {
			p.set[k] = files[a.Name()]
		}

		if i%2 == 0 { // its checkpoints fail
			blocked := filepath.Join(h.state(), "sessions", a.Name(), session, "checkpoints")
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(blocked), 0o700), os.WriteFile(blocked, nil, 0o600),
			); err != nil {
				t.Fatal(err)
			}
		}

		for _, c := range slices.Concat(p.captured(t, a.Name()), p.made(t, a)) {
			h.hooks(t, c, [][]byte{c.payload})
		}
	}

	h.garbage(t, p, func([]byte) []string { return nil }) // answers may quote their request
	kill()
	state, err := filepath.Glob(filepath.Join(h.state(), "sessions", "claude-code", "*", "state.json"))
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range state { // not readable at the next start
		if err := os.WriteFile(name, []byte(`{"session":"`+p.text("")), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	_, kill = h.daemon(t)
	h.ok(t, "event", "--agent", "mine", "--session", "last", `{"kind":"stop","text":"`+p.plants[0].gone+`"}`)
	stopDaemon(h.state())
	kill()
	h.logHoldsNoWords(t, p)
}

func (h home) logHoldsNoWords(t *testing.T, p *planter) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(h.state(), "belay*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log: %v", err)
	}

	lines := 0
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		lines += bytes.Count(data, []byte("\n"))
		for line := range bytes.Lines(data) {
			if found := p.leak(withoutIDs(t, line)); len(found) > 0 {
				t.Errorf("%s holds %s", filepath.Base(name), found[0])
			}
		}

		if !bytes.Contains(data, []byte(`"level":"debug"`)) {
			t.Errorf("%s has no line of the lowest level: this holds too little", filepath.Base(name))
		}
	}

	if lines < 100 {
		t.Errorf("%d lines in the log: this holds too little", lines)
	}
}

// withoutIDs is a line of the log without what says which session, folder and file it is about: those may be of any
// words.
func withoutIDs(t *testing.T, line []byte) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(line, &doc); err != nil {
		t.Fatalf("a line of the log is no JSON: %s", line)
	}

	delete(doc, "session")
	rest, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}

	return rest
}
