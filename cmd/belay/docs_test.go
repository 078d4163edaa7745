package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/config"
	"belay/internal/daemon"
	"belay/internal/wire"
)

// A page that is run cannot rot.

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks gives the fenced code blocks of a language.
func blocks(text, language string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// startDaemon runs a daemon with a home of its own and waits for it.
func startDaemon(t *testing.T) home {
	t.Helper()
	h := newHome(t)
	cmd := exec.Command(filepath.Join(place.bin, "belay"), "daemon")
	cmd.Env = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		stopDaemon(h.state())
		if err := cmd.Wait(); err != nil {
			t.Errorf("daemon: %v: %s", err, errOut.String())
		}
	})

	if !wait(func() bool { return isReady(h.state()) }) {
		t.Fatalf("no daemon answers: %s", errOut.String())
	}

	return h
}

// Every exchange of the page goes to a real daemon, each block over its own connection, in the page's order.
func TestProtocolPageTalks(t *testing.T) {
	talks := blocks(page(t, "protocol.md"), "talk")
	if len(talks) < 8 {
		t.Fatalf("%d talks on the page", len(talks))
	}

	h := startDaemon(t)
	for i, talk := range talks {
		c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}

		t.Run(strconv.Itoa(i+1), func(t *testing.T) { hold(t, c, talk) })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// hold has one talk.
func hold(t *testing.T, c net.Conn, talk string) {
	r := bufio.NewReader(c)
	var raw []byte // of the last reply, not yet compared
	length := 0    // bytes announced by the last request
	for _, line := range strings.Split(strings.TrimRight(talk, "\n"), "\n") {
		side, text, _ := strings.Cut(line, " ")
		switch {
		case side == ">" && length > 0:
			if len(text) != length {
				t.Errorf("the payload has %d bytes, the line before says %d", len(text), length)
			}
			length = 0
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}

		case side == ">":
			var req wire.Request
			if json.Unmarshal([]byte(text), &req) == nil {
				length = req.Len
			}
			if _, err := io.WriteString(c, text+"\n"); err != nil {
				t.Fatal(err)
			}

		case side == "<" && raw != nil:
			if got := strings.TrimSuffix(string(raw), "\n"); (got == "") != (text == "") {
				t.Errorf("raw bytes %q, the page says %q", got, text)
			}
			raw = nil

		case side == "<":
			raw = compareReply(t, r, text)
		default:
			t.Errorf("a line that nobody says: %q", line)
		}
	}
}

// compareReply reads a reply and its raw bytes and compares it with the page's.
func compareReply(t *testing.T, r *bufio.Reader, text string) (raw []byte) {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("no reply where the page says %s: %v", text, err)
	}

	var got, want any
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatalf("reply %s: %v", line, err)
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatalf("the page's reply %s: %v", text, err)
	}
	if diff := shape("", got, want); diff != "" {
		t.Errorf("%s\n got %s\npage %s", diff, line, text)
	}

	if n, ok := got.(map[string]any)["len"].(float64); ok {
		raw = make([]byte, int(n))
		if _, err := io.ReadFull(r, raw); err != nil {
			t.Fatal(err)
		}
	}

	return raw
}

// exact are fields whose values the page and the daemon share; of all others the page shows the form.
var exact = []string{
	"ok",
	"kept",
	"hint",
	"sessionId",
	"session",
	"agent",
	"messageCount",
	"task",
	"role",
	"how_it_ended",
	"start",
	"phase",
	"state",
}

// maybe are fields that come and go with the daemon's moment.
var maybe = []string{"owed", "number", "heartbeat", "watch"}

