package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// screen is an interactive shell in a terminal of script(1)'s.
type screen struct {
	t    *testing.T
	keys io.Writer
	mu   struct {
		sync.Mutex
		text bytes.Buffer
	}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.text.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.text.String()
}

// typed sends keys and waits until what came since then holds a text.
func (s *screen) typed(keys, want string) {
	s.t.Helper()
	from := len(s.text())
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
	if !wait(func() bool { return strings.Contains(s.text()[from:], want) }) {
		s.t.Fatalf("after the keys %q: no %q on the screen:\n%s", keys, want, s.text())
	}
}

// openScreen starts bash in a terminal.
func openScreen(t *testing.T, h home) *screen {
	t.Helper()
	for _, program := range []string{"script", "bash", "stty"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here", program)
		}
	}

	s := &screen{t: t}
	cmd := exec.Command("script", "-qec", "bash --norc --noprofile -i", "/dev/null")
	if _, err := exec.Command("script", "-qec", "true", "/dev/null").Output(); err != nil {
		t.Skipf("this script(1) is another one: %v", err)
	}

	cmd.Dir, cmd.Env = t.TempDir(), []string{
		"HOME=" + string(h),
		"PATH=" + place.bin + ":" + os.Getenv("PATH"),
		"TERM=dumb",
		"SHELL=/bin/bash",
	}

	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	s.keys, cmd.Stdout, cmd.WaitDelay = keys, s, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the terminal goes away, and the kernel ends what runs in it
		_ = cmd.Wait()         // killed
	})

	return s
}

// terminalAgent is an agent that says what reaches it.
const terminalAgent = `
trap 'n=$((n+1)); echo "got int $n"' INT
echo "agent is ready $(stty size)"
while :; do
	read -r line || continue
	case $line in
	quit) exit 7 ;;
	halt) kill -STOP $$; echo "agent goes on" ;;
	die) stty raw -echo; kill -KILL $$ ;;
	*) echo "agent read $line, ints ${n:-0}" ;;
	esac
done
`

// TestRunInTerminal: keys, job control, size and modes of the terminal are the agent's, as without belay.
func TestRunInTerminal(t *testing.T) {
	h := startDaemon(t)
	s := openScreen(t, h)
	file := filepath.Join(t.TempDir(), "agent.sh")
	if err := os.WriteFile(file, []byte(terminalAgent), 0o600); err != nil {
		t.Fatal(err)
	}

	start := "belay run -- bash " + file + "\n"
	s.typed("PS1='re''ady>'; stty rows 33 cols 101\n", "ready>")
	s.typed(start, "agent is ready 33 101")
	s.typed("\x03", "got int 1")
	s.typed("hello\n", "agent read hello, ints 1")
	s.typed("\x1a", "Stopped")
	s.typed("echo shell $((2+3))\n", "shell 5")
	s.typed("fg\n", "belay run")
	s.typed("again\n", "agent read again, ints 1")
	s.typed("halt\n", "Stopped") // the agent stops itself: belay stops with it
	s.typed("fg\n", "agent goes on")
	s.typed("third\n", "agent read third, ints 1")
	s.typed("quit\n", "ready>")
	s.typed("echo code $?.\n", "code 7.")
	s.typed(start, "agent is ready 33 101")
	s.typed("die\n", "killed by SIGKILL")
	s.typed("echo code $?, $(stty -a | grep -o -e '-*icanon')\n", "code 137, icanon")
	s.typed("echo gone | belay run -- cat\n", "gone")

	// In the background it is stopped when it reads the keys, as any other.
	s.typed("belay run -- bash "+file+" &\n", "agent is ready")
	s.typed("until jobs | grep -q Stopped; do sleep 0.05; done; kill -9 %1; echo was stop''ped\n", "was stopped")
}

// TestRunSignals: without a terminal a signal for belay is the agent's; an ignored one stays ignored.
func TestRunSignals(t *testing.T) {
	for _, c := range []struct {
		name  string
		shell string // the agent
		sig   syscall.Signal
		code  int
		out   string
	}{
		{"term", `trap 'echo got term; exit 3' TERM; echo up; while :; do sleep 0.05; done`, syscall.SIGTERM, 3, "got term"},
		{"int", `trap 'echo got int; exit 4' INT; echo up; while :; do sleep 0.05; done`, syscall.SIGINT, 4, "got int"},
		{"hup kills", `echo up; while :; do sleep 0.05; done`, syscall.SIGHUP, 129, ""},
		{"usr1", `trap 'echo got usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done`, syscall.SIGUSR1, 0, "got usr1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if signal.Ignored(c.sig) {
				t.Skipf("%v is ignored here (nohup?), and so in every program that a test starts", c.sig)
			}

			h := startDaemon(t)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}

			defer out.Close()
			cmd := exec.Command(filepath.Join(place.bin, "belay"), "run", "sh", "-c", c.shell)
			cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}, out, out
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			text := func() string {
				data, err := os.ReadFile(out.Name())
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}

			if !wait(func() bool { return strings.Contains(text(), "up") }) {
				t.Fatalf("the agent is not up: %s", text())
			}
			if err := cmd.Process.Signal(c.sig); err != nil {
				t.Fatal(err)
			}

			_ = cmd.Wait() // the code is below
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(text(), c.out) {
				t.Errorf("exit code %d, want %d; it printed %q, want %q in it", got, c.code, text(), c.out)
			}
		})
	}
}

