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
	"belay/internal/vfs"
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

	dir := t.TempDir()
	if _, err := (&Agent{config: filepath.Join(dir, "openclaw.json"), host: agent.Host{FS: vfs.OS{}}}).plugin().Install(
		agent.Paths{Hook: hook}, false,
	); err != nil {
		t.Fatal(err)
	}

	dir = filepath.Join(dir, folderName)
	script = `import plugin from "./index.js";
const on = [{}, {}];
for (const o of on) plugin.register({ on: (name, f) => { o[name] = f; } });
const ctx = (more) => ({ sessionId: "s1", sessionKey: "agent:main:main", agentId: "main", workspaceDir: "/w", modelId: "m", trigger: "user", runId: "r1", ...more });
// Every event comes to both registrations, as it may in OpenClaw.
const fire = async (name, event, c) => [await on[0][name](event, c), await on[1][name](event, c)];
const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
` + script

	if err := os.WriteFile(filepath.Join(dir, "run.mjs"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
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

// decoded is what the daemon takes from a message of the plugin's.
func decoded(t *testing.T, f frame) agent.Incoming {
	t.Helper()
	body, err := json.Marshal(f.body)
	if err != nil {
		t.Fatal(err)
	}

	in, err := New(agent.Host{}).Decode(t.Context(), agent.Hook{Event: f.Event, Payload: body})
	if err != nil {
		t.Errorf("%s: %v", f.Event, err)
	}

	return in
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
	if got, want := names(
		list,
	), "session_open before_prompt_build before_tool_call after_tool_call agent_end before_prompt_build agent_end before_prompt_build agent_end session_end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	seen := map[string]bool{}
	for _, f := range list {
		if seen[f.ID] || f.ID == "" || f.Agent != name || f.Workspace != "/w" || f.body["workspace"] != "/w" ||
			f.body["run_id"] == nil && f.Event != "session_end" {
			t.Errorf("%s: got %+v, want an id of its own and the workspace of its session", f.Event, f)
		}

		seen[f.ID] = true
		if in := decoded(t, f); len(in.Events) != 1 {
			t.Errorf("%s: Decode gives %v, want one event", f.Event, in.Events)
		}
	}

	if i := slices.IndexFunc(
		list, func(f frame) bool { return f.Event == "agent_end" },
	); i >= 0 &&
		strings.Contains(fmt.Sprint(list[i].body), "hm") {
		t.Errorf("the model's thinking is sent: %v", list[i].body)
	}

	if len(list) == 0 {
		t.FailNow()
	}
	if got := list[0].body["source"]; got != "resume" {
		t.Errorf("source of a session with messages: got %v, want resume", got)
	}
}

// captured are the recorded events by name, as JSON.
func captured(t *testing.T) string {
	t.Helper()
	files := map[string]json.RawMessage{}
	paths, err := filepath.Glob("testdata/hooks/*.json")
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range paths {
		if files[strings.TrimSuffix(filepath.Base(path), ".json")], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}

	all, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}

	return string(all)
}

// TestPluginCaptured: what the real program gave a recorder's plugin, in the order of its turn. Events that belay's
// plugin does not ask for come to nobody.
func TestPluginCaptured(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	out := runPlugin(t, state, "const captured = "+captured(t)+`;
const turn = ["gateway_start", "session_start", "before_message_write", "before_model_resolve", "agent_turn_prepare", "before_prompt_build", "before_agent_run",
	"model_call_started", "model_call_ended", ...[0, 1, 2].flatMap(() => ["before_tool_call", "after_tool_call", "tool_result_persist"]),
	"before_agent_finalize", "agent_end", "llm_output", "after_tool_call", "gateway_stop"];
const nobody = new Set();
for (const name of turn) {
	const { event, ctx } = captured[name].shift().event;
	if (on[0][name]) await fire(name, event, ctx);
	else nobody.add(name);
}
console.log(JSON.stringify({ left: Object.values(captured).flat().length, nobody: [...nobody].sort() }));
`, "/nowhere/belay-hook")

	if want := `{"left":0,"nobody":["agent_turn_prepare","before_agent_finalize","before_agent_run","before_message_write","before_model_resolve","gateway_stop","llm_output",` +
		`"model_call_ended","model_call_started","session_start","tool_result_persist"]}`; strings.TrimSpace(
		out,
	) != want {
		t.Errorf("the handlers: got %s, want %s", out, want)
	}

	const run = " 3375b6da-3842-41dc-a7d3-a4e291bc8021"
	want := []string{
		"start startup" + run + "; ask start",
		"prompt" + run + " please start the work; ask carry",
		`tool-start call_lab000100 read {"path":"/home/u/proj/notes.txt"}`,
		"tool-end call_lab000100 read first line of the notes\nsecond line\n",
		`tool-start call_lab000200 exec {"command":"echo hello-from-tool \u0026\u0026 ls"}`,
		"tool-end call_lab000200 exec hello-from-tool\nnotes.txt",
		`tool-start call_lab000300 write {"content":"made by the lab\n","path":"/home/u/proj/out.txt"}`,
		"tool-end call_lab000300 write Successfully wrote 16 bytes to /home/u/proj/out.txt",
		"stop" + run + " Round one is done: notes read, out.txt written.",
		// of the turn that was terminated: its start was in another process
		"tool-end call_lab000200 exec Aborted failed",
		"end exit",
	}

	var got []string
	for _, f := range events(frames) {
		in := decoded(t, f)
		for _, e := range in.Events {
			if e.Key.Session != "lab1" || e.Key.Workspace != "/home/u/proj" || e.Key.Account == "" {
				t.Errorf("%s: got %+v, want the session of that state folder in its workspace", f.Event, e.Key)
			}
		}
		got = append(got, tell(in))
	}

	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPluginAfterCompaction: the turn after a compaction asks again, once, and so does a turn that is built anew
// because of one; no turn but a person's does.
func TestPluginAfterCompaction(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	out := runPlugin(t, state, `
const turn = (run, more) => fire("before_prompt_build", { prompt: "do it", messages: [{}] }, ctx({ runId: run, ...more }));
const compact = async (c) => { await fire("before_compaction", {}, c); await fire("after_compaction", {}, c); };
const text = (got) => got.map((g) => (g?.prependContext ? "brief" : "-")).join("");
const all = [];
all.push(text(await turn("r1")), text(await turn("r2")));
await compact(ctx());
all.push(text(await turn("beat", { trigger: "heartbeat" })), text(await turn("r3")), text(await turn("r4")));
await compact({ sessionKey: "agent:main:main" }); // as OpenClaw names it in the middle of a run
all.push(text(await turn("r4")), text(await turn("r4")), text(await turn("r5")));
await sleep(100);
console.log(all.join(" "));
`, "/nowhere/belay-hook")

	if want := "brief- -- -- brief- -- brief- brief- --"; strings.TrimSpace(out) != want {
		t.Errorf("the turns gave %s, want %s", out, want)
	}

	var sources []string
	told := map[string]int{}
	for _, f := range events(frames) {
		if f.Event == "session_open" {
			sources = append(sources, fmt.Sprint(f.body["source"]))
		}
		told[f.Event]++
		if f.body["session_id"] != "s1" {
			t.Errorf("%s: got session %v, want s1", f.Event, f.body["session_id"])
		}
	}

	if told["before_compaction"] != 4 || told["after_compaction"] != 4 {
		t.Errorf("got %v, want both ends of both compactions, from both registrations", told)
	}
	if got, want := strings.Join(sources, " "), "resume compact compact"; got != want {
		t.Errorf("sources of the starts: got %s, want %s", got, want)
	}
}

// TestPluginAfterHeartbeat: a session in which only heartbeats ran is new to the person, and an old one is not.
func TestPluginAfterHeartbeat(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	runPlugin(t, state, `
for (const [id, first] of [["new", []], ["old", [{}]]]) {
	await fire("before_prompt_build", { prompt: "tick", messages: first }, ctx({ sessionId: id, runId: id + 1, trigger: "heartbeat" }));
	await fire("before_prompt_build", { prompt: "do it", messages: [{}, {}] }, ctx({ sessionId: id, runId: id + 2 }));
}
`, "/nowhere/belay-hook")

	var got []string
	for _, f := range events(frames) {
		if f.Event == "session_open" {
			got = append(got, fmt.Sprint(f.body["session_id"], " ", f.body["source"]))
		}
	}

	if want := []string{"new startup", "old resume"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPluginSuccessor: a session that goes on under another id after a compaction is told what the old one has, once,
// and the old one is at its end.
func TestPluginSuccessor(t *testing.T) {
	state := privateDir(t)
	frames := fakeDaemon(t, filepath.Join(state, "belay.sock"), "the brief")
	out := runPlugin(t, state, `
const turn = async (run, more) => (await fire("before_prompt_build", { prompt: "do it", messages: [{}] }, ctx({ runId: run, ...more }))).map((g) => (g ? "brief" : "-")).join("");
const end = (run, more) => fire("agent_end", { success: true, messages: [] }, ctx({ runId: run, ...more }));
const all = [await turn("r1")];
await end("r1");
await fire("before_compaction", {}, ctx());
await fire("after_compaction", { previousSessionId: "s1" }, ctx({ sessionId: "s2" }));
for (const run of ["r2", "r3"]) {
	all.push(await turn(run, { sessionId: "s2" }));
	await end(run, { sessionId: "s2" });
}
console.log(all.join(" "));
`, "/nowhere/belay-hook")

	if want := "brief- brief- --"; strings.TrimSpace(out) != want {
		t.Errorf("the turns gave %s, want %s", out, want)
	}

	var got []string
	for _, f := range events(frames) {
		in := decoded(t, f)
		for _, e := range in.Events {
			got = append(got, e.Key.Session+" "+string(e.Kind))
		}
	}

	want := []string{
		"s1 start",
		"s1 prompt",
		"s1 stop",
		"s1 compacting",
		"s1 compacting",
		"s1 compacted",
		"s1 compacted",
		"s1 start",
		"s1 end",
		"s2 prompt",
		"s2 stop",
		"s2 prompt",
		"s2 stop",
		"s2 end",
	}

	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPluginWithoutDaemon: the first turn waits a second and no more, the newest 256 events are held and go out in
// order once a daemon is there, and belay-hook is started at most once a second.
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
		for ; ; time.Sleep(20 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(state, "go")); err == nil {
				break
			}
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
	if n := strings.Count(
		string(data), "\n",
	); err != nil || n < 1 || n > 4 ||
		!strings.HasPrefix(string(data), "openclaw wake") {
		t.Errorf("belay-hook was started %d times in 3 s: %q, %v", n, data, err)
	}
}
