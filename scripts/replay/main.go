// Command replay plays a recorded agent session to a belay daemon, in quick motion and through the hook client, and
// kills the "agent" in the middle of its last tool call. scripts/run uses it to show what belay does on a machine
// without an agent.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const pause = 250 * time.Millisecond // between two records

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: replay BIN_FOLDER RECORDED.jsonl WORK_FOLDER")
		os.Exit(2)
	}
	if err := play(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// player sends what an agent's hooks would send.
type player struct {
	bin, session, transcript, work string
	out                            *os.File
}

// record is what replay needs of one line of an OpenClaw or pi transcript.
type record struct {
	Type    string `json:"type"`
	ID      string `json:"id"`
	Message struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"toolCallId"`
		IsError    bool            `json:"isError"`
		StopReason string          `json:"stopReason"`
	} `json:"message"`
}

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func play(bin, recorded, work string) (err error) {
	data, err := os.ReadFile(recorded)
	if err != nil {
		return err
	}

	lines := bytes.SplitAfter(bytes.TrimRight(data, "\n"), []byte("\n"))
	var head record
	if err := json.Unmarshal(lines[0], &head); err != nil {
		return fmt.Errorf("read the session's header: %w", err)
	}

	p := &player{bin: bin, session: head.ID, work: work, transcript: filepath.Join(work, head.ID+".jsonl")}
	if p.out, err = os.Create(p.transcript); err != nil {
		return err
	}

	defer p.out.Close() // the records are written already
	agent := exec.Command("sleep", "600")
	if err := agent.Start(); err != nil {
		return err
	}

	defer func() { _ = agent.Process.Kill() }() // it is dead already unless something failed before
	fmt.Printf("   the agent runs as process %d, session %s\n", agent.Process.Pid, head.ID)
	if err := p.event(
		map[string]any{"kind": "start", "source": "startup", "pid": agent.Process.Pid, "transcript": p.transcript},
	); err != nil {
		return err
	}

	for _, line := range lines {
		if err := p.line(line); err != nil {
			return err
		}
	}

	time.Sleep(4 * pause) // the tool has run for a second
	fmt.Printf("   kill -9 %d, in the middle of the tool call\n", agent.Process.Pid)
	if err := agent.Process.Kill(); err != nil {
		return err
	}

	_ = agent.Wait() // it was killed
	return p.noticed()
}

// line writes one record as the agent did, and sends its events.
func (p *player) line(line []byte) error {
	if _, err := p.out.Write(append(bytes.TrimRight(line, "\n"), '\n')); err != nil {
		return err
	}

	var r record
	if json.Unmarshal(line, &r) != nil || r.Type != "message" {
		return nil
	}

	time.Sleep(pause)
	var blocks []block
	if json.Unmarshal(r.Message.Content, &blocks) != nil {
		var text string
		if err := json.Unmarshal(r.Message.Content, &text); err != nil {
			return nil // a form that says nothing here
		}
		blocks = []block{{Type: "text", Text: text}}
	}

	switch r.Message.Role {
	case "user":
		fmt.Printf("   user:  %s\n", first(blocks[0].Text))
		return p.event(map[string]any{"kind": "prompt", "text": blocks[0].Text})
	case "toolResult":
		return p.verb("tool-end", "--id", r.Message.ToolCallID)
	}

	text, calls := "", 0
	for _, b := range blocks {
		if b.Type == "text" {
			text = b.Text
		}
		if b.Type == "toolCall" {
			calls++
			fmt.Printf("   tool:  %s %s\n", b.Name, first(string(b.Arguments)))
			if err := p.verb("tool-start", "--id", b.ID, "--name", b.Name, "--input", string(b.Arguments)); err != nil {
				return err
			}
		}
	}

	if calls > 0 {
		return nil
	}

	fmt.Printf("   agent: %s\n", first(text))
	return p.verb("increment", "--text", text)
}

// event sends an event in belay's own form.
func (p *player) event(e map[string]any) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}

	cmd := exec.Command(
		filepath.Join(p.bin, "belay"), "event", "--agent", "openclaw", "--session", p.session, "--workspace",
		p.work, string(data),
	)

	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("belay event: %w: %s", err, out)
	}

	return nil
}

// verb sends an event through the hook client, as a hook would.
func (p *player) verb(args ...string) error {
	args = append([]string{"verb", args[0], "--agent", "openclaw", "--session", p.session}, args[1:]...)
	cmd := exec.Command(filepath.Join(p.bin, "belay-hook"), args...)
	cmd.Dir = p.work
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("belay-hook: %w", err)
	}
	if s := strings.TrimSpace(string(out)); s != "" && s != "counted" {
		fmt.Printf("          belay: %s\n", s)
	}

	return nil
}

// noticed waits until the daemon knows of the death.
func (p *player) noticed() error {
	for range 100 {
		cmd := exec.Command(
			filepath.Join(p.bin, "belay"), "status", "--json", "--session", p.session, "--agent", "openclaw",
			"--workspace", p.work,
		)

		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("belay status: %w", err)
		}

		var st struct {
			State      string `json:"state"`
			Checkpoint int    `json:"checkpoint"`
			AtRisk     struct {
				Seconds int `json:"seconds"`
			} `json:"atRisk"`
		}

		if err := json.Unmarshal(out, &st); err != nil {
			return err
		}
		if st.State == "died" && st.Checkpoint > 0 {
			fmt.Println("   the daemon noticed the death and took checkpoint " + strconv.Itoa(st.Checkpoint))
			return nil
		}

		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the daemon did not notice the death within 5 seconds")
}

func first(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > 90 {
		s = string(r[:89]) + "…"
	}
	return s
}
