package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs/vfstest"
	"belay/recovery"
)

// attackTexts are recovery's attacks, the short ones: a line each, quoted as in Go.
func attackTexts(t *testing.T) (list []string) {
	t.Helper()
	files, err := filepath.Glob("../../recovery/testdata/attacks/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("the attacks: %d files, %v", len(files), err)
	}

	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(string(data)) {
			if text, err := strconv.Unquote(strings.TrimSpace(line)); err == nil {
				list = append(list, text)
			}
		}
	}

	return list
}

// hostileState is a session with a text in every field, and a checkpoint of it.
func hostileState(t *testing.T, dir state.Dir, evil string) checkpoint.Key {
	t.Helper()
	key := checkpoint.Key{Agent: "mine", Account: evil, Session: evil, Workspace: "/w/" + evil}
	s := checkpoint.NewState(key)
	for i, e := range []checkpoint.Event{
		{Kind: checkpoint.EventStart, Source: evil, Workspace: "/w/" + evil, Model: evil, Mode: evil, Transcript: "/t/" + evil}, {Kind: checkpoint.EventPrompt, Text: evil}, {Kind: checkpoint.EventTask, Text: evil},
		{Kind: checkpoint.EventMark, Text: evil, Decision: true},
		{Kind: checkpoint.EventToolStart, Call: evil, Name: evil, Input: evil},
		{Kind: checkpoint.EventChildStart, Child: evil, ChildName: evil}, {Kind: checkpoint.EventExit, Reason: evil},
	} {
		e.Key, e.At, e.Seq = key, time.Now().Add(time.Duration(i-10)*time.Second), uint64(i+1)
		s.Apply(e)
	}

	c := checkpoint.New(
		s.Clone(), 1,
		checkpoint.Decision{Take: true, Level: checkpoint.Full, Cause: checkpoint.CauseHeartbeat, Text: evil},
		time.Now(),
	)

	c.WorkTree = &checkpoint.WorkTree{Branch: evil, Head: evil, Changed: []string{evil}}
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}

	store, err := dir.OpenStore()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, checkpoint.Meta{Number: 1, Level: checkpoint.Full}, data); err != nil {
		t.Fatal(err)
	}

	taken := c.Taken()
	s.Apply(checkpoint.Event{Key: key, Kind: checkpoint.EventCheckpoint, At: time.Now(), Seq: 9, Taken: &taken})
	if err := dir.SaveState(s); err != nil {
		t.Fatal(err)
	}

	return key
}

// onTerminal runs a command on a terminal, and gives what that got.
func onTerminal(t *testing.T, args ...string) string {
	t.Helper()
	screen, tty, err := pty.Open()
	if err != nil {
		t.Skip("no terminal to be had here: ", err)
	}

	got := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(screen) // ends with an error when the terminal's other side is closed
		got <- data
	}()

	runMain(t.Context(), args, strings.NewReader(""), tty, tty)
	_ = tty.Close()
	data := <-got
	_ = screen.Close()
	return string(data)
}

// harmlessOnScreen says what a terminal must not get.
func harmlessOnScreen(t *testing.T, args []string, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("belay %q prints what is no UTF-8", args)
	}

	for i, r := range text {
		if r != '\n' && r != '\r' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0 || recovery.Hidden(r)) {
			t.Errorf("belay %q prints %U: %q", args, r, text[max(0, i-40):min(len(text), i+40)])
			return
		}
	}
}

