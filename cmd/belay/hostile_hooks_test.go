package main

import (
	"belay/internal/agent"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/internal/agent/all"
	"belay/internal/state/mirror"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// canary is said in files that no payload may make belay read.
const canary = "CANARY-of-another-folder"

// outside makes a folder beside the agents' own with things that hostile values name, and gives the values. Everything
// in it is the user's, so that nothing but belay's own care keeps it from being read or written.
func (h home) outside(t *testing.T) (values []string) {
	t.Helper()
	dir := filepath.Join(string(h), "private")
	file := filepath.Join(dir, "notes.jsonl")
	link := filepath.Join(string(h), ".claude", "projects", "p", "link.jsonl")
	notes := fmt.Sprintf("%s in a line that is no JSON\n{\"note\":%q}\n", canary, canary)
	for _, err := range []error{os.MkdirAll(dir, 0o700), os.MkdirAll(filepath.Dir(link), 0o700), os.WriteFile(file, []byte(notes), 0o600), os.Symlink(file, link), os.Symlink(dir, filepath.Join(string(h), "way"))} {
		if err != nil {
			t.Fatal(err)
		}
	}

	return []string{
		"../../../private/notes.jsonl",
		strings.Repeat("../", 40) + strings.TrimPrefix(file, "/"),
		file,
		link,
		filepath.Join(string(h), "way", "notes.jsonl"),
		dir,
		"/",
		"/dev/zero",
		"/proc/self/mem",
		"..",
		".",
		"",
		"a\x00b",
		"a\nb",
		"\r\nHTTP/1.1",
		"\u202egnp.\u2066x\u200f",
		"\x1b]0;x\x07",
		"%2e%2e%2f",
		"$(touch x)",
		"`touch x`",
		"; touch x",
		"-rf",
		"C:\\Windows\\x",
		"~/private/notes.jsonl",
		"\ufeff\ufffd\u0000",
		strings.Repeat("L", 64<<10),
		strings.Repeat("/d", 2000),
		strings.Repeat("é", 300),
	}
}

// configure writes the settings' file.
func (h home) configure(t *testing.T, text string) {
	t.Helper()
	name := filepath.Join(string(h), ".config", "belay", "config.yaml")
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// mutations are copies of a document in each of which one string member is another value: members that say whose a
// payload is and where its files lie get so many of the values, the others one, in turn.
func mutations(t *testing.T, doc map[string]any, values []string, most int, turn *int) (all [][]byte) {
	t.Helper()
	var walk func(name string, v any, set func(any))
	walk = func(name string, v any, set func(any)) {
		switch v := v.(type) {
		case string:
			some := most
			if !identity.MatchString(name) {
				some = 1
			}

			for range some {
				*turn++
				set(values[*turn%len(values)])
				data, err := json.Marshal(doc)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, data)
			}

			set(v)

		case []any:
			for i := range v {
				walk(name, v[i], func(x any) { v[i] = x })
			}

		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(k, v[k], func(x any) { v[k] = x })
			}
		}
	}

	walk("", doc, nil)
	return all
}

// everything is all below a folder: names, kinds and sums of contents. Links are not followed.
func (h home) everything(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(string(h), func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == filepath.Join(string(h), ".local") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}

		info, err := d.Info()
		if err != nil {
			return err
		}

		all[path] = fmt.Sprint(info.Mode(), info.ModTime())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all[path] += fmt.Sprintf(" %x", sha256.Sum256(data))
		}

		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	return all
}

// TestO05HostileMembersOfEveryPayload: every string of every agent's hook payloads, and of the socket's own events, is
// replaced by each of many hostile values. The daemon lives and never panics, each answer is one JSON document or
// nothing, nothing is written outside the state folder, and of a file that is named as a transcript and is none nothing
// is kept.
func TestO05HostileMembersOfEveryPayload(t *testing.T) {
	h := newHome(t)
	values := h.outside(t)
	h.configure(t, "limits: {sessions_per_minute: 100000}\n")
	pid, _ := h.daemon(t)
	before, turn, sent := h.everything(t), 0, 0
	for i, a := range all.All(agent.Host{}) {
		p := &planter{plants: []plant{{"some words", ""}}, set: map[string]string{}}
		for _, k := range []string{"session_id", "sessionId", "conversation_id"} {
			p.set[k] = fmt.Sprintf("22222222-2222-4222-8222-%012d", i)
		}

		for _, k := range []string{"cwd", "workspace", "directory"} {
			p.set[k] = string(h)
		}

		var last call
		seen := false // more values in an agent's first payload: with all its members every value is tried
		for _, c := range slices.Concat(p.captured(t, a.Name()), p.made(t, a)) {
			var doc map[string]any
			if len(c.payload) > 24<<10 || json.Unmarshal(c.payload, &doc) != nil {
				continue // long texts, and payloads that are cut: their members are in the others
			}

			most := 2
			if !seen {
				most = 8
			}

			seen = true
			sent += h.hooks(t, c, mutations(t, doc, values, most, &turn))
			last = c
		}

		for _, value := range values[:12] { // and once as the agent itself does it
			p.set["session_id"], p.set["cwd"], p.set["transcript_path"] = strings.ReplaceAll(
				value, "/", ".",
			), value, value
			if len(p.made(t, a)) > 0 {
				h.throughClient(t, call{last.agent, last.event, p.made(t, a)[0].payload})
			}
		}
	}

	sent += h.events(t, values, &turn)
	t.Logf("%d payloads", sent)
	st, err := daemonStatus(h.state())
	if err != nil || st.PID != pid || st.Counts["panics"] != 0 {
		t.Errorf("after %d payloads: daemon %d of %d, %d panics, %v", sent, st.PID, pid, st.Counts["panics"], err)
	}
	if sent < 2000 {
		t.Errorf("%d payloads were sent: this holds too little", sent)
	}

	if !wait(func() bool { return maps.Equal(h.everything(t), before) }) {
		for path, what := range h.everything(t) {
			if before[path] != what {
				t.Errorf("beside the state folder %q is %s, was %q", path, what, before[path])
			}
		}
	}

	stopDaemon(h.state())
	h.holdsNoCanary(t)
	if out, code := h.belay(t, string(h), "doctor", "store"); code != exitOK {
		t.Errorf("the store is not whole: exit code %d: %s", code, out)
	}
}

