package openclaw

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/internal/agent"
)

// frame is what the plugin sends to the daemon.
type frame struct {
	Op, Agent, Event, ID, Workspace string
	PID, Len                        int
	body                            map[string]any
}

// fakeDaemon answers each frame with a text for session_open, and passes it on. It ends with the test.
func fakeDaemon(t *testing.T, place, word string) <-chan frame {
	t.Helper()
	l, err := net.Listen("unix", place)
	if err != nil {
		t.Fatal(err)
	}
	frames := make(chan frame, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c, word, frames)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return frames
}

func serve(c net.Conn, word string, frames chan<- frame) {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(line, &f) != nil {
			return
		}
		body := make([]byte, f.Len)
		if _, err := io.ReadFull(r, body); err != nil || json.Unmarshal(body, &f.body) != nil {
			return
		}
		answer := ""
		if f.Event == "session_open" {
			answer = word
		}
		frames <- f
		fmt.Fprintf(c, `{"ok":true,"kept":"disk","len":%d}`+"\n%s", len(answer), answer)
	}
}

// runPlugin runs a script in node with the installed plugin: `on` are its handlers, by name, of two registrations.
func runPlugin(t *testing.T, state, script string, hook string) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node to run the plugin with")
	}
	want, err := files(agent.Paths{Hook: hook})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want["run.mjs"] = []byte(`import plugin from "./index.js";
const on = [{}, {}];
for (const o of on) plugin.register({ on: (name, f) => { o[name] = f; } });
const ctx = (more) => ({ sessionId: "s1", sessionKey: "agent:main:main", agentId: "main", workspaceDir: "/w", modelId: "m", trigger: "user", runId: "r1", ...more });
// Every event comes to both registrations, as it may in OpenClaw.
const fire = async (name, event, c) => [await on[0][name](event, c), await on[1][name](event, c)];
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
` + script)
	for n, data := range want {
		if err := os.WriteFile(filepath.Join(dir, n), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(node, "run.mjs")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + state, "BELAY_STATE_DIR=" + state, "PATH=" + os.Getenv("PATH")}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	return string(out)
}

// privateDir is a state folder as belay makes one: the plugin trusts no other.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func events(frames <-chan frame) []frame {
	var list []frame
	for {
		select {
		case f := <-frames:
			list = append(list, f)
		case <-time.After(300 * time.Millisecond): // the script has ended: what was written is here
			return list
		}
	}
}

func names(list []frame) string {
	var all []string
	for _, f := range list {
		all = append(all, f.Event)
	}
	return strings.Join(all, " ")
}

// TestPluginTellsOnce: a turn with a tool, of two registrations; the word of the daemon is put in for one turn.
func TestPluginTellsOnce(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	out := runPlugin(t, state, `
const first = await fire("before_prompt_build", { prompt: "do it", messages: [{}] }, ctx());
await fire("before_tool_call", { toolName: "exec", toolCallId: "c1", params: { command: "ls" }, runId: "r1" }, ctx({ trigger: undefined, workspaceDir: undefined }));
await fire("after_tool_call", { toolName: "exec", toolCallId: "c1", runId: "r1", result: { content: [{ type: "text", text: "out" }], details: { status: "completed" } } }, ctx({ workspaceDir: undefined }));
await fire("agent_end", { success: true, messages: [{ role: "assistant", content: [{ type: "thinking", thinking: "hm" }, { type: "text", text: "done" }] }] }, ctx());
const second = await fire("before_prompt_build", { prompt: "more", messages: [] }, ctx({ runId: "r2" }));
await fire("agent_end", { success: true, messages: [] }, ctx({ runId: "r2" }));
const beat = await fire("before_prompt_build", { prompt: "tick", messages: [] }, ctx({ runId: "r3", sessionId: "s2", trigger: "heartbeat" }));
await fire("agent_end", { success: true, messages: [] }, ctx({ runId: "r3", sessionId: "s2", trigger: "heartbeat" }));
await sleep(100);
console.log(JSON.stringify([first, second, beat]));
`, "/nowhere/belay-hook")
	if want := `[[{"prependContext":"the brief"},null],[null,null],[null,null]]`; strings.TrimSpace(out) != want {
		t.Errorf("the handlers gave %s, want %s: for the first turn, from one registration", out, want)
	}
	list := events(frames)
	if got, want := names(list), "session_open before_prompt_build before_tool_call after_tool_call agent_end before_prompt_build agent_end before_prompt_build agent_end session_end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, f := range list {
		if seen[f.ID] || f.ID == "" || f.Agent != name || f.Workspace != "/w" || f.body["workspace"] != "/w" || f.body["run_id"] == nil && f.Event != "session_end" {
			t.Errorf("%s: got %+v, want an id of its own and the workspace of its session", f.Event, f)
		}
		seen[f.ID] = true
		body, err := json.Marshal(f.body)
		if err != nil {
			t.Fatal(err)
		}
		if in, err := New().Decode(agent.Hook{Event: f.Event, Payload: body}); err != nil || len(in.Events) != 1 {
			t.Errorf("%s: Decode gives %v, %v, want one event", f.Event, in.Events, err)
		}
	}
	if i := slices.IndexFunc(list, func(f frame) bool { return f.Event == "agent_end" }); i >= 0 && strings.Contains(fmt.Sprint(list[i].body), "hm") {
		t.Errorf("the model's thinking is sent: %v", list[i].body)
	}
	if len(list) == 0 {
		t.FailNow()
	}
	if got := list[0].body["source"]; got != "resume" {
		t.Errorf("source of a session with messages: got %v, want resume", got)
	}
}

