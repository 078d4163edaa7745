package main

import (
	"belay/internal/agent"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"belay/internal/agent/all"
	"belay/internal/state/mirror"
	"belay/internal/vfs"
)

// TestNoSecretInAnySink: secrets of every form in every field of what agents send and write, with faults on; afterwards
// none of their values is in a byte of the state folder, of any command's output, of the log, of what a subscriber
// hears, or of a process's arguments and environment. Sinks are found, not listed: every file below the state folder,
// every command of the program in every way to give it a secret, install and uninstall over settings that are full of
// them.
func TestNoSecretInAnySink(t *testing.T) {
	h := newHome(t)
	p := &planter{plants: plants()}
	h.workTree(t, p)
	stop := watchProcesses(t, p)
	files := h.transcripts(t, p)
	_, kill := h.daemon(t)
	heard := h.listen(t, p)
	for i, a := range all.All(agent.Host{}) {
		p.set = map[string]string{"cwd": string(h), "workspace": string(h), "directory": string(h)}
		session := fmt.Sprintf("11111111-1111-4111-8111-%012d", i)
		for _, k := range []string{"session_id", "sessionId", "conversation_id"} {
			p.set[k] = session
		}

		for _, k := range []string{"transcript_path", "session_file", "chat_file"} {
			p.set[k] = files[a.Name()]
		}

		if i%3 == 0 { // a store that fails for this session
			blocked := filepath.Join(h.state(), "sessions", a.Name(), session, "checkpoints")
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(blocked), 0o700), os.WriteFile(blocked, nil, 0o600),
			); err != nil {
				t.Fatal(err)
			}
		}

		for n, c := range slices.Concat(p.captured(t, a.Name()), p.made(t, a)) {
			if n == 5 && i%4 == 1 {
				kill() // the next events find no daemon: they are spooled, and one is started
			}
			h.hook(t, c)
		}
	}

	h.garbage(t, p, p.leak)
	if !wait(func() bool { return isReady(h.state()) }) {
		t.Fatal("no daemon after all that")
	}

	stop()
	h.runAll(t, p, files)
	h.probeAll(t, p, files["claude-code"])
	h.wiring(t, p)
	heard()
	stopDaemon(h.state())
	h.look(t, p)
}