// hooks sends payloads over one connection, one after the other, and checks every answer. It gives how many there were.
func (h home) hooks(t *testing.T, c call, payloads [][]byte) int {
	t.Helper()
	conn, err := wire.Dial(t.Context(), h.state(), "")
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Close() // all answers are here
	for n, payload := range payloads {
		r, body, err := conn.Do(
			t.Context(),
			wire.Request{
				Op:    "hook",
				Agent: c.agent,
				Event: c.event,
				ID:    fmt.Sprintf("%s-%d-%d", c.event, n, time.Now().UnixNano()),
				Early: true,
				Len:   len(payload),
			},
			payload,
		)

		if err != nil {
			t.Fatalf("%s %s: %v: %.300q", c.agent, c.event, err, payload)
		}
		if !r.OK && r.Code != wire.CodeBadRequest {
			t.Errorf("%s %s: %s, %s: %.300q", c.agent, c.event, r.Code, r.Message, payload)
		}
		if !document(body) || bytes.Contains(body, []byte(canary)) {
			t.Errorf("%s %s answers %.300q to %.300q", c.agent, c.event, body, payload)
		}
	}

	return len(payloads)
}

// document says whether an answer is nothing, one JSON document, or one whole frame of text, as pi's extension takes
// it.
func document(answer []byte) bool {
	text := strings.TrimSpace(string(answer))
	return text == "" || json.Valid(answer) ||
		strings.HasPrefix(text, "<belay-record k=") &&
			strings.LastIndex(text, "</belay-record k=") == strings.LastIndex(text, "\n")+1
}

// throughClient runs belay-hook itself: exit code 0, and one JSON document or nothing.
func (h home) throughClient(t *testing.T, c call) {
	t.Helper()
	cmd := exec.Command(filepath.Join(place.bin, "belay-hook"), c.agent, c.event)
	cmd.Dir, cmd.Env, cmd.Stdin = string(h), h.env(), bytes.NewReader(c.payload)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil || errOut.Len() > 0 || !document(out.Bytes()) {
		t.Errorf("belay-hook %s %s: %v, %q, %q", c.agent, c.event, err, out.Bytes(), errOut.Bytes())
	}
}

// events sends the socket's own events with hostile members, those of the request among them.
func (h home) events(t *testing.T, values []string, turn *int) (sent int) {
	t.Helper()
	conn, err := wire.Dial(t.Context(), h.state(), "")
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Close() // all answers are here
	for _, kind := range []string{"start", "prompt", "tool-start", "tool-end", "child-start", "stop", "end"} {
		doc := map[string]any{
			"op":        "event",
			"agent":     "mine",
			"session":   "s",
			"account":   "",
			"child":     "",
			"workspace": string(h),
			"body":      map[string]any{"kind": kind},
		}

		for _, k := range []string{
			"text", "call", "name", "input", "output", "transcript", "workspace", "child", "child_name", "parent",
			"model", "mode", "turn", "source", "reason", "outcome",
		} {
			doc["body"].(map[string]any)[k] = ""
		}

		for _, data := range mutations(t, doc, values, 3, turn) {
			var req wire.Request
			if err := json.Unmarshal(data, &req); err != nil {
				t.Fatal(err)
			}

			r, body, err := conn.Do(t.Context(), req, nil)
			if err != nil {
				t.Fatalf("%v: %.300q", err, data)
			}
			if !r.OK && r.Code == wire.CodeInternal || len(body) > 0 && !json.Valid(body) {
				t.Errorf("%s, %s, %q to %.300q", r.Code, r.Message, body, data)
			}

			sent++
		}
	}

	return sent
}

// holdsNoCanary reads every byte below the state folder, and what the mirrors hold.
func (h home) holdsNoCanary(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(h.state(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		data, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(path, ".zst") {
			lines, lerr := mirror.Lines(vfs.OS{}, path, nil)
			if lerr != nil {
				return lerr
			}

			var b bytes.Buffer
			_, err = b.ReadFrom(lines)
			data = b.Bytes()
			_ = lines.Close() // read to its end
		}

		if i := bytes.Index(data, []byte(canary)); i >= 0 {
			t.Errorf("%s holds what stands in a file of no agent's: %.200q", path, data[max(0, i-80):])
		}

		return err
	})

	if err != nil {
		t.Fatal(err)
	}
}
