//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	ohmypiVar       = "BELAY_LAB_OHMYPI"
	ohmypiExtension = ".omp/agent/extensions/belay.ts"
)

func newOhmypi(t *testing.T) *home {
	t.Helper()
	return newHomeOf(t, program{
		name: "oh-my-pi", env: ohmypiVar, dir: ".omp", files: ".omp/agent/sessions/*/*.jsonl",
		setup: func(h *home) {
			h.write(".omp/agent/models.yml", `providers:
  lab:
    baseUrl: `+h.url+`/v1
    api: openai-completions
    apiKey: test
    models:
      - {id: lab-model, name: lab-model, reasoning: false, input: [text], cost: {input: 0, output: 0, cacheRead: 0, cacheWrite: 0}, contextWindow: 200000, maxTokens: 8000}
`)
			h.write(".omp/agent/config.yml", "compaction: {keepRecentTokens: 10}\n")
		},
		vars: func(*home) []string {
			// The bun that lies beside it goes first.
			bin := filepath.Dir(os.Getenv(ohmypiVar))
			return []string{"PI_NO_TITLE=1", "PATH=" + bin + ":" + os.Getenv(binVar) + ":" + os.Getenv("PATH")}
		},
		shell: piBash,
		args:  []string{"-p", "--model", "lab/lab-model"},
		again: "--resume",
		slow:  time.Minute,
	})
}

func TestOhmypiTwoRounds(t *testing.T) { twoRounds(t, newOhmypi(t), "--continue") }

func TestOhmypiKilledInToolThenNew(t *testing.T) { killedInToolThenNew(t, newOhmypi(t)) }

func TestOhmypiAndDaemonKilled(t *testing.T) { killedWithDaemon(t, newOhmypi(t)) }

func TestOhmypiKilledInToolThenResumed(t *testing.T) { killedInToolThenResumed(t, newOhmypi(t)) }

func TestOhmypiKilledInStreamThenNew(t *testing.T) { killedInStreamThenNew(t, newOhmypi(t)) }

func TestOhmypiKilledInStreamThenResumed(t *testing.T) { killedInStreamThenResumed(t, newOhmypi(t)) }

func TestOhmypiKilledInFirstAnswer(t *testing.T) { killedInFirstAnswer(t, newOhmypi(t)) }

// TestOhmypiTerminatedInTool: it writes down that the command was aborted.
func TestOhmypiTerminatedInTool(t *testing.T) { terminatedInTool(t, newOhmypi(t)) }

// TestOhmypiLives: one that stays open: rounds, an interrupt, a compaction, a new session, and its end.
func TestOhmypiLives(t *testing.T) { piLives(t, newOhmypi(t)) }

func TestOhmypiWithoutBelay(t *testing.T) { withoutBelay(t, newOhmypi(t), ohmypiExtension) }

// TestOhmypiNotKept: of a session that oh-my-pi itself does not keep belay keeps nothing.
func TestOhmypiNotKept(t *testing.T) { notKept(t, newOhmypi(t)) }

// TestOhmypiSubAgent: what a sub-agent does belongs to the session that started it, and it is told nothing.
func TestOhmypiSubAgent(t *testing.T) {
	h := newOhmypi(t)
	spawn := Call{
		"task",
		map[string]any{
			"context": "c",
			"tasks":   []any{map[string]any{"name": "Helper", "agent": "task", "task": "do the sub work now"}},
		},
	}

	h.model.Script(Turn{When: "do the sub work now", Text: "The helper runs a command.", Calls: []Call{piBash(quick)}},
		Turn{When: "do the sub work now", Text: "half of the helper's answer", Hold: true},
		Turn{When: "please start the work", Text: "I spawn one.", Calls: []Call{spawn}},
		Turn{When: "please start the work", Text: "I wait for it."})

	p := h.piLong()
	p.say(`{"id":"1","type":"prompt","message":"please start the work"}`)
	h.until("the helper's answer stands half-way", func() bool { return h.model.Holding() == 1 })
	if list := h.sessions(); len(list) != 1 {
		t.Errorf("got %d sessions, want the one of the person", len(list))
	}

	for _, r := range h.model.Main() {
		if r.Count(record) != 0 {
			t.Errorf("somebody was told of the dead: nobody died\n%s", said(r))
		}
	}

	if _, err := h.belay("status", "--session", h.newest()); err != nil {
		t.Error(err)
	}
}

// TestOhmypiUninstall: its folder is as it was, byte for byte, after sessions ran with belay in it.
func TestOhmypiUninstall(t *testing.T) { uninstalled(t, newOhmypi(t), ohmypiExtension) }
