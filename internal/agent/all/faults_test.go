package all

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// The user of these tests has a home that is on no real disk.
const (
	faultyHome = "/no-such-home/user"
	faultyHook = "/opt/belay/belay-hook"
)

// settings are what the user has of each agent before belay comes: a file, in a form that no program would write.
var settings = map[string]struct{ path, text string }{
	"claude-code": {
		".claude/settings.json",
		"{ \"hooks\":  {\"Stop\": [ {\"hooks\":[{\"type\":\"command\",\"command\":\"say done\"}]} ],\r\n\t\"Other\":[]},\r\n \"x\":1 }  \r\n\r\n",
	},
	"codex":    {".codex/hooks.json", "{ \"hooks\":  {\"Stop\": []},\n \"x\":1 }\n\n"},
	"gemini":   {".gemini/settings.json", "{\"x\" :1}\n"},
	"openclaw": {".openclaw/openclaw.json", "{\n  // mine\n  gateway: {port: 1},\n}\n"},
	"opencode": {".config/opencode/opencode.json", "{ }\n"},
	"pi":       {".pi/agent/settings.json", "{ }\n"},
	"oh-my-pi": {".omp/agent/config.yml", "x: 1\n"},
	"droid": {
		".factory/settings.json",
		"{ // mine\n  \"hooks\":  {\"Stop\": [ {\"hooks\":[{\"type\":\"command\",\"command\":\"say done\"}]} ]},\n \"x\":1 }\n\n",
	},
	"cursor":  {".cursor/hooks.json", "{\"version\":1, \"hooks\" : {}}\n"},
	"copilot": {".copilot/config.json", "{ }\n"},
}

// TestEveryInstallersFaults: whatever operation of install or uninstall fails or takes the power away, every file is
// the old one or the new one, the error is told, and uninstall brings back each byte and leaves nothing.
func TestEveryInstallersFaults(t *testing.T) {
	seen := 0
	for _, a := range All(agenttest.Host(faultyHome)) {
		if _, ok := a.(agent.Installer); !ok || a.Name() == "agent-zero" {
			continue // Agent Zero is looked for on the real disk: the next test
		}

		seen++
		for _, had := range []bool{true, false} {
			name := a.Name()
			if !had {
				name += ", nothing there before"
			}

			t.Run(name, func(t *testing.T) {
				whole := map[string][]byte{}
				step := 1
				if !had {
					step = 3
				}

				vfstest.Sweep{Least: 15, Step: step}.Run(t, func(p *vfstest.Point) {
					f := &faulty{Point: p, t: t, agent: a.Name(), whole: whole}
					f.run(had)
				})
			})
		}
	}

	if seen != len(settings) {
		t.Errorf("%d installers, %d with settings: each needs some", seen, len(settings))
	}
}

// TestAgentZerosFaults is the same for a program that is looked for on the real disk, where the power cannot be cut.
func TestAgentZerosFaults(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(root, "agent.py"), nil, 0o600), os.Mkdir(filepath.Join(root, "usr"), 0o700),
	); err != nil {
		t.Fatal(err)
	}

	installer := func(disk vfs.FS) agent.Installer {
		host := agenttest.Host("", "AGENT_ZERO_DIR="+root)
		host.FS = disk
		a, _ := ByName(host, "agent-zero")
		return a.(agent.Installer)
	}

	paths := agent.Paths{Hook: faultyHook}
	vfstest.Sweep{Least: 15, Step: 4, Disk: func() vfs.FS { return vfstest.Quick{} }}.Run(t, func(p *vfstest.Point) {
		_, err := installer(p.Fault).Install(t.Context(), paths, false)
		_ = p.Hear(err) // Hear has looked at it
		_, err = installer(p.Fault).Uninstall(paths, false)
		_ = p.Hear(err)
		verb, what, _ := strings.Cut(p.Op(), " ")
		p.Tell((verb == "readdir" || verb == "remove") && !strings.Contains(what, ".")) // an empty folder is tidied up
		if _, err := installer(vfstest.Quick{}).Uninstall(paths, false); err != nil {
			p.Errorf("uninstall later: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(root, "usr", "*", "*", "*", "*")); len(left) > 0 {
			p.Errorf("left behind: %q", left)
		}
		if err := os.RemoveAll(filepath.Join(root, "usr")); err != nil { // empty folders, where tidying up failed
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(root, "usr"), 0o700); err != nil {
			t.Fatal(err)
		}
	})
}

type faulty struct {
	*vfstest.Point
	t      *testing.T
	agent  string
	before map[string][]byte
	whole  map[string][]byte // each file as the run without a fault left it
}