// shape says where two JSON values differ in form. A page's object with the key "..." leaves fields out.
func shape(at string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return at + ": no object"
		}

		_, open := want["..."]
		for k := range g {
			if _, ok := want[k]; !ok && !open && !slices.Contains(maybe, k) {
				return at + "." + k + ": not on the page"
			}
		}

		for k, w := range want {
			if _, ok := g[k]; !ok {
				if k == "..." || slices.Contains(maybe, k) {
					continue
				}
				return at + "." + k + ": the daemon says no such thing"
			}

			if diff := shape(at+"."+k, g[k], w); diff != "" {
				return diff
			}

			if _, plain := w.(string); slices.Contains(exact, k) &&
				(plain || reflect.TypeOf(w).Kind() == reflect.Bool) &&
				g[k] != w {
				return fmt.Sprintf("%s.%s: got %v, the page says %v", at, k, g[k], w)
			}
		}

	case []any:
		g, ok := got.([]any)
		if !ok {
			return at + ": no list"
		}
		if len(want) > 0 && len(g) == 0 {
			return at + ": an empty list"
		}
		if len(want) > 0 {
			return shape(at+"[0]", g[0], want[0])
		}

	default:
		if reflect.TypeOf(got) != reflect.TypeOf(want) {
			return fmt.Sprintf("%s: %T, the page has %T", at, got, want)
		}
	}
	return ""
}

// The tables of the page name every field, kind and code that there is, and no others where that can be told.
func TestProtocolPageTables(t *testing.T) {
	text := page(t, "protocol.md")
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		rows[m[1]] = true
	}

	for _, v := range []any{wire.Request{}, wire.Reply{}, wire.Decision{}, wire.Event{}, daemon.Ask{}} {
		for _, name := range jsonNames(reflect.TypeOf(v)) {
			if !rows[name] {
				t.Errorf("no row for `%s` of %T", name, v)
			}
		}
	}

	for file, prefix := range map[string]string{
		"../../internal/wire/wire.go": "Code", "../../checkpoint/gate.go": "Code",
	} {
		for _, code := range constants(t, file, prefix) {
			if !rows[code] {
				t.Errorf("no row for the code `%s` of %s", code, file)
			}
		}
	}

	for _, kept := range constants(t, "../../internal/wire/wire.go", "Kept") {
		if !strings.Contains(text, "`"+kept+"`") {
			t.Errorf("nothing about kept: %s", kept)
		}
	}

	h := startDaemon(t)
	c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close() // nothing is left in it
	r := bufio.NewReader(c)
	for _, kind := range []checkpoint.EventKind{
		checkpoint.EventStart, checkpoint.EventPrompt, checkpoint.EventStop,
		checkpoint.EventToolStart, checkpoint.EventToolEnd,
		checkpoint.EventCompacting, checkpoint.EventCompacted, checkpoint.EventChildStart, checkpoint.EventChildEnd,
		checkpoint.EventEnd, checkpoint.EventExit,
		checkpoint.EventMark, checkpoint.EventTask, checkpoint.EventBeat} {
		if !rows[string(kind)] {
			t.Errorf("no row for the kind `%s`", kind)
		}

		fmt.Fprintf(c, `{"op":"event","session":"kinds","body":{"kind":%q}}`+"\n", kind)
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, `{"ok":true,`) {
			t.Errorf("kind %s: %s %v", kind, line, err)
		}
	}

	for _, op := range []string{
		"hello", "event", "hook", "verb", "mark", "checkpoint", "check", "status", "list", "show", "recover", "reset",
		"subscribe",
	} {
		if !strings.Contains(text, `"op":"`+op+`"`) {
			t.Errorf("no example of op %s", op)
		}
	}
}

func jsonNames(typ reflect.Type) []string {
	var names []string
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// constants gives the values of a file's string constants by the beginning of their names.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}

	var all []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, prefix) || len(v.Values) != 1 {
			return true
		}

		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, s)
			}
		}

		return true
	})

	if len(all) == 0 {
		t.Fatalf("%s has no constants %s...", file, prefix)
	}

	return all
}

