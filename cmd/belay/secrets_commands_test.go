package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// probe is how a command is called for its answers to secrets. Its flags and wrong arguments come from the command
// itself.
type probe struct {
	args   []string // the form that works
	inside bool     // it starts no program where a daemon runs: it is run in the test's own process
}

// keepsPaths says whether a command is there to keep or to print a path as it is: so do all that open it later.
func keepsPaths(command, flag string) bool {
	switch flag {
	case "workspace", "transcript":
		return command != "recover" && command != "show" && command != "status" && command != "list" &&
			command != "search" &&
			command != "checkpoint"
	case "state-dir":
		return command == "config" || command == "daemon"
	}
	return false
}

// probes has a line for every command of the program.
func probes(transcript string) map[string]probe {
	mine := []string{"--agent", "mine", "--session", "s"}
	with := func(args ...string) []string { return slices.Concat(mine, args) }
	return map[string]probe{
		"run":       {args: []string{"--", "true"}},
		"daemon":    {args: []string{"--print-unit"}},
		"intake":    {},
		"install":   {args: []string{"claude-code", "--dry-run"}},
		"uninstall": {args: []string{"--dry-run"}},
		"event": {
			args:   with(`{"kind":"beat"}`),
			inside: true,
		},
		"mark":      {args: with("a note"), inside: true},
		"increment": {args: mine, inside: true},
		"tool-start": {
			args:   mine,
			inside: true,
		},
		"tool-end":     {args: mine, inside: true},
		"check-sparse": {args: mine, inside: true},
		"check-full":   {args: mine, inside: true},
		"status": {
			inside: true,
		},
		"list":    {inside: true},
		"search":  {args: []string{"words"}, inside: true},
		"show":    {args: mine, inside: true},
		"recover": {args: mine, inside: true},
		"checkpoint": {
			args:   mine,
			inside: true,
		},
		"reset":  {inside: true},
		"config": {inside: true},
		"help":   {args: []string{"recover"}, inside: true},
		"completion": {
			args:   []string{"bash"},
			inside: true,
		},
		"doctor":            {inside: true},
		"doctor store":      {inside: true},
		"doctor transcript": {args: []string{transcript}, inside: true},
	}
}

// eachCommand calls f with every command of the program, hidden ones too, and its name.
func eachCommand(c *cobra.Command, f func(name string, c *cobra.Command)) {
	for _, sub := range c.Commands() {
		f(strings.TrimPrefix(sub.CommandPath(), "belay "), sub)
		eachCommand(sub, f)
	}
}

// ways are all ways to give a secret to a command: as an argument too many, as the only one, as a flag that there is
// none of, as the value of each flag, in a path, and to the shell's completion. blocked is a folder that cannot be
// made; a daemon for it can be, and lives.
func (p *planter) ways(c *cobra.Command, name string, base probe, home, blocked string) [][]string {
	words := strings.Fields(name)
	line := func(args ...string) []string { return slices.Concat(words, args) }
	all := [][]string{
		line(append(slices.Clone(base.args), p.arg())...),
		line(p.arg()),
		line("--" + p.arg()),
		line(p.arg(), p.arg()),
		line(filepath.Join(home, "no", p.arg(), "x")),
	}

	complete := func(args ...string) { all = append(all, append([]string{"__complete"}, line(args...)...)) }
	complete(p.arg())
	complete("")
	flags := func(f *pflag.Flag) {
		if keepsPaths(name, f.Name) {
			return
		}

		value := p.arg()
		if f.Name == "state-dir" {
			value = blocked
		}

		at := slices.Index(base.args, "--") // what follows is another program's
		if at < 0 {
			at = len(base.args)
		}

		all = append(all, line(slices.Concat(base.args[:at], []string{"--" + f.Name + "=" + value}, base.args[at:])...))
		complete("--" + f.Name + "=" + p.arg())
		complete("--"+f.Name, "")
	}

	c.LocalFlags().VisitAll(flags)
	c.InheritedFlags().VisitAll(flags)
	return all
}

// arg is a secret that can stand in an argument and in the name of a file.
func (p *planter) arg() string {
	for {
		one := p.plants[p.next%len(p.plants)]
		p.next++
		if !strings.ContainsAny(one.text, "/\n") {
			return one.text
		}
	}
}

// says checks what a program printed.
func (p *planter) says(t *testing.T, args []string, out []byte) {
	t.Helper()
	if found := p.leak(out); len(found) > 0 {
		t.Errorf("belay %q prints %s", args, found[0])
	}
}