// workTree makes the sessions' folder a git work tree with secrets in the names of changed files and of the branch.
func (h home) workTree(t *testing.T, p *planter) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Log("no git: names in the work tree are not planted")
		return
	}

	cmd := exec.Command("git", "init", "-q", "-b", "feature/"+p.plants[0].text)
	cmd.Dir, cmd.Env = string(h), h.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}

	for _, one := range p.plants {
		if !strings.ContainsAny(one.text, "/\n") {
			if err := os.WriteFile(filepath.Join(string(h), one.text), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (h home) env() []string { return []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")} }

// hook sends a call as an agent does.
func (h home) hook(t *testing.T, c call) {
	t.Helper()
	cmd := exec.Command(filepath.Join(place.bin, "belay-hook"), c.agent, c.event)
	cmd.Dir, cmd.Env, cmd.Stdin = string(h), h.env(), bytes.NewReader(c.payload)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("belay-hook %s %s: %v: %s", c.agent, c.event, err, out)
	}
	if found := (&planter{plants: plants()}).leak(out); len(found) > 0 {
		t.Errorf("belay-hook %s %s prints %s", c.agent, c.event, found[0])
	}
}

// transcripts writes one for each agent that has some in the repository, with plants in every record and bad lines
// between.
func (h home) transcripts(t *testing.T, p *planter) map[string]string {
	t.Helper()
	files := map[string]string{}
	for name, from := range map[string]string{
		"claude-code": "claude/testdata/hooks/X01-secrets.jsonl", "codex": "codex/testdata/reader/generated/*.jsonl",
		"gemini": "gemini/testdata/transcripts/0.61-tools-then-resume.jsonl",
		"pi":     "pi/testdata/pi/*.jsonl", "oh-my-pi": "ohmypi/testdata/killed-resumed.captured.jsonl",
		"droid":   "droid/testdata/told.captured.jsonl",
		"copilot": "copilot/testdata/events.handmade.jsonl",
		"cursor":  "cursor/testdata/agent-transcript-tool-use.handmade.jsonl",
	} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "internal", "agent", from))
		if err != nil || len(paths) == 0 {
			t.Errorf("%s: no transcript at %s: %v", name, from, err)
			continue
		}

		data, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		for range 2 {
			for line := range bytes.Lines(data) {
				var doc any
				if json.Unmarshal(line, &doc) != nil {
					continue
				}

				one, err := json.Marshal(p.fill("", doc))
				if err != nil {
					t.Fatal(err)
				}

				out.Write(append(one, '\n'))
				out.Write(append(one[:len(one)/2:len(one)/2], '\n')) // torn, then written again
				fmt.Fprintf(&out, "no JSON at all but %s\n", p.text(""))
			}
		}

		files[name] = filepath.Join(string(h), name+".jsonl")
		if err := os.WriteFile(files[name], out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return files
}

// garbage says to the socket what no client should. Leak looks into the answers.
func (h home) garbage(t *testing.T, p *planter, leak func([]byte) []string) {
	t.Helper()
	if !wait(func() bool { return isReady(h.state()) }) {
		t.Fatal("no daemon answers")
	}

	for i := range p.plants {
		word, err := json.Marshal(p.plants[i].text)
		if err != nil {
			t.Fatal(err)
		}

		for _, form := range []string{
			`{"v":1,"op":%s}`, `{"v":1,"op":"hook","agent":%s,"event":"Stop","len":0}`,
			`{"v":1,"op":"hook","agent":"claude-code","event":%s,"len":0}`,
			`{"v":1,"op":"event","agent":"mine","session":"s","body":{"kind":%s}}`,
			`{"v":1,"op":"event","agent":"mine","session":"s","event":{"kind":%s}}`,
			`{"v":1,"op":"event","agent":"mine","session":"s","body":{"kind":"tool-start","text":%[1]s,"call":%[1]s,"name":%[1]s,"input":%[1]s,"model":%[1]s}}`,
			`{"v":1,"op":"event","agent":%[1]s,"session":%[1]s,"child":%[1]s,"body":{"kind":"beat"}}`,
			`{"v":1,"op":"mark","agent":"mine","session":"s","text":%s}`,
			`{"v":1,"op":"show","agent":"mine","session":%s}`, `{"v":1,"op":"recover","body":%s}`, `%s`,
			`no JSON, %s`,
		} {
			h.say(t, leak, fmt.Sprintf(form, word))
		}
	}
}

func (h home) say(t *testing.T, leak func([]byte) []string, line string) {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close() // only read from
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}

	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if found := leak(answer); len(found) > 0 {
		t.Errorf("the answer to %s holds %s", line, found[0])
	}
}

// commands are all that the program has, but those that run for long or read stdin.
func commands(root *cobra.Command) [][]string {
	var all [][]string
	for _, c := range root.Commands() {
		name := strings.Fields(strings.TrimPrefix(c.CommandPath(), "belay "))
		if !slices.Contains(
			[]string{"daemon", "run", "intake", "help", "completion", "install", "uninstall"}, name[0],
		) {
			one := []string{strings.Join(name, " ")}
			for _, flag := range []string{"json", "session", "format"} {
				if c.Flags().Lookup(flag) != nil {
					one = append(one, flag)
				}
			}
			all = append(all, one)
		}

		all = append(all, commands(c)...)
	}

	return all
}

// runAll runs every command in each of its forms and reads all that it says.
func (h home) runAll(t *testing.T, p *planter, files map[string]string) {
	t.Helper()
	ran := 0
	run := func(args ...string) {
		cmd := exec.Command(filepath.Join(place.bin, "belay"), args...)
		cmd.Dir, cmd.Env = string(h), h.env()
		out, err := cmd.CombinedOutput()
		if ee := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ee) {
			t.Errorf("belay %q: %v", args, err)
		}
		if found := p.leak(out); len(found) > 0 {
			t.Errorf("belay %q prints %s", args, found[0])
		}

		ran++
	}

	sessions := [][]string{{}}
	for i, a := range all.All(agent.Host{}) {
		sessions = append(
			sessions,
			[]string{"--agent", a.Name(), "--session", fmt.Sprintf("11111111-1111-4111-8111-%012d", i)},
		)
	}

	sessions = append(sessions, []string{"--agent", "mine", "--session", "s"})
	for _, c := range commands(newRoot()) {
		args := strings.Fields(c[0])
		forms := [][]string{{}}
		if slices.Contains(c, "json") {
			forms = append(forms, []string{"--json"})
		}
		if slices.Contains(c, "format") {
			forms = append(forms, []string{"--format", "delta"})
		}

		for _, form := range forms {
			if args[len(args)-1] == "transcript" {
				for _, file := range files {
					run(slices.Concat(args, []string{file}, form)...)
				}
				continue
			}
			for i, session := range sessions {
				if i == 0 ||
					slices.Contains(c, "session") &&
						(args[0] == "show" || args[0] == "recover" || args[0] == "status" || i%4 == 0) {
					run(slices.Concat(args, form, session)...)
				}
			}
		}
	}

	for name, file := range files {
		run("recover", "--agent", name, "--transcript", file)
		run("show", "--agent", name, "--session", sessions[1][3], "--mirror")
	}

	run("run", "--agent", "mine", "--", "true")
	if ran < 60 {
		t.Errorf("%d commands ran: this holds too little", ran)
	}
}