// TestPluginAfterCompaction: the turn after a compaction asks again, once, and so does a turn that is built anew because of
// one; no turn but a person's does.
func TestPluginAfterCompaction(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	out := runPlugin(t, state, `
const turn = (run, more) => fire("before_prompt_build", { prompt: "do it", messages: [{}] }, ctx({ runId: run, ...more }));
const compact = async () => { await fire("before_compaction", {}, ctx()); await fire("after_compaction", {}, ctx()); };
const text = (got) => got.map((g) => (g?.prependContext ? "brief" : "-")).join("");
const all = [];
all.push(text(await turn("r1")), text(await turn("r2")));
await compact();
all.push(text(await turn("beat", { trigger: "heartbeat" })), text(await turn("r3")), text(await turn("r4")));
await compact();
all.push(text(await turn("r4")), text(await turn("r4")), text(await turn("r5")));
await sleep(100);
console.log(all.join(" "));
`, "/nowhere/belay-hook")
	if want := "brief- -- -- brief- -- brief- brief- --"; strings.TrimSpace(out) != want {
		t.Errorf("the turns gave %s, want %s", out, want)
	}
	var sources []string
	for _, f := range events(frames) {
		if f.Event == "session_open" {
			sources = append(sources, fmt.Sprint(f.body["source"]))
		}
	}
	if got, want := strings.Join(sources, " "), "resume compact compact"; got != want {
		t.Errorf("sources of the starts: got %s, want %s", got, want)
	}
}

// TestPluginWithoutDaemon: the first turn waits a second and no more, the newest 256 events are held and go out in order
// once a daemon is there, and belay-hook is started at most once a second.
func TestPluginWithoutDaemon(t *testing.T) {
	state := privateDir(t)
	kicks := filepath.Join(state, "kicks")
	hook := filepath.Join(state, "belay-hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho \"$@\" >> "+kicks+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(state, "belay.sock")
	came := make(chan (<-chan frame), 1)
	go func() { // a daemon comes when the script says so
		for {
			if _, err := os.Stat(filepath.Join(state, "go")); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		came <- fakeDaemon(t, place, "")
	}()
	out := runPlugin(t, state, `
import { writeFileSync } from "node:fs";
const began = Date.now();
const [word] = await fire("before_prompt_build", { prompt: "do it", messages: [] }, ctx());
const waited = Date.now() - began;
const start = Date.now();
for (let i = 0; i < 400; i++) await fire("before_tool_call", { toolName: "exec", toolCallId: "c" + i, params: {}, runId: "r1" }, ctx());
const filled = Date.now() - start;
writeFileSync(process.env.HOME + "/go", "");
for (let i = 0; i < 60; i++) { await sleep(50); if (i % 20 === 0) await fire("agent_end", { success: true, messages: [] }, ctx({ runId: "e" + i })); }
console.log(JSON.stringify({ word: word ?? null, late: waited > 1500 || waited < 900, slow: filled > 1000 }));
`, hook)
	if want := `{"word":null,"late":false,"slow":false}`; strings.TrimSpace(out) != want {
		t.Errorf("got %s, want %s", out, want)
	}
	list := events(<-came)
	if len(list) < 250 || len(list) > 262 || !strings.Contains(names(list), "dropped") {
		t.Fatalf("got %d events, %.200s, want the newest 256 and a count of the dropped", len(list), names(list))
	}
	last := -1
	for _, f := range list {
		var n int
		if id, _ := f.body["toolCallId"].(string); id != "" {
			if _, err := fmt.Sscanf(id, "c%d", &n); err != nil || n <= last {
				t.Errorf("call %q comes after %d", id, last)
			}
			last = n
		}
	}
	data, err := os.ReadFile(kicks)
	if n := strings.Count(string(data), "\n"); err != nil || n < 1 || n > 4 || !strings.HasPrefix(string(data), "openclaw wake") {
		t.Errorf("belay-hook was started %d times in 3 s: %q, %v", n, data, err)
	}
}