// probeAll gives secrets to every command of the program in every way. What they say is free of them.
func (h home) probeAll(t *testing.T, p *planter, transcript string) {
	t.Helper()
	plain := filepath.Join(string(h), "plain.txt")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	blocked := filepath.Join(plain, p.arg())
	t.Cleanup(func() { stopDaemon(blocked) })
	t.Setenv("HOME", string(h))
	t.Chdir(string(h))
	bases, ran := probes(transcript), 0
	eachCommand(newRoot(), func(name string, c *cobra.Command) {
		base, ok := bases[name]
		if !ok {
			t.Errorf("belay %s has no probe: nothing says that it keeps secrets to itself", name)
			return
		}

		for _, args := range p.ways(c, name, base, string(h), blocked) {
			p.says(t, args, h.output(t, base.inside, nil, args...))
			ran++
		}

		for name, value := range map[string]string{"BELAY_SESSION": p.arg(), "BELAY_CONFIG": filepath.Join(string(h), p.arg()), "BELAY_GATES_SPARSE_TIME": p.arg()} {
			t.Setenv(name, value)
			args := append(strings.Fields(c.CommandPath())[1:], base.args...)
			p.says(t, append(args, name, value), h.output(t, base.inside, []string{name + "=" + value}, args...))
			t.Setenv(name, "")
			ran++
		}
	})

	if ran < 300 {
		t.Errorf("%d forms of commands ran: this holds too little", ran)
	}

	for _, args := range [][]string{{p.arg(), p.arg()}, {"verb", p.arg()}, {"verb", "increment", p.arg(), "--session", p.arg()}, {"--" + p.arg()}} {
		cmd := exec.Command(filepath.Join(place.bin, "belay-hook"), args...)
		cmd.Dir, cmd.Env = string(h), h.env()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("belay-hook %q: %v", args, err)
		}
		p.says(t, args, out)
	}
}

// output is all that a command prints.
func (h home) output(t *testing.T, inside bool, env []string, args ...string) []byte {
	t.Helper()
	if (inside || args[0] == "__complete") &&
		!slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--state-dir") }) {
		var b bytes.Buffer
		runMain(t.Context(), args, strings.NewReader(""), &b, &b)
		return b.Bytes()
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(place.bin, "belay"), args...)
	cmd.Dir, cmd.Env = string(h), append(h.env(), env...)
	out, err := cmd.CombinedOutput()
	if ee := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ee) || ctx.Err() != nil {
		t.Errorf("belay %q: %v, %v", args, err, ctx.Err())
	}

	return out
}

// wiring runs install and uninstall over settings that hold secrets: well-formed ones, then broken ones.
func (h home) wiring(t *testing.T, p *planter) {
	t.Helper()
	zero := filepath.Join(string(h), "a0")

	// on PATH they are not copied
	env := []string{"AGENT_ZERO_DIR=" + zero, "PATH=" + place.bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(zero, "usr"), 0o700),
		os.WriteFile(filepath.Join(zero, "agent.py"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}

	planted := 0
	for _, name := range installable() {
		var plan struct{ Changes []change }
		out := h.output(t, false, env, "install", name, "--dry-run", "--json")
		if err := json.Unmarshal(out, &plan); err != nil {
			t.Errorf("install %s --dry-run --json: %v: %s", name, err, out)
			continue
		}

		for _, whole := range []bool{true, false} {
			for _, c := range plan.Changes {
				if c.Agent != "" && filepath.Ext(c.Path) != "" {
					h.settings(t, p, c.Path, whole)
					planted++
				}
			}
			for _, args := range [][]string{{"install", name, "--dry-run", "--json"}, {"install", name}, {"uninstall", name, "--dry-run"}, {"uninstall", name, "--json"}} {
				p.says(t, args, h.output(t, false, env, args...))
			}
		}
	}

	if planted < 10 {
		t.Errorf("%d settings of agents were planted: this holds too little", planted)
	}

	for _, args := range [][]string{{"install", "--dry-run"}, {"install"}, {"install", "--json", "--trust"}, {"doctor"}, {"doctor", "--json"}, {"uninstall", "--json"}} {
		p.says(t, args, h.output(t, false, env, args...))
	}
}

// settings writes an agent's settings with a secret in every value; broken ones end in the middle of one.
func (h home) settings(t *testing.T, p *planter, path string, whole bool) {
	t.Helper()
	doc := map[string]any{}
	for _, k := range []string{"env", "model", "apiKeyHelper", "mcpServers"} {
		doc[k] = map[string]any{"A": "x", "command": "tool"}
	}

	for _, event := range []string{"Stop", "SessionStart", "stop"} {
		doc["hooks"] = map[string]any{
			event: []any{
				map[string]any{
					"matcher": "x",
					"hooks":   []any{map[string]any{"type": "command", "command": "notify --to me"}},
				},
			},
		}
	}

	data, err := json.MarshalIndent(p.fill("", doc), "", "  ")
	if filepath.Ext(path) != ".json" {
		data = []byte("// " + strings.ReplaceAll(p.text(""), "\n", " ") + "\n")
	}
	if !whole {
		data = append(data[:len(data)*2/3:len(data)*2/3], p.text("")...)
	}
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// listen subscribes to all that the daemon tells, again whenever the daemon is gone. The check says what it heard.
func (h home) listen(t *testing.T, p *planter) (check func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var heard bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			c, err := net.Dial("unix", filepath.Join(h.state(), "belay.sock"))
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
				continue
			}

			end := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends the read below
			_, _ = io.WriteString(c, "{\"op\":\"subscribe\"}\n")    // gone again: then the read ends at once
			_, _ = io.Copy(&heard, c)                               // ends with the daemon
			end()
			_ = c.Close() // closed already when the test ended it
		}
	})

	return func() {
		t.Helper()
		stop()
		wg.Wait()
		if lines := bytes.Count(
			heard.Bytes(), []byte("\n"),
		); lines < 50 ||
			!bytes.Contains(heard.Bytes(), []byte("[secret:")) {
			t.Errorf("a subscriber heard %d lines, want many and a mark in them: %.300s", lines, heard.Bytes())
		}

		p.says(t, []string{"(subscribe)"}, heard.Bytes())
	}
}