// TestO04AttacksOnATerminal: whatever stands in a session's fields, a terminal gets letters and line ends.
func TestO04AttacksOnATerminal(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("BELAY_STATE_DIR", root)
	t.Setenv("HOME", t.TempDir())
	dir := state.Dir{Root: root, FS: vfstest.Quick{}}
	list := attackTexts(t)
	if len(list) < 100 {
		t.Fatalf("%d attacks: this holds too little", len(list))
	}

	asked := [][]string{
		{"list"},
		{"list", "--json"},
		{"status"},
		{"status", "--json"},
		{"doctor"},
		{"doctor", "store"},
		{"doctor", "store", "--json"},
	}

	for n, evil := range list {
		key := hostileState(t, dir, evil)
		if n%8 != 0 {
			continue // in the lists alone
		}
		for _, c := range [][]string{{"status"}, {"show"}, {"show", "--json"}, {"recover"}, {"recover", "--json"}, {"recover", "--format", "delta"}} {
			asked = append(asked, append(c, "--agent", "mine", "--session", key.Session, "--workspace", key.Workspace))
		}
	}

	seen := 0
	for _, args := range asked {
		text := onTerminal(t, args...)
		harmlessOnScreen(t, args, text)
		seen += len(text)
	}

	if seen < 50_000 {
		t.Errorf("%d bytes were printed: this holds too little", seen)
	}
}

// TestPrintJSONKeepsTheText: what a terminal must not get is the same text to a program.
func TestPrintJSONKeepsTheText(t *testing.T) {
	for _, evil := range append(attackTexts(t), "plain", "🧪 日本語", "a\U000e0041b\U0001f600") {
		var b bytes.Buffer
		if err := printJSON(&b, map[string]string{"k": evil}); err != nil {
			t.Fatal(err)
		}

		var back map[string]string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["k"] != string([]rune(evil)) {
			t.Errorf("%q: got %q, %v", evil, back["k"], err)
		}

		harmlessOnScreen(t, []string{"--json", evil}, b.String())
	}
}

// TestO05HostileIDsAreData: ids and folders of any form, by event and by flag, before and after a restart: each is one
// session with one folder, found by the name that made it, and nothing appears outside of the state folder.
func TestO05HostileIDsAreData(t *testing.T) {
	h := newHome(t)
	ids := []string{
		"../../x",
		"../../../../../../tmp/x",
		"/etc/passwd",
		"-rf",
		"--json",
		"a\nb",
		"a\x1b[31mb",
		"\u202eid",
		"%2e%2e%2f",
		"..",
		".",
		"CON",
		"aux.txt",
		"x:y",
		`..\..\x`,
		"a\u0430",
		"aa",
		"",
		" ",
		"caf\xe9",
		"caf\xe8",
		"caf\ufffd",
		"$(id)",
		"a'b",
		strings.Repeat("x", 3000),
		"ａ",
		"A",
	}

	_, kill := h.daemon(t)
	before := tree(t, string(h))
	for round := range 2 {
		for i, id := range ids {
			if id == "" {
				continue
			}

			out, code := h.belay(
				t, string(h), "event", "--agent", "mine", "--session="+id,
				fmt.Sprintf(`{"kind":"prompt","text":"prompt %d of round %d"}`, i, round),
			)

			if code != exitOK {
				t.Errorf("session %q: exit code %d: %s", id, code, out)
			}
		}
		if round == 0 {
			kill()
			_, kill = h.daemon(t)
		}
	}

	kill()
	var list struct {
		Sessions []struct {
			SessionID    string
			MessageCount int
		}
	}

	if err := json.Unmarshal([]byte(h.ok(t, "list", "--json")), &list); err != nil {
		t.Fatal(err)
	}

	names := map[string]bool{}
	for _, s := range list.Sessions {
		names[s.SessionID] = true
	}

	for _, id := range ids {
		want := string([]rune(id)) // as JSON has it
		if id != "" && !names[want] {
			t.Errorf("session %.40q is not in the list", want)
		}
	}

	if got, want := len(list.Sessions), len(ids)-3; got != want { // one is empty, three are the same in JSON
		t.Errorf("%d sessions, want %d: an id has one folder before and after a restart", got, want)
	}

	for _, id := range []string{"../../x", "-rf", "caf\xe9", "a\x1b[31mb", "CON", strings.Repeat("x", 3000)} {
		out, code := h.belay(t, string(h), "recover", "--agent", "mine", "--session="+id, "--json")
		if code != exitOK || !strings.Contains(out, "of round 0") || !strings.Contains(out, "of round 1") {
			t.Errorf("recover %.20q: exit code %d, want both rounds: %.300s", id, code, out)
		}
		harmlessOnScreen(t, []string{"recover", id}, out)
	}

	if after := tree(t, string(h)); !slices.Equal(after, before) {
		t.Errorf("beside the state folder lies %q, want %q", after, before)
	}
}

