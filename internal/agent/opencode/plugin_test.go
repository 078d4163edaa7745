package opencode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/kit/plugin"
	"belay/internal/wire"
)

// drive plays opencode: it loads the plugin and does with it what the real program does in a turn with a command, a
// helper and an error, as captured. It prints the parts of the first prompt, as the plugin leaves them.
const drive = `
const { BelayPlugin, ...rest } = await import(process.argv[2]);
if (Object.keys(rest).length) throw new Error("the plugin exports more than itself: opencode would call it");
const asked = [];
const client = { session: { get: async ({ path }) => (asked.push(path.id), { data: { id: path.id, directory: "/proj", parentID: path.id === "ses_c" ? "ses_a" : undefined } }) } };
const p = await BelayPlugin({ client, directory: "/proj" });
const event = (type, properties) => p.event({ event: { type, properties } });
const tool = (sessionID, id, status, more) => event("message.part.updated", { sessionID, part: { id, sessionID, messageID: "msg_2", type: "tool", tool: "bash", callID: "call_1", state: { status, input: { command: "ls" }, ...more } } });
await event("session.created", { info: { id: "ses_a", directory: "/proj", model: { id: "m" } } });
const parts = [{ id: "prt_22daf36f7001DoZFo20XW11XLt", type: "text", text: "do it" }];
await p["chat.message"]({ sessionID: "ses_a" }, { message: { id: "msg_1", model: { modelID: "m" } }, parts });
await event("message.updated", { info: { id: "msg_2", sessionID: "ses_a", role: "assistant", modelID: "m" } });
await tool("ses_a", "prt_1", "pending");
await tool("ses_a", "prt_1", "running");
await tool("ses_a", "prt_1", "running", { metadata: { output: "a" } });
await tool("ses_a", "prt_1", "completed", { output: "a.txt", metadata: { exit: 0 } });
await tool("ses_a", "prt_1", "completed", { output: "a.txt", metadata: { exit: 0 }, time: { compacted: 1 } });
await p["chat.message"]({ sessionID: "ses_c", agent: "general" }, { message: { id: "msg_c" }, parts: [{ type: "text", text: "help" }] });
await event("session.idle", { sessionID: "ses_c" });
await event("message.part.updated", { part: { id: "prt_2", sessionID: "ses_a", messageID: "msg_2", type: "text", text: "done" } });
await event("session.idle", { sessionID: "ses_a" });
await event("session.idle", { sessionID: "ses_a" });
await p["chat.message"]({ sessionID: "ses_a" }, { message: { id: "msg_3" }, parts: [{ type: "text", text: "again" }] });
await event("session.error", { sessionID: "ses_a", error: { name: "APIError", data: { message: "no" } } });
await event("session.idle", { sessionID: "ses_a" });
await event("nonsense", undefined);
await event("message.updated", undefined);
await p.dispose();
console.log(JSON.stringify({ parts, asked }));
`

