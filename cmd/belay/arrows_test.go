package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list` tells of a package.
type pkg struct {
	ImportPath   string
	Name         string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports,Deps,TestImports,XTestImports", "./...")
	cmd.Dir = moduleRoot(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}

	return dir
}

// below says whether a path is a package or lies below it.
func below(p, top string) bool { return p == top || strings.HasPrefix(p, top+"/") }

// The arrows of the design: cmd -> internal/daemon -> recovery, breaker, watch, heartbeat -> checkpoint. A package may
// not need, through any number of others, what stands above it.
func TestArrows(t *testing.T) {
	never := map[string][]string{
		"belay/checkpoint": {
			"belay/internal/agent",
			"belay/recovery",
			"belay/breaker",
			"belay/watch",
			"belay/heartbeat",
			"belay/internal/daemon",
			"belay/internal/wire",
			"net",
		},
		"belay/breaker": {
			"belay/internal/agent",
			"belay/recovery",
			"belay/watch",
			"belay/heartbeat",
			"belay/internal/daemon",
			"belay/internal/wire",
		},
		"belay/watch": {
			"belay/internal/agent",
			"belay/recovery",
			"belay/breaker",
			"belay/heartbeat",
			"belay/checkpoint",
			"belay/internal/daemon",
			"belay/internal/wire",
		},
		"belay/heartbeat": {
			"belay/internal/agent",
			"belay/recovery",
			"belay/breaker",
			"belay/watch",
			"belay/checkpoint",
			"belay/internal/daemon",
			"belay/internal/wire",
		},
		"belay/recovery": {
			"belay/internal/agent",
			"belay/breaker",
			"belay/watch",
			"belay/heartbeat",
			"belay/internal/daemon",
			"belay/internal/wire",
			"net",
		},
		"belay/internal/state/query": {
			"belay/breaker",
			"belay/watch",
			"belay/heartbeat",
			"belay/internal/daemon",
			"belay/internal/wire",
			"net",
		},
		"belay/internal/agent": {
			"belay/breaker",
			"belay/watch",
			"belay/heartbeat",
			"belay/recovery",
			"belay/internal/daemon",
			"belay/internal/wire",
		},
	}

	seen := map[string]bool{}
	for _, p := range packages(t) {
		for top, list := range never {
			if !below(p.ImportPath, top) {
				continue
			}

			seen[top] = true
			for _, dep := range p.Deps {
				if i := slices.IndexFunc(
					list, func(no string) bool { return below(dep, no) && !below(dep, top) },
				); i >= 0 {
					t.Errorf("%s needs %s: %s may not know of %s", p.ImportPath, dep, top, list[i])
				}
			}
		}

		if p.ImportPath == "belay/checkpoint" {
			for _, imp := range p.Imports {
				if below(imp, "belay/internal") && imp != "belay/internal/vfs" {
					t.Errorf("belay/checkpoint imports %s: it is the bottom", imp)
				}
			}
		}

		for _, imp := range p.Imports {
			// SQLite's library needs net for a libc of its own; our own packages of that side speak to nobody.
			if (imp == "net" || imp == "net/http") &&
				(below(p.ImportPath, "belay/internal/agent") || below(p.ImportPath, "belay/internal/transcript/sqlite")) {
				t.Errorf("%s imports %s: an agent is read from disk alone", p.ImportPath, imp)
			}

			if below(imp, "belay/internal/daemon") && !below(p.ImportPath, "belay/internal/daemon") &&
				!below(p.ImportPath, "belay/cmd") &&
				!below(p.ImportPath, "belay/scripts") {
				t.Errorf("%s imports %s: only programs do", p.ImportPath, imp)
			}

			if below(imp, "belay/cmd") {
				t.Errorf("%s imports %s: a program is no library", p.ImportPath, imp)
			}
		}
	}

	for top := range never {
		if !seen[top] {
			t.Errorf("no package %s: this test holds nothing", top)
		}
	}
}

// The arrows inside the daemon: the life wires socket, session and brief, and none of these knows it. Sessions and
// briefs know no socket, and a session knows no brief.
func TestArrowsInsideTheDaemon(t *testing.T) {
	const daemon = "belay/internal/daemon"
	may := map[string][]string{
		daemon:              {"brief", "session", "socket"},
		daemon + "/brief":   {"session"},
		daemon + "/session": {},
		daemon + "/socket":  {},
	}

	seen := 0
	for _, p := range packages(t) {
		if !below(p.ImportPath, daemon) {
			continue
		}

		list, ok := may[p.ImportPath]
		if !ok {
			t.Errorf("%s has no arrows here: say whom it may know", p.ImportPath)
			continue
		}

		seen++
		for _, dep := range p.Deps {
			if below(dep, daemon) && !slices.Contains(list, strings.TrimPrefix(dep, daemon+"/")) {
				t.Errorf("%s needs %s, which stands above or beside it", p.ImportPath, dep)
			}
			if !below(p.ImportPath, daemon+"/socket") && p.ImportPath != daemon &&
				(dep == "net" && slices.Contains(p.Imports, dep) || dep == "belay/internal/wire") {
				t.Errorf("%s needs %s: it works without a socket", p.ImportPath, dep)
			}
		}
	}

	if seen != len(may) {
		t.Errorf("%d of %d packages are there: this test holds less than it says", seen, len(may))
	}
}

// An agent is a folder and a line in internal/agent/all: nobody else names it.
func TestAgentsAreKnownInOnePlace(t *testing.T) {
	// Both came out of pi: a row of OpenClaw's database is a line of pi's file, and oh-my-pi is pi under another name.
	kin := []string{"belay/internal/agent/openclaw", "belay/internal/agent/ohmypi"}
	agents := 0
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			one, ok := strings.CutPrefix(imp, "belay/internal/agent/")
			if !ok || one == "all" || below(one, "kit") {
				continue
			}

			agents++
			own := "belay/internal/agent/" + strings.SplitN(one, "/", 2)[0]
			if imp == "belay/internal/agent/pi" && slices.Contains(kin, p.ImportPath) {
				continue
			}
			if p.ImportPath != "belay/internal/agent/all" && !below(p.ImportPath, own) {
				t.Errorf("%s imports %s: use the interface", p.ImportPath, imp)
			}
		}
	}

	if agents == 0 {
		t.Error("no agent is imported anywhere: this test holds nothing")
	}
}

// A store is a folder below checkpoint and a line in internal/state: nobody else names it, not even a test, but the
// store's own.
func TestStoresAreKnownInOnePlace(t *testing.T) {
	stores := 0
	for _, p := range packages(t) {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			one, ok := strings.CutPrefix(imp, "belay/checkpoint/")
			if !ok || one == "journal" || one == "storetest" {
				continue
			}

			stores++
			if p.ImportPath != "belay/internal/state" && !below(p.ImportPath, imp) {
				t.Errorf("%s imports %s: use state.Dir.OpenStore", p.ImportPath, imp)
			}
		}
	}

	if stores == 0 {
		t.Error("no store is imported anywhere: this test holds nothing")
	}
}

// An agent knows of the machine what it is handed (agent.Host), so that the state folder and the home are decided once.
func TestAgentsReadNoEnvironment(t *testing.T) {
	calls := regexp.MustCompile(
		`\bos\.(Getenv|LookupEnv|Environ|ExpandEnv|UserHomeDir|UserConfigDir|UserCacheDir)\b|\bexec\.LookPath\b`,
	)
	read := 0
	err := filepath.WalkDir(
		filepath.Join(moduleRoot(t), "internal", "agent"),
		func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			if found := calls.Find(text); found != nil {
				t.Errorf("%s calls %s: use agent.Host", path, found)
			}

			read++
			return err
		},
	)

	if err != nil || read < 50 {
		t.Errorf("%d files were read (%v): this test holds nothing", read, err)
	}
}

// Each outside library lives in one package, so that it can be replaced there.
func TestLibrariesLiveInOnePackage(t *testing.T) {
	homes := map[string][]string{
		"github.com/sony/gobreaker":     {"belay/breaker"},
		"github.com/fsnotify/fsnotify":  {"belay/watch"},
		"github.com/robfig/cron":        {"belay/heartbeat"},
		"go.yaml.in/yaml":               {"belay/internal/config"},
		"github.com/spf13/cobra":        {"belay/cmd/belay"},
		"filippo.io/age":                {"belay/internal/state/mirror"},
		"gopkg.in/natefinch/lumberjack": {"belay/cmd/belay"},
		// some agents compress their transcripts
		"github.com/klauspost/compress": {"belay/internal/state/mirror", "belay/internal/agent"},
		// both sides of the one lock
		"github.com/gofrs/flock": {"belay/internal/daemon", "belay/internal/wire/intake"},
		// programs with a screen
		"github.com/schollz/progressbar": {"belay/cmd/belay", "belay/scripts"},
		// how wide a text is on a screen
		"github.com/rivo/uniseg": {"belay/cmd/belay"},
		// likewise; the last puts back a killed agent's modes
		"golang.org/x/term": {"belay/cmd/belay", "belay/scripts", "belay/internal/host/run"},
		// the log is built in one place
		"go.uber.org/zap/zapcore": {"belay/cmd/belay"},
		// *zap.Logger may appear anywhere
		"go.uber.org/zap": {"belay"},
		// the system's own calls
		"golang.org/x/sys": {"belay"},
		// one leaf, if it comes
		"github.com/prometheus": {"belay/internal/metrics"},
		// a store, agents' databases, the index
		"modernc.org/sqlite": {"belay/checkpoint", "belay/internal/transcript/sqlite", "belay/internal/state/index"},
		// Codex's settings
		"github.com/BurntSushi/toml":   {"belay/internal/agent"},
		"github.com/coreos/go-systemd": {"belay/cmd/belay", "belay/internal/daemon"},
	}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
				continue
			}

			lib := ""
			for name := range homes { // the longest that fits
				if (below(imp, name) || strings.HasPrefix(imp, name+".")) && len(name) > len(lib) {
					lib = name
				}
			}

			if lib == "" {
				t.Errorf("%s imports %s, which has no home here: choose its package", p.ImportPath, imp)
				continue
			}
			if !slices.ContainsFunc(homes[lib], func(home string) bool { return below(p.ImportPath, home) }) {
				t.Errorf("%s imports %s, which lives in %v", p.ImportPath, imp, homes[lib])
			}
		}
	}
}

// The top level is fixed, and no package is a drawer for everything.
func TestNamesOfPackages(t *testing.T) {
	drawers := []string{
		"util",
		"utils",
		"common",
		"helper",
		"helpers",
		"types",
		"core",
		"models",
		"manager",
		"misc",
		"shared",
	}

	for _, p := range packages(t) {
		if slices.Contains(drawers, path.Base(p.ImportPath)) || slices.Contains(drawers, p.Name) {
			t.Errorf("%s: a name that says nothing", p.ImportPath)
		}
	}

	top := []string{
		"breaker",
		"checkpoint",
		"cmd",
		"docs",
		"heartbeat",
		"internal",
		"recovery",
		"scripts",
		"watch",
		"go.mod",
		"go.sum",
		"README.md",
		"LICENSE",
		"SECURITY.md",
		"CHANGELOG.md",
		"bin",
		"dist",
	} // the last two are built

	entries, err := os.ReadDir(moduleRoot(t))
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(top, e.Name()) {
			t.Errorf("%s at the top level: it is fixed", e.Name())
		}
	}
}