// launchedAgent writes a launcher that starts an agent of Claude Code's kind, which ends with exit code 9 when a file
// is written that the launcher's argument names; and starts another one beside it, of another session.
func launchedAgent(t *testing.T, h home, mine, other string) (write func(name, text string) string, launcher string) {
	t.Helper()
	dir := t.TempDir()
	write = func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}

	hook := func(session, event, more string) string {
		return fmt.Sprintf(
			`echo '{"session_id":"%s","cwd":"/","hook_event_name":"%s"%s}' | belay-hook claude-code %s`+"\n",
			session, event, more, event,
		)
	}

	// The hook's parent is the shell that runs this file: the agent.
	inner := write(
		"inner",
		"#!/bin/sh\n"+hook(
			mine, "SessionStart", `,"source":"startup"`,
		)+hook(
			mine, "UserPromptSubmit", `,"prompt":"sail to the island"`,
		)+
			"until [ -e "+dir+"/$1 ]; do sleep 0.02; done\nexit 9\n",
	)

	launcher = write("launcher", "#!/bin/sh\n"+inner+" $1\nexit $?\n")
	bystander := write(
		"bystander",
		"#!/bin/sh\n"+hook(
			other, "SessionStart", `,"source":"startup"`,
		)+hook(
			other, "UserPromptSubmit", `,"prompt":"stay at home"`,
		)+
			"until [ -e "+dir+"/over ]; do sleep 0.02; done\n",
	)

	by := exec.Command(bystander)
	by.Env = []string{"HOME=" + string(h), "PATH=" + place.bin + ":" + os.Getenv("PATH")}
	if err := by.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		write("over", "")
		_ = by.Wait() // a test's own shell
	})

	return write, launcher
}

// TestRunTellsTheAgentsSessions: a launcher starts the real agent, whose hooks name its process; belay's run knows it
// by its descent, and no other session is touched.
func TestRunTellsTheAgentsSessions(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("descendants are known on Linux only")
	}

	h := startDaemon(t)
	const mine, other = "5f0c8f2e-1111-4222-8333-000000000001", "5f0c8f2e-1111-4222-8333-000000000002"
	write, launcher := launchedAgent(t, h, mine, other)
	cmd := exec.Command(filepath.Join(place.bin, "belay"), "run", "--", launcher, "go")
	cmd.Env = []string{"HOME=" + string(h), "PATH=" + place.bin + ":" + os.Getenv("PATH")}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	for _, words := range []string{"sail to the island", "stay at home"} {
		if !wait(func() bool { out, _ := h.belay(t, "/", "list"); return strings.Contains(out, words) }) {
			t.Fatalf("no session that was asked to %s", words)
		}
	}

	write("go", "")
	_ = cmd.Wait() // the code is below
	if got := cmd.ProcessState.ExitCode(); got != 9 {
		t.Errorf("exit code %d, want the agent's 9", got)
	}

	for _, want := range []string{"belay: launcher: exit code 9\n", "Session " + mine, "claude --resume " + mine, "belay recover --agent claude-code --session " + mine} {
		if !strings.Contains(errOut.String(), want) {
			t.Errorf("no %q in what belay said:\n%s", want, errOut.String())
		}
	}

	if strings.Contains(errOut.String(), other) {
		t.Errorf("the session of another process is named:\n%s", errOut.String())
	}

	state := func(session string) string { out, _ := h.belay(t, "/", "status", "--session", session); return out }
	if got := state(mine); !strings.Contains(got, "died") {
		t.Errorf("the agent's session:\n%s\nwant died", got)
	}
	if got := state(other); !strings.Contains(got, "at work") {
		t.Errorf("the other session:\n%s\nwant at work", got)
	}
}

// TestRunPassesFiles: what a shell opened for the agent, it has.
func TestRunPassesFiles(t *testing.T) {
	h := startDaemon(t)
	file := filepath.Join(t.TempDir(), "three")
	if err := os.WriteFile(file, []byte("from the third\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(
		"sh", "-c", strconv.Quote(filepath.Join(place.bin, "belay"))+` run -- sh -c 'cat <&3; cat' 3<"$1"`,
		"sh", file,
	)

	cmd.Env, cmd.Stdin = []string{"HOME=" + string(h), "PATH=" + os.Getenv("PATH")}, strings.NewReader("from stdin\n")
	out, err := cmd.Output()
	if err != nil || string(out) != "from the third\nfrom stdin\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestAgentOf(t *testing.T) {
	for program, want := range map[string]string{
		"claude": "claude-code", "/opt/bin/claude": "claude-code", "claude-code": "claude-code", "codex": "codex",
		"pi": "pi", "open": "other", "sh": "other", "": "other",
	} {
		if got := agentOf(program); got != want {
			t.Errorf("agentOf(%q) = %q, want %q", program, got, want)
		}
	}
}