// A subscriber gets the line that the page shows.
func TestProtocolPageSubscribe(t *testing.T) {
	examples := blocks(page(t, "protocol.md"), "json")
	if len(examples) != 1 {
		t.Fatalf("%d JSON blocks, want the one of subscribe", len(examples))
	}

	h := startDaemon(t)
	c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
	if err != nil {
		t.Fatal(err)
	}

	defer c.Close() // nothing is left in it
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}

	r := bufio.NewReader(c)
	fmt.Fprintln(c, `{"op":"subscribe"}`)
	if line, err := r.ReadString('\n'); err != nil || line != "{\"ok\":true}\n" {
		t.Fatalf("%q, %v", line, err)
	}

	h.belay(t, "/", "event", "--agent", "mine", "--session", "s1", `{"kind":"prompt","text":"hello"}`)
	compareReply(t, r, strings.TrimSpace(examples[0]))
}

// The clients of the page are run as they stand there.
func TestProtocolPageClients(t *testing.T) {
	text := page(t, "protocol.md")
	for _, c := range []struct{ language, program, session, want string }{
		{"sh", "sh", "shell-1", `"kept":"disk"`},
		{"python", "python3", "python-1", "hello from Python"},
		{"js", "node", "node-1", "hello from Node"},
	} {
		t.Run(c.language, func(t *testing.T) {
			code := blocks(text, c.language)
			if len(code) != 1 {
				t.Fatalf("%d blocks of %s on the page, want 1", len(code), c.language)
			}
			if _, err := exec.LookPath(c.program); err != nil {
				t.Skipf("%s is not here", c.program)
			}

			h := startDaemon(t)
			path := os.Getenv("PATH")
			if c.language == "sh" {
				path = withNetcat(t) + path
			}

			file := filepath.Join(t.TempDir(), "client."+c.language)
			if err := os.WriteFile(file, []byte(code[0]), 0o600); err != nil {
				t.Fatal(err)
			}

			cmd := exec.Command(c.program, file)
			cmd.Dir, cmd.Env = "/", []string{"HOME=" + string(h), "PATH=" + path}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want %q in:\n%s", err, c.want, out)
			}
			if list, _ := h.belay(t, "/", "list"); !strings.Contains(list, c.session) {
				t.Errorf("no session %s in:\n%s", c.session, list)
			}
		})
	}
}

// withNetcat gives a folder to put before PATH, with a stand-in for nc where there is none.
func withNetcat(t *testing.T) string {
	if _, err := exec.LookPath("nc"); err == nil {
		return ""
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("neither nc nor python3 is here")
	}

	t.Log("nc is not here: a stand-in takes its part")
	dir := t.TempDir()
	standIn := `#!/usr/bin/env python3
import socket, sys
assert sys.argv[1:4] == ["-w", "1", "-U"], sys.argv
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[4])
s.settimeout(1)
s.sendall(sys.stdin.buffer.read())
try:
    while data := s.recv(65536):
        sys.stdout.buffer.write(data)
except TimeoutError:
    pass
`

	if err := os.WriteFile(filepath.Join(dir, "nc"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}

	return dir + string(filepath.ListSeparator)
}

// The example of the settings page is a good file.
func TestSettingsPageExample(t *testing.T) {
	examples := blocks(page(t, "settings.md"), "yaml")
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}

	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(examples[0]), 0o600); err != nil {
		t.Fatal(err)
	}

	c, err := config.Load(config.Options{File: file, MustExist: true, Strict: true, Check: checks()})
	if err != nil {
		t.Fatal(err)
	}
	if c.Gates.Sparse.Rounds != 8 || c.Retention.Age != 14*24*time.Hour {
		t.Errorf("rounds %d, age %v; want 8 and two weeks", c.Gates.Sparse.Rounds, c.Retention.Age)
	}
}

// A page that says which test holds a promise is wrong once the test has another name.
func TestPagesNameTestsThatAreThere(t *testing.T) {
	there := map[string]bool{}
	eachFile(t, func(name string, _ []byte) {
		if !strings.HasSuffix(name, "_test.go") {
			return
		}

		names, err := testsIn(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}

		for _, n := range names {
			there[n] = true
		}
	})

	for _, name := range []string{"guarantees.md", "../SECURITY.md"} {
		named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(page(t, name), -1)
		if len(named) < 15 {
			t.Errorf("%s names %d tests", name, len(named))
		}

		for _, m := range named {
			if !there[m[1]] {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
}