// look reads every byte below the state folder, and what compressed files hold.
func (h home) look(t *testing.T, p *planter) {
	t.Helper()
	marks := map[string]int{}
	err := filepath.WalkDir(h.state(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel := strings.TrimPrefix(path, h.state())
		if found := p.leak([]byte(rel)); len(found) > 0 {
			t.Errorf("the name %s holds %s", rel, found[0])
		}
		if !d.Type().IsRegular() {
			return nil
		}

		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if strings.HasSuffix(path, ".zst") {
			lines, err := mirror.Lines(vfs.OS{}, path, nil)
			if err != nil {
				return err
			}
			if data, err = io.ReadAll(lines); err != nil {
				return err
			}
			if err := lines.Close(); err != nil {
				return err
			}
		}

		for _, one := range p.leak(data) {
			t.Errorf("%s holds %s", rel, one)
		}

		kind := regexp.MustCompile(`[0-9a-f]{6,}|[0-9]+`).ReplaceAllString(filepath.Base(path), "N")
		marks[kind] += bytes.Count(data, []byte("[secret:"))
		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	for _, kind := range []string{"N-full.md", "transcript.jsonl.zst", "state.json"} {
		if marks[kind] == 0 {
			t.Errorf("no mark in any %s: nothing reached it, and this test says nothing of it (%v)", kind, marks)
		}
	}
}

// watchProcesses reads the arguments and the environment of all programs of ours again and again until it is stopped.
func watchProcesses(t *testing.T, p *planter) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	seen, leaks := 0, map[string]bool{}
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}

			exes, _ := filepath.Glob("/proc/[0-9]*/exe") // a bad pattern is the only error
			for _, exe := range exes {
				if to, err := os.Readlink(exe); err != nil || !strings.HasPrefix(to, place.bin) {
					continue // gone, or not ours
				}
				for _, name := range []string{"cmdline", "environ"} {
					data, err := os.ReadFile(filepath.Join(filepath.Dir(exe), name))
					if err != nil {
						continue // gone
					}

					seen++
					for _, one := range p.leak(data) {
						leaks[name+": "+one] = true
					}
				}
			}
		}
	})

	return func() {
		close(done)
		wg.Wait()
		for one := range leaks {
			t.Errorf("/proc shows %s", one)
		}

		if seen == 0 {
			t.Error("no process of ours was ever seen: this holds nothing")
		}
	}
}
