//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"belay/internal/wire"
)

// build makes all programs: belay as it is released, the yardsticks in Go, and those in C where there is a compiler.
func (b *bench) build(ctx context.Context) error {
	if err := os.MkdirAll(b.bin, 0o700); err != nil {
		return err
	}

	b.show.begin("build", 6)
	for _, pkg := range []string{
		"./cmd/belay", "./cmd/belay-hook", "./scripts/bench.d/empty", "./scripts/bench.d/netonly",
		"./scripts/bench.d/launch",
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.bin+"/", pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
		b.show.step()
	}

	gcc, err := exec.LookPath("gcc")
	if err != nil {
		b.noC = "gcc is not here"
		return nil
	}

	for _, name := range []string{"floor", "serve", "pingpong", "oneway"} {
		cmd := exec.CommandContext(
			ctx, gcc, "-O2", "-static", "-o", b.program(name), filepath.Join("scripts/bench.d/c", name+".c"),
		)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.noC = fmt.Sprintf("gcc does not build %s: %v %s", name, err, out)
			return nil
		}
	}

	return nil
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }

// folder makes a state folder and gives the environment of a program that uses it, and nothing of the user's.
func (b *bench) folder() (dir string, env []string, err error) {
	dir, err = os.MkdirTemp(b.dir, "s")
	if err != nil {
		return "", nil, err
	}

	home := filepath.Join(dir, "home")
	config := filepath.Join(home, "config.yaml")
	err = errors.Join(os.Mkdir(home, 0o700), os.WriteFile(config, nil, 0o600))
	env = []string{
		"HOME=" + home,
		"PATH=" + os.Getenv("PATH"),
		"BELAY_CONFIG=" + config,
		"BELAY_STATE_DIR=" + stateOf(dir),
		"BELAY_LIMITS_SESSIONS_PER_MINUTE=1000000",
	}

	return dir, env, err
}

func stateOf(dir string) string  { return filepath.Join(dir, "state") }
func socketOf(dir string) string { return filepath.Join(stateOf(dir), "belay.sock") }

// server is a running daemon: belay's or a yardstick's.
type server struct {
	cmd    *exec.Cmd
	socket string
}

// serve starts a program that listens at the socket of a folder, and waits until it answers.
func (b *bench) serve(ctx context.Context, dir string, env []string, words ...string) (*server, error) {
	s, err := b.spawn(dir, env, words...)
	if err != nil {
		return nil, err
	}

	c, err := dialUntil(ctx, s.socket, 10*time.Second)
	if err == nil {
		_, err = hello(c)
		_ = c.Close() // the answer came
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", words[0], err), s.stop())
	}

	return s, nil
}

func (b *bench) spawn(dir string, env []string, words ...string) (*server, error) {
	if err := os.MkdirAll(stateOf(dir), 0o700); err != nil {
		return nil, err
	}
	s := &server{socket: socketOf(dir), cmd: exec.Command(words[0], words[1:]...)}
	s.cmd.Env, s.cmd.Dir = env, dir
	return s, s.cmd.Start()
}

// stop ends the program, by force when it does not listen.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	kill := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		err = nil // yardsticks know no SIGTERM
	}

	return errors.Join(err, removed(s.socket))
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (b *bench) daemon(ctx context.Context, dir string, env []string) (*server, error) {
	return b.serve(ctx, dir, env, b.program("belay"), "daemon")
}

func dialUntil(ctx context.Context, socket string, budget time.Duration) (net.Conn, error) {
	end := time.Now().Add(budget)
	for {
		c, err := net.Dial("unix", socket)
		if err == nil || time.Now().After(end) || ctx.Err() != nil {
			return c, errors.Join(err, ctx.Err())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// hello asks for the first answer. The line is one for a yardstick too, which does not read it.
func hello(c net.Conn) (answer string, err error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, `{"op":"hello","agent":"bench"}`+"\n"); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

// launcher starts programs from a small process.
type launcher struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// cost of one program, from spawn to exit.
type cost struct {
	took   time.Duration
	faults float64
	rss    float64 // peak, MB
	code   int
}

func startLauncher(path string) (*launcher, error) {
	l := &launcher{cmd: exec.Command(path)}
	in, err := l.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	l.in, l.out = in, bufio.NewReader(out)
	return l, l.cmd.Start()
}

func (l *launcher) close() error { return errors.Join(l.in.Close(), l.cmd.Wait()) }

// run starts a program and waits for its end. A program that fails is an error: its time would mean nothing.
func (l *launcher) run(dir, stdin string, env []string, words ...string) (cost, error) {
	f := append([]string{stdin, dir, strconv.Itoa(len(env))}, env...)
	if _, err := io.WriteString(l.in, strings.Join(append(f, words...), "\x1f")+"\n"); err != nil {
		return cost{}, err
	}

	line, err := l.out.ReadString('\n')
	if err != nil {
		return cost{}, err
	}

	var ns, faults, kb int64
	var c cost
	if _, err := fmt.Sscan(line, &ns, &faults, &kb, &c.code); err != nil {
		return c, fmt.Errorf("run %s: %s", words[0], strings.TrimSpace(line))
	}

	c.took, c.faults, c.rss = time.Duration(ns), float64(faults), float64(kb)/1024
	if c.code != 0 {
		return c, fmt.Errorf("run %s: exit code %d", strings.Join(words, " "), c.code)
	}

	return c, nil
}

// process gives a variant that is a program; its unit is ms. What else it cost goes where costs points.
func (b *bench) process(name, dir, stdin string, env []string, costs *[]cost, words ...string) *variant {
	return &variant{name: name, round: func(context.Context) (float64, error) {
		c, err := b.launch.run(dir, stdin, env, words...)
		if costs != nil {
			*costs = append(*costs, c)
		}
		return ms(c.took), err
	}}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// ask sends one request to a daemon.
func ask(ctx context.Context, socket string, req wire.Request, payload []byte) (wire.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := wire.Dial(ctx, "", socket)
	if err != nil {
		return wire.Reply{}, err
	}

	defer c.Close()
	r, _, err := c.Do(ctx, req, payload)
	if err == nil && !r.OK {
		err = fmt.Errorf("op %s: %s", req.Op, r.Message)
	}

	return r, err
}
