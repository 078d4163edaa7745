package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs"
)

// A person at three in the morning reads the help: each has an example and its exit codes.
func TestHelpOfEveryCommand(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}

		var out, errOut bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if code := runMain(
			t.Context(), args, strings.NewReader(""), &out, &errOut,
		); code != exitOK ||
			errOut.Len() > 0 {
			t.Errorf("belay %s: exit code %d, stderr %q", strings.Join(args, " "), code, errOut.String())
		}

		help := out.String()
		if !strings.Contains(help, "\n  "+c.CommandPath()) && !strings.Contains(help, " "+c.CommandPath()+" ") {
			t.Errorf("help of %q has no example:\n%s", c.CommandPath(), help)
		}

		for _, want := range []string{"Exit codes: 0 ", "Usage:"} {
			if !strings.Contains(help, want) {
				t.Errorf("help of %q has no %q:\n%s", c.CommandPath(), want, help)
			}
		}

		for i, line := range strings.Split(c.Long, "\n") {
			if len(line) > 135 {
				t.Errorf("help of %q, line %d has %d characters: %s", c.CommandPath(), i+1, len(line), line)
			}
		}
	}

	walk(newRoot())
}

// belay runs the real program with a home of its own.
func (h home) belay(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(place.bin, "belay"), args...)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if ee, ok := err.(*exec.ExitError); err != nil && (!ok || !ee.Exited()) {
		t.Fatalf("belay %q: %v", args, err)
	}
	if cmd.ProcessState.ExitCode() != 0 {
		t.Logf("belay %q: %s", args, errOut.String())
	}

	return out.String(), cmd.ProcessState.ExitCode()
}

type home string

func (h home) state() string { return filepath.Join(string(h), ".local", "state", "belay") }

func newHome(t *testing.T) home {
	t.Helper()
	dir, err := os.MkdirTemp(place.work, "h")
	if err != nil {
		t.Fatal(err)
	}

	h := home(dir)
	t.Cleanup(func() { stopDaemon(h.state()) })
	return h
}

// P07: register, checkpoint and recover in each of the odd folders, real ones and names of ones that are not there.
func TestP07OddPaths(t *testing.T) {
	data, err := os.ReadFile("testdata/P07-paths.json")
	if err != nil {
		t.Fatal(err)
	}

	var paths []string
	if err := json.Unmarshal(data, &paths); err != nil || len(paths) != 24 {
		t.Fatalf("%d paths, %v; want 24", len(paths), err)
	}

	h, top := newHome(t), t.TempDir()
	for i, path := range paths {
		words := fmt.Sprintf("the words of path %d", i)
		event := fmt.Sprintf(`{"kind":"prompt","text":%q}`, words)
		below := filepath.Join(top, strings.TrimPrefix(path, "/w/"))
		dir, flags := below, []string{}
		if err := os.MkdirAll(below, 0o755); err != nil {
			dir, flags = "/", []string{"--workspace", path}
		}

		for _, args := range [][]string{{"event", event, "--agent", "mine", "--session", "same"}, {"checkpoint", "--agent", "mine", "--session", "same"}} {
			if out, code := h.belay(t, dir, append(args, flags...)...); code != 0 {
				t.Errorf("%q: belay %s: exit code %d: %s", path, args[0], code, out)
			}
		}

		out, code := h.belay(t, dir, append([]string{"recover", "--session", "same"}, flags...)...)
		if code != 0 || !strings.Contains(out, words) {
			t.Errorf("%q: recover: exit code %d, want the words of this folder:\n%s", path, code, out)
		}
	}

	out, _ := h.belay(t, "/", "list", "--json")
	var list struct{ Sessions []struct{ Workspace string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Sessions) != len(paths) {
		t.Errorf("%d sessions listed, %v; want one for each of %d folders", len(list.Sessions), err, len(paths))
	}
	if out, _ := h.belay(t, "/", "list"); strings.Count(out, "\n") != len(paths)+1 {
		t.Errorf("the table has %d lines, want %d: a path broke one\n%s", strings.Count(out, "\n"), len(paths)+1, out)
	}
}

// M01 for our own list: many sessions are listed at once, and in bounded memory.
func TestM01ListManySessions(t *testing.T) {
	const sessions = 2000
	h := newHome(t)
	dir := state.Dir{Root: h.state(), FS: vfs.OS{}}
	one := busyState()
	for i := range sessions {
		saveFast(t, dir, one, fmt.Sprintf("%08d-0000-4000-8000-000000000000", i))
	}

	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"doctor"}} {
		cmd := exec.Command(filepath.Join(place.bin, "belay"), args...)
		cmd.Env = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}
		start := time.Now()
		out, err := cmd.Output()
		took := time.Since(start)
		if err != nil {
			t.Fatalf("belay %q: %v", args, err)
		}

		t.Logf("belay %q of %d sessions: %v, %s", args, sessions, took, memory(cmd.ProcessState))
		if args[0] == "list" && bytes.Count(out, []byte("-0000-4000-8000-")) != sessions {
			t.Errorf(
				"belay %q shows %d sessions, want %d", args, bytes.Count(out, []byte("-0000-4000-8000-")),
				sessions,
			)
		}

		if took > 10*time.Second {
			t.Errorf("belay %q took %v, want under 10s", args, took)
		}
		if n := peak(cmd.ProcessState); n > 300<<20 {
			t.Errorf("belay %q needed %d MB, want under 300", args, n>>20)
		}
	}
}