// installer makes the agent again, on a disk.
func (f *faulty) installer(disk vfs.FS) agent.Installer {
	host := agenttest.Host(faultyHome)
	host.FS = disk
	a, _ := ByName(host, f.agent)
	return a.(agent.Installer)
}

func (f *faulty) run(had bool) {
	dir := filepath.Dir(filepath.Join(faultyHome, settings[f.agent].path))
	if !had {
		dir = faultyHome
	}
	if err := vfs.MakeDir(f.Mem, dir); err != nil {
		f.t.Fatal(err)
	}

	if had {
		if err := vfs.Replace(
			f.Mem, filepath.Join(faultyHome, settings[f.agent].path), []byte(settings[f.agent].text),
		); err != nil {
			f.t.Fatal(err)
		}
	}

	f.before = f.files(f.Mem)
	paths := agent.Paths{Hook: faultyHook}
	_, err := f.installer(f.Fault).Install(f.t.Context(), paths, false)
	failed := f.Hear(err) != nil
	if truster, ok := f.installer(f.Fault).(agent.Truster); ok && err == nil {
		failed = f.trust(truster, paths) || failed
	}
	if f.Err == nil {
		maps.Copy(f.whole, f.files(f.Mem))
	}

	f.check(f.Mem, "after install")
	f.crash("after install")
	_, err = f.installer(f.Fault).Uninstall(paths, false)
	failed = f.Hear(err) != nil || failed
	f.check(f.Mem, "after uninstall")
	f.crash("after uninstall")
	if !f.Dies {
		f.back(f.Mem, "once more")
	}
	if f.Err != nil && !failed {
		f.Tell(f.harmless())
	}
}

// trust says that the person trusts the hooks, which are there. Where no error is told it must be so.
func (f *faulty) trust(a agent.Truster, paths agent.Paths) (failed bool) {
	_, err := a.Trust(paths, false)
	if f.Hear(err) != nil {
		return true
	}

	for name, want := range f.whole {
		if got := f.files(f.Mem)[name]; !strings.Contains(name, "/install/") && !bytes.Equal(got, want) {
			f.Errorf("trust told no error: %s is %q, want %q", name, got, want)
		}
	}

	return false
}

// harmless are operations whose failing leaves what it should: an empty folder is tidied up, a file is looked at for a
// hint or to see that it need not be written again.
func (f *faulty) harmless() bool {
	verb, what, _ := strings.Cut(f.Op(), " ")
	switch verb {
	case "readdir", "remove":
		return !strings.Contains(strings.TrimPrefix(what, "."), ".")
	case "open", "read", "lstat":
		return what == "config.toml" || f.agent == "openclaw" && what != "openclaw.json" ||
			f.agent == "opencode" && verb == "lstat"
	}

	return false
}

// crash looks at what a power cut leaves, and takes belay out there.
func (f *faulty) crash(when string) {
	for _, left := range f.Crashes() {
		f.check(left, when+" and a power cut")
		f.back(left, when+" and a power cut")
	}
}

// check wants each file of the user's and the agent's old or new. Belay's own way back is its own.
func (f *faulty) check(disk *vfstest.Mem, when string) {
	for name, got := range f.files(disk) {
		old, was := f.before[name]
		if strings.HasSuffix(name, vfs.TempSuffix) || strings.Contains(name, "/install/") ||
			was && bytes.Equal(got, old) ||
			bytes.Equal(got, f.whole[name]) && f.whole[name] != nil {
			continue
		}
		f.Errorf("%s: %s is half: %q", when, name, got)
	}
	for name := range f.before {
		if _, there := f.files(disk)[name]; !there {
			f.Errorf("%s: %s is gone", when, name)
		}
	}
}

// back takes belay out on a disk that is well: all is as it was before, to the byte.
func (f *faulty) back(disk *vfstest.Mem, when string) {
	if _, err := f.installer(disk).Uninstall(agent.Paths{Hook: faultyHook}, false); err != nil {
		f.Errorf("%s: uninstall: %v", when, err)
	}

	left := f.files(disk)
	for name := range left {
		if strings.Contains(name, "/install/") && strings.HasSuffix(name, vfs.TempSuffix) {
			delete(left, name) // the daemon sweeps it
		}
	}

	if !maps.EqualFunc(left, f.before, bytes.Equal) {
		f.Errorf("%s: after uninstall there is\n%q\nwant\n%q", when, left, f.before)
	}
}

// files are all files of a disk with what is in them.
func (f *faulty) files(disk *vfstest.Mem) map[string][]byte {
	out := map[string][]byte{}
	for line := range strings.Lines(disk.String()) {
		name := line[:strings.LastIndexByte(line, ' ')]
		data, err := vfs.ReadFile(disk, name, 1<<24)
		if err != nil {
			f.t.Fatal(err)
		}
		out[name] = data
	}

	return out
}