// tree lists what lies in a home outside of the state folder.
func tree(t *testing.T, home string) (list []string) {
	t.Helper()
	out, err := exec.Command("find", home, "-path", "*/.local", "-prune", "-o", "-print").Output()
	if err != nil {
		t.Fatal(err)
	}

	list = strings.Split(string(out), "\n")
	slices.Sort(list)
	return list
}

// TestO05PlantedCheckpoints: checkpoints in the work tree, of another user and of another session are not used, and are
// named once by each command.
func TestO05PlantedCheckpoints(t *testing.T) {
	h := newHome(t)
	_, kill := h.daemon(t)
	h.talked(t, "planted", "the true words of it")
	h.talked(t, "other", "OTHER-SESSION words")
	kill()
	sessions := filepath.Join(h.state(), "sessions", "mine")
	folder := func(id string) string {
		found, err := filepath.Glob(filepath.Join(sessions, id+"*", "checkpoints"))
		if err != nil || len(found) != 1 {
			t.Fatalf("checkpoints of %s: %q, %v", id, found, err)
		}
		return found[0]
	}

	files, err := filepath.Glob(filepath.Join(folder("other"), "*-full.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("checkpoints: %q, %v", files, err)
	}

	others, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}

	put := func(path string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, others, 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	planted := []string{
		put(filepath.Join(folder("planted"), "000777-full.md")),
		put(filepath.Join(string(h), "checkpoints", "000042-full.md")),
		filepath.Join(string(h), ".belay"),
	}

	put(filepath.Join(string(h), ".belay", "sessions", "mine", "planted", "checkpoints", "000999-full.md"))
	if os.Getuid() == 0 {
		foreign := put(filepath.Join(folder("planted"), "000888-full.md"))
		if err := os.Chown(foreign, 12345, -1); err != nil {
			t.Fatal(err)
		}
		planted = append(planted, foreign)
	}

	h.wantPlanted(t, planted)
}

// wantPlanted asks each command.
func (h home) wantPlanted(t *testing.T, planted []string) {
	t.Helper()
	for _, args := range [][]string{{"recover"}, {"show"}, {"status"}, {"doctor"}} {
		if args[0] != "doctor" {
			args = append(args, "--agent", "mine", "--session", "planted")
		}

		out := h.run(t, "belay", "", args...)
		if strings.Contains(out, "OTHER-SESSION") {
			t.Errorf("belay %q uses what was planted:\n%s", args, out)
		}
		if args[0] != "doctor" && args[0] != "status" && !strings.Contains(out, "the true words of it") {
			t.Errorf("belay %q does not tell the session's own words:\n%s", args, out)
		}

		for _, path := range planted {
			n := strings.Count(out, path+" ") + strings.Count(out, path+":")
			if number, _, ok := strings.Cut(
				strings.TrimLeft(filepath.Base(path), "0"), "-",
			); ok && args[0] == "doctor" &&
				strings.HasPrefix(path, h.state()) {
				n = len(
					regexp.MustCompile(`checkpoint +`+number+` of mine/planted`).FindAllString(out, -1),
				) - strings.Count(
					out, "get checkpoint "+number,
				)
			}

			if n != 1 {
				t.Errorf("belay %q names %s %d times, want once:\n%s", args, path, n, out)
			}
		}
	}
}