// busyState is the state of a session with a day's talk.
func busyState() *checkpoint.State {
	at := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	s := checkpoint.NewState(checkpoint.NewKey("mine", "", "00000000-0000-4000-8000-000000000000", ""))
	for turn := range 20 {
		at = at.Add(time.Minute)
		s.Apply(
			checkpoint.Event{
				At:   at,
				Key:  s.Key,
				Kind: checkpoint.EventPrompt,
				Text: fmt.Sprintf("prompt %d: %s", turn, strings.Repeat("words ", 60)),
			},
		)

		s.Apply(
			checkpoint.Event{At: at, Key: s.Key, Kind: checkpoint.EventStop, Text: strings.Repeat("an answer ", 100)},
		)
	}

	return s
}

// saveFast is SaveState without its syncs, which are not what is measured.
func saveFast(t *testing.T, dir state.Dir, s *checkpoint.State, id string) {
	t.Helper()
	s.Key.Session = id
	data, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(dir.Session(s.Key), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir.Session(s.Key), "state.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func memory(p *os.ProcessState) string { return fmt.Sprintf("%d MB", peak(p)>>20) }

func TestPrintableAndShort(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"}, {"a\nb\tc", "a b c"}, {"red\x1b[31m", "red\ufffd[31m"}, {"日本", "日本"}, {"bidi\u202e", "bidi\ufffd"}, {"", ""},
	} {
		if got := printable(c.in); got != c.want {
			t.Errorf("printable(%q) = %q, want %q", c.in, got, c.want)
		}
	}

	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"日本語文字", 10, "日本語文字"}, {"日本語文字", 9, "日本語文…"}, {"日本語文字", 6, "日本…"}, {"plain", 5, "plain"}, {"plain", 4, "pla…"}, {"plain", 0, "plain"},
		{"cafe\u0301s", 5, "cafe\u0301s"}, {"✅ done", 6, "✅ do…"}, {"🚀🚀", 3, "🚀…"},
	} {
		if got := short(c.in, c.most); got != c.want {
			t.Errorf("short(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}

	for d, want := range map[time.Duration]string{-time.Second: "0s", 59400 * time.Millisecond: "59s", 59600 * time.Millisecond: "1m", time.Hour - time.Second: "59m",
		time.Hour: "1h0m", 100 * time.Minute: "1h40m", 47*time.Hour + 59*time.Minute: "47h59m", 48 * time.Hour: "2d"} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %q, want %q", d, got, want)
		}
	}

	today := time.Now()
	if got, want := clock(today), today.Format("15:04:05 MST"); got != want {
		t.Errorf("clock of today = %q, want %q", got, want)
	}
	if old := today.AddDate(0, 0, -3); clock(old) != old.Format("2006-01-02 15:04:05 MST") {
		t.Errorf("clock of three days ago = %q, want its date", clock(old))
	}
	if got, want := shellWord("/w/it's $x"), `'/w/it'\''s $x'`; got != want {
		t.Errorf("shellWord = %s, want %s", got, want)
	}
	if got := strings.Join(wrap("one two three four", 9), "|"); got != "one two|three|four" {
		t.Errorf("wrap = %s", got)
	}
}

func TestVersion(t *testing.T) {
	rev := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{rev}, "0123456789ab"},
		{[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, rev}, "0123456789ab-dirty"},
		{[]debug.BuildSetting{rev, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
	} {
		if got := commit(c.settings); got != c.want {
			t.Errorf("commit(%v) = %q, want %q", c.settings, got, c.want)
		}
	}

	if v := version(); v == "" || v == "(devel)" || v == "devel" {
		t.Errorf("version %q names no build", v)
	}
}