// play runs a program in Node that loads the plugin from its first argument, against a daemon of the test: what each
// event that was sent means, and what the program printed.
func play(t *testing.T, program string) (list []string, out []byte) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here")
	}

	dir, err := os.MkdirTemp("", "oc-") // short: a socket's path has a bound
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	text, err := plugin.OneFile(pluginText, agent.Paths{Hook: filepath.Join(dir, "absent")})
	if err != nil {
		t.Fatal(err)
	}

	for name, data := range map[string][]byte{"plugin.mjs": []byte(text), "drive.mjs": []byte(program)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	l, err := net.Listen("unix", filepath.Join(dir, "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	got := make(chan []string, 1)
	go func() { got <- serve(l) }()
	cmd := exec.Command(node, filepath.Join(dir, "drive.mjs"), filepath.Join(dir, "plugin.mjs"))
	cmd.Env = []string{"BELAY_STATE_DIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "OPENCODE_DB=x.db"}
	out, err = cmd.Output()
	_ = l.Close() // the server ends by it
	list = <-got
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, strings.Join(list, "\n"))
	}

	return list, out
}

// TestPlugin runs the plugin in Node against a daemon of the test: what it sends is what Decode takes, once each and in
// order.
func TestPlugin(t *testing.T) {
	list, out := play(t, drive)
	want := []string{
		"start startup; owed",
		"prompt do it",
		`tool-start call=prt_1 bash in={"command":"ls"}`,
		`tool-end call=prt_1 bash in={"command":"ls"} out=a.txt`,
		"child-start child=ses_c; start parent=ses_a of=ses_c",
		"prompt help of=ses_c",
		"stop of=ses_c; child-end child=ses_c; end parent=ses_a of=ses_c",
		"stop done",
		"prompt again",
		"stop failed APIError: no",
		"end dispose",
	}

	if strings.Join(list, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}

	var end struct {
		Parts []struct {
			ID, Text, MessageID string
			Synthetic           bool
		}
		Asked []string
	}

	if err := json.Unmarshal(out, &end); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if p := end.Parts; len(p) != 2 || p[1].Text != "the brief" || !p[1].Synthetic || p[1].MessageID != "msg_1" ||
		p[1].ID <= p[0].ID ||
		len(p[1].ID) != len(p[0].ID) {
		t.Errorf("the prompt's parts: got %+v, want the brief after the person's words", p)
	}

	if strings.Join(end.Asked, " ") != "ses_c" {
		t.Errorf("opencode was asked for %v, want the session that it did not tell of", end.Asked)
	}
}

// TestPluginCaptured: what the real program gave a recorder's plugin, each event in its place. The recorder cut an
// event at 200 characters; what it cut is put back from other lines of the same capture, as far as the plugin looks at
// it. A program that is killed says no good-bye.
func TestPluginCaptured(t *testing.T) {
	const bye = "await p.dispose();"
	for file, c := range map[string]struct {
		end  string
		want []string
	}{
		"1.18-plugin-events-full-turn.mended.jsonl": {bye, []string{"start startup; owed", `prompt "TOOLS please"`,
			`tool-start call=prt_22d171a280016HnZm1dNrFdqmA read in={"filePath":"/home/user/proj/a.txt"}`,
			`tool-start call=prt_22d171ad7001xHCKgLnagQ1Uef bash in={"command":"ls | wc -l","description":"count"}`,
			`tool-end call=prt_22d171a280016HnZm1dNrFdqmA read in={"filePath":"/home/user/proj/a.txt"} out=<path>/home/user/proj/a.txt</path>` +
				"\n<type>file</type>\n<content>\n1: hello\n\n(End of file - total 1 lines)\n</content>",
			`tool-end call=prt_22d171ad7001xHCKgLnagQ1Uef bash in={"command":"ls | wc -l","description":"count"} out=2` + "\n",
			"stop Done. One file, a.txt.", "end dispose"}},
		"1.18-plugin-events-killed-mid-text.mended.jsonl": {"process.exit();", []string{
			"start startup; owed", `prompt "SLOW please"`,
		}},
	} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}

			list, _ := play(t, "const captured = ["+strings.ReplaceAll(string(data), "\n", ",\n")+`];
const { BelayPlugin } = await import(process.argv[2]);
const p = await BelayPlugin({ client: {}, directory: "/home/user/proj" });
for (const { hook, type, properties, input, output } of captured) {
	if (hook === "event") await p.event({ event: { type, properties } });
	else await p[hook](input, output);
}
`+c.end)

			if strings.Join(list, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// serve answers one connection as the daemon does, with a brief for the first prompt, and gives what each event means.
func serve(l net.Listener) (list []string) {
	c, err := l.Accept()
	if err != nil {
		return []string{err.Error()}
	}

	defer c.Close()
	r := bufio.NewReader(c)
	brief := "the brief"
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return list
		}

		var q wire.Request
		if err := json.Unmarshal(
			line, &q,
		); err != nil || q.Op != "hook" || q.Agent != name || q.ID == "" ||
			q.PID == 0 {
			return append(list, fmt.Sprintf("bad request %s: %v", line, err))
		}

		payload := make([]byte, q.Len)
		if _, err := io.ReadFull(r, payload); err != nil {
			return append(list, err.Error())
		}

		in, err := New(
			agent.Host{},
		).Decode(
			context.Background(), agent.Hook{Event: q.Event, Payload: payload, Cwd: q.Workspace},
		)

		var said []string
		for _, e := range in.Events {
			said = append(said, showEvent(e))
		}

		if err != nil {
			said = append(said, err.Error())
		}

		list = append(list, strings.Join(said, "; "))
		body := ""
		if in.Ask == agent.AskCarry {
			body, brief = brief, ""
		}

		var reply bytes.Buffer
		fmt.Fprintf(&reply, `{"ok":true,"kept":"disk","len":%d}`+"\n%s", len(body), body)
		if _, err := c.Write(reply.Bytes()); err != nil {
			return append(list, err.Error())
		}
	}
}
