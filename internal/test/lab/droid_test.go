//go:build linux

package lab

import (
	"maps"
	"os"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
)

const (
	droidVar      = "BELAY_LAB_DROID"
	droidSettings = ".factory/settings.json"
)

// droidExecute is a call of Droid's shell tool.
func droidExecute(command string) Call {
	return Call{
		"Execute",
		map[string]any{
			"command":         command,
			"summary":         "a command of the lab",
			"riskLevelReason": "none",
			"riskLevel":       "low",
		},
	}
}

// newDroid is a home with Droid, which asks nobody to sign in where the model is the user's own. What it asks of its
// makers is asked of the fake model, which knows nothing of it.
func newDroid(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, program{
		name: "droid", env: droidVar, dir: ".factory", files: ".factory/sessions/*/*.jsonl",
		setup: func(h *home) {
			h.write(droidSettings, `{ // mine
  "customModels": [ {"model": "lab-model", "id": "custom:lab", "index": 0, "displayName": "lab", "baseUrl": "`+h.url+`/v1",
    "apiKey": "test", "provider": "generic-chat-completion-api", "maxOutputTokens": 8000, "noImageSupport": true} ],
  "hooks": { "Stop": [ {"hooks": [ {"type": "command", "command": "true"} ]} ] } }

`)
		},
		vars: func(h *home) []string {
			return []string{
				"FACTORY_API_BASE_URL=" + h.url,
				"FACTORY_APP_BASE_URL=" + h.url,
				"FACTORY_TELEMETRY_INGEST_BASE_URL=" + h.url,
				"FACTORY_DROID_AUTO_UPDATE_ENABLED=false",
				"FACTORY_DISABLE_KEYRING=true",
			}
		},
		shell: droidExecute,
		args:  []string{"exec", "--auto", "high", "-m", "custom:lab"},
		blind: true, forgets: true,
		again: "--session-id",
		slow:  time.Minute,
	})
}

func TestDroidTwoRounds(t *testing.T) { twoRounds(t, newDroid(t)) }

func TestDroidKilledInToolThenNew(t *testing.T) { killedInToolThenNew(t, newDroid(t)) }

func TestDroidAndDaemonKilled(t *testing.T) { killedWithDaemon(t, newDroid(t)) }

func TestDroidKilledInToolThenResumed(t *testing.T) { killedInToolThenResumed(t, newDroid(t)) }

func TestDroidKilledInStreamThenNew(t *testing.T) { killedInStreamThenNew(t, newDroid(t)) }

func TestDroidKilledInStreamThenResumed(t *testing.T) { killedInStreamThenResumed(t, newDroid(t)) }

func TestDroidKilledInFirstAnswer(t *testing.T) { killedInFirstAnswer(t, newDroid(t)) }

// TestDroidTerminatedInTool: it ends its command, writes that down, and finishes the round.
func TestDroidTerminatedInTool(t *testing.T) {
	h := newDroid(t)
	a := h.inCommand()
	a.signal(syscall.SIGTERM)
	session := h.newest()
	h.until("its end is seen", func() bool { st := h.status(session).State; return st == "died" || st == "ended" })
	h.until("the command has failed", func() bool { return h.calls(session)["touch"] == checkpoint.CallFailed })
	if r := h.recover(session); len(r.InDoubt) != 0 {
		t.Errorf("got %v in doubt, want none", r.InDoubt)
	}
}

func TestDroidWithoutBelay(t *testing.T) { withoutBelay(t, newDroid(t), droidSettings) }

// TestDroidUninstall: the user's settings are as they were, byte for byte, after sessions ran with belay in them.
func TestDroidUninstall(t *testing.T) {
	h := newDroid(t)
	if out, err := h.belay("uninstall", "droid"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}

	user, err := os.ReadFile(h.path(droidSettings))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.belay("install", "droid"); err != nil {
		t.Fatalf("belay install: %v\n%s", err, out)
	}

	h.run("please start the work")
	session, before := h.newest(), h.agentFiles()
	for _, args := range [][]string{{"status"}, {"recover", "--session", session}, {"list"}} {
		if out, err := h.belay(args...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}

	if after := h.agentFiles(); !maps.Equal(after, before) {
		t.Errorf("belay's commands changed files of the agent: got %v, want %v", after, before)
	}
	if out, err := h.belay("uninstall", "droid"); err != nil {
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}
	if got, err := os.ReadFile(h.path(droidSettings)); err != nil || string(got) != string(user) {
		t.Errorf("settings after uninstall: %q, %v, want %q", got, err, user)
	}

	h.run("without belay")
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions after uninstall, want still 1", len(list))
	}
}
