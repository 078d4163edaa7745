package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/settings.md's table where the file has one")

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, opt Options) *Config {
	t.Helper()
	c, err := Load(opt)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// defaults gives the settings without any file, variable or flag.
func defaults(t *testing.T) Settings {
	t.Helper()
	return load(t, Options{Strict: true}).Settings
}

// lookup gives a function like os.Getenv over a list like os.Environ's.
func lookup(environ []string) func(string) string {
	return func(name string) string {
		value := ""
		for _, line := range environ {
			if v, ok := strings.CutPrefix(line, name+"="); ok {
				value = v
			}
		}
		return value
	}
}

func TestDefaults(t *testing.T) {
	s := defaults(t)
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"state_dir", s.StateDir, ""},
		{"gates.sparse.time", s.Gates.Sparse.Time, 5 * time.Minute},
		{"gates.sparse.rounds", s.Gates.Sparse.Rounds, 5},
		{"gates.full.time", s.Gates.Full.Time, 5 * time.Minute},
		{"gates.forced.time", s.Gates.Forced.Time, time.Second},
		{"heartbeat.every", s.Heartbeat.Every, "@every 30m"},
		{"breaker.failures", s.Breaker.Failures, 3},
		{"breaker.pause", s.Breaker.Pause, 30 * time.Second},
		{"breaker.max_pause", s.Breaker.MaxPause, 10 * time.Minute},
		{"breaker.heal", s.Breaker.Heal, "auto"},
		{"recovery.adopt", s.Recovery.Adopt, "auto"},
		{"recovery.max_bytes", s.Recovery.MaxBytes, 9000},
		{"recovery.delta_bytes", s.Recovery.DeltaBytes, 2048},
		{"recovery.max_messages", s.Recovery.MaxMessages, 5},
		{"recovery.roles", strings.Join(s.Recovery.Roles, " "), "assistant"},
		{"recovery.window", s.Recovery.Window, 24 * time.Hour},
		{"retention.count", s.Retention.Count, 50},
		{"retention.bytes", s.Retention.Bytes, Size(64 << 20)},
		{"retention.age", s.Retention.Age, 30 * 24 * time.Hour},
		{"retention.total_bytes", s.Retention.TotalBytes, Size(2 << 30)},
		{"spool.bytes", s.Spool.Bytes, Size(64 << 20)},
		{"spool.age", s.Spool.Age, 7 * 24 * time.Hour},
		{"journal.segment", s.Journal.Segment, Size(16 << 20)},
		{"journal.memory", s.Journal.Memory, Size(4 << 20)},
		{"mirror", s.Mirror, "redacted"},
		{"watch.notify", s.Watch.Notify, true},
		{"watch.poll", s.Watch.Poll, time.Second},
		{"watch.poll_max", s.Watch.PollMax, 30 * time.Second},
		{"worktree.enabled", s.Worktree.Enabled, true},
		{"log.level", s.Log.Level, "info"},
		{"log.bytes", s.Log.Bytes, Size(10 << 20)},
		{"log.files", s.Log.Files, 3},
		{"idle.exit", s.Idle.Exit, time.Hour},
		{"limits.connections", s.Limits.Connections, 512},
		{"limits.sessions_per_minute", s.Limits.SessionsPerMinute, 5000},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}

	if n := len(fields()); n != 35 {
		t.Errorf("%d settings, want 35: the table above must hold each", n)
	}
}

func TestPrecedence(t *testing.T) {
	const key, env = "breaker.failures", "BELAY_BREAKER_FAILURES"
	path := file(t, "breaker:\n  failures: 4\n")
	for _, c := range []struct {
		name   string
		opt    Options
		want   int
		origin string
	}{
		{"nothing", Options{}, 3, "default"},
		{"file", Options{File: path}, 4, path},
		{"file and environment", Options{File: path, Env: []string{env + "=5"}}, 5, env},
		{"all", Options{File: path, Env: []string{env + "=5"}, Flags: map[string]string{key: "6"}}, 6, "flag"},
		{"file and flag", Options{File: path, Flags: map[string]string{key: "6"}}, 6, "flag"},
		{"the last of a variable's two values", Options{Env: []string{env + "=5", env + "=7"}}, 7, env},
		{"an empty variable is not set", Options{File: path, Env: []string{env + "="}}, 4, path},
		{"a file that is not there", Options{File: path + "-not"}, 3, "default"},
		{"a bad variable does not hide the file", Options{File: path, Env: []string{env + "=many"}}, 4, path},
	} {
		got := load(t, c.opt)
		if got.Breaker.Failures != c.want || got.origins[key] != c.origin {
			t.Errorf(
				"%s: %d from %q, want %d from %q", c.name, got.Breaker.Failures, got.origins[key], c.want,
				c.origin,
			)
		}
	}
}

func TestForms(t *testing.T) {
	c := load(t, Options{Strict: true, File: file(t, `
state_dir: /srv/belay/
gates.full.time: 90s        # with dots
gates: {sparse: {time: 1d12h, rounds: 7}, full: }
retention: {bytes: 128 mb, age: 2w, total_bytes: 3145728000}
recovery:
  roles: [user, assistant]
  max_bytes: 1e3
mirror: off
log: {level: }
heartbeat: {every: "*/5 * * * *"}
`), Env: []string{
		"BELAY_SPOOL_BYTES=1MiB", "BELAY_WATCH_NOTIFY=false", "PATH=/bin", "BELAY_SESSION=x", "BELAY_CONFIG=x",
		"BELAY_INTERNAL=1", "BELAY_OTHER_THING=1",
	}})
	for _, v := range []struct {
		key, want string
		got       any
	}{
		{"state_dir", "/srv/belay/", c.Settings.StateDir},
		{"gates.full.time", "1m30s", c.Gates.Full.Time},
		{"gates.sparse.time", "36h0m0s", c.Gates.Sparse.Time},
		{"gates.sparse.rounds", "7", c.Gates.Sparse.Rounds},
		{"retention.bytes", "128MB", c.Retention.Bytes},
		{"retention.age", "336h0m0s", c.Retention.Age},
		{"retention.total_bytes", "3000MB", c.Retention.TotalBytes},
		{"recovery.roles", "user assistant", strings.Join(c.Recovery.Roles, " ")},
		{"recovery.max_bytes", "1000", c.Recovery.MaxBytes},
		{"mirror", "off", c.Mirror},
		{"log.level", "info", c.Log.Level},
		{"heartbeat.every", "*/5 * * * *", c.Heartbeat.Every},
		{"spool.bytes", "1MB", c.Spool.Bytes},
		{"watch.notify", "false", c.Watch.Notify},
	} {
		if got := text2(v.got); got != v.want {
			t.Errorf("%s = %s, want %s", v.key, got, v.want)
		}
	}
}

func text2(v any) string {
	if d, ok := v.(time.Duration); ok {
		return d.String()
	}
	return text(v)
}

// Every value that `belay config` prints can be put into the file.
func TestValuesReadBack(t *testing.T) {
	first := load(t, Options{Env: []string{"BELAY_GATES_FULL_TIME=49h30m", "BELAY_STATE_DIR=/a b/c"}})
	flags := make(map[string]string)
	for _, v := range first.Values() {
		if v.Help == "" || v.Allowed == "" || v.Origin == "" || !strings.HasSuffix(v.Help, ".") {
			t.Errorf("%+v: want help that ends with a full stop, allowed and origin", v)
		}
		if v.Value != "" {
			flags[v.Key] = v.Value
		}
	}

	second := load(t, Options{Flags: flags, Strict: true})
	if !reflect.DeepEqual(first.Settings, second.Settings) {
		t.Errorf("read back %+v, want %+v", second.Settings, first.Settings)
	}
}

// A retention value that does not parse once stopped all cleaning. Here it is named, its default is used, the rest goes
// on.
func TestT15BadRetention(t *testing.T) {
	path := file(t, "retention:\n  age: 1Y\n  count: 7\nbreaker:\n  failures: 9\n")
	c := load(t, Options{File: path})
	if c.Retention.Age != 30*24*time.Hour || c.origins["retention.age"] != OriginDefault {
		t.Errorf("retention.age = %v from %s, want the default", c.Retention.Age, c.origins["retention.age"])
	}

	if c.Retention.Count != 7 || c.Breaker.Failures != 9 || c.File != path {
		t.Errorf(
			"count %d, failures %d, file %q: want 7, 9 and the file", c.Retention.Count, c.Breaker.Failures,
			c.File,
		)
	}

	want := `retention.age: "1Y" (` + path + `) is not a duration: must be a duration such as 30s, 5m, 12h, 30d or 2w, at least 1h`
	if len(c.Warnings) != 1 || c.Warnings[0].Error() != want {
		t.Errorf("warnings %q, want one: %s", c.Warnings, want)
	}
	if _, err := Load(Options{File: path, Strict: true}); err == nil || err.Error() != want {
		t.Errorf("strict: %v, want %s", err, want)
	}
}

// One of each kind of fault, told in one go.
func TestAllFaultsAtOnce(t *testing.T) {
	path := file(t, `
gates: {spars: {time: 5m}, full: 5m, sparse: {rounds: 0}}
retention.age: 1Y
retention: {age: 2d, bytes: 64ZB, total_bytes: 9999999999GB}
breaker: {pause: 20m, heal: maybe, failures: [1, 2]}
recovery: {roles: [assistant, robot], max_bytes: 199}
watch: {notify: often}
nonsense: {a: {b: 1}}
log: {level: "in\u0007fo"}
`)

	opt := Options{
		File:   path,
		Strict: true,
		Env: []string{
			"BELAY_STATE_DIR=rel/ative",
			"BELAY_IDLE_EXITT=1h",
			"BELAY_GATES_X=1",
			"BELAY_HEARTBEAT_EVERY=sometimes",
		},
		Flags: map[string]string{"limits.conections": "5", "limits.connections": "-5"},
	}

	wanted := []string{
		"breaker.failures: is not one value (" + path + "): must be a whole number, at least 1",
		`breaker.heal: "maybe" (` + path + `) is none of the choices: must be auto or manual`,
		"gates.full: is a section (" + path + "): must hold keys, such as gates.full.time",
		"gates.spars: unknown key (" + path + "): did you mean gates.sparse?",
		`gates.sparse.rounds: "0" (` + path + `) is too small: must be a whole number, at least 1`,
		"log.level: ",
		"nonsense: unknown key (" + path + "): see belay config for all keys",
		`recovery.max_bytes: "199" (` + path + `) is too small`,
		`recovery.roles: "assistant,robot" (` + path + `) holds "robot": must be a list of assistant, user`,
		`retention.bytes: "64ZB" (` + path + `) is not a size`,
		`retention.total_bytes: "9999999999GB" (` + path + `) is too big`,
		"retention.age: is given twice (" + path + ")",
		`watch.notify: "often" (` + path + `) is not true or false`,
		"BELAY_GATES_X: unknown key (environment)",
		`heartbeat.every: "sometimes" (BELAY_HEARTBEAT_EVERY) is not a cron line`,
		"BELAY_IDLE_EXITT: unknown key (environment): did you mean BELAY_IDLE_EXIT?",
		`state_dir: "rel/ative" (BELAY_STATE_DIR) is not absolute: must be an absolute path`,
		"limits.conections: unknown key (flag): did you mean limits.connections?",
		`limits.connections: "-5" (flag) is too small: must be a whole number, at least 8`,
		"breaker.pause: 20m (" + path + ") is more than breaker.max_pause, 10m (default): must be at most breaker.max_pause",
	}

	check := func(t *testing.T, got string, wanted []string) {
		t.Helper()
		if lines := strings.Split(got, "\n"); len(lines) != len(wanted) {
			t.Errorf("%d faults, want %d:\n%s", len(lines), len(wanted), got)
		}

		for _, w := range wanted {
			if !strings.Contains("\n"+got, "\n"+w) {
				t.Errorf("no fault %q in:\n%s", w, got)
			}
		}
	}

	c, err := Load(opt)
	if err == nil || c != nil {
		t.Fatalf("strict: %v, %v; want nothing but an error", c, err)
	}

	check(t, err.Error(), wanted)

	// At the daemon's start only the flags stand in the way.
	opt.Strict = false
	if _, err := Load(opt); err == nil || strings.Count(err.Error(), "\n") != 1 || strings.Contains(err.Error(), path) {
		t.Errorf("lenient, with bad flags: %v; want the two flags", err)
	}

	opt.Flags = nil
	c = load(t, opt)
	check(t, errors.Join(c.Warnings...).Error(), append(wanted[:17:17], wanted[19]))

	// What was good in the file goes on; retention.age came twice, and the first of them is 2d, from the section.
	want := defaults(t)
	want.Retention.Age = c.Retention.Age
	if !reflect.DeepEqual(c.Settings, want) {
		t.Errorf("settings %+v, want the defaults", c.Settings)
	}
}

func TestBadFile(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		opt  Options
		want string
	}{
		{"no YAML", Options{File: file(t, "a: b: c:\n\t-")}, "must be YAML"},
		{"a list", Options{File: file(t, "- a\n- b\n")}, "must be YAML"},
		{"given twice in one section", Options{File: file(t, "log: {level: info}\nlog: {files: 2}\n")}, "already defined"},
		{"too big", Options{File: file(t, "# "+strings.Repeat("x", maxFile))}, "larger than"},
		{"a folder", Options{File: dir}, "must be a readable file"},
		{"not there though asked for", Options{File: filepath.Join(dir, "x"), MustExist: true}, "must be a readable file"},
		{"a key that is no text", Options{File: file(t, "log: {1: 2, true: 3}\n")}, "log.1: unknown key"},
	} {
		lenient := load(t, c.opt)
		if len(lenient.Warnings) == 0 || !strings.Contains(errors.Join(lenient.Warnings...).Error(), c.want) {
			t.Errorf("%s: warnings %v, want %q", c.name, lenient.Warnings, c.want)
		}
		if !reflect.DeepEqual(lenient.Settings, defaults(t)) {
			t.Errorf("%s: settings %+v, want the defaults", c.name, lenient.Settings)
		}

		c.opt.Strict = true
		if _, err := Load(c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: strict %v, want %q", c.name, err, c.want)
		}
	}

	for _, empty := range []string{"", "\n", "# nothing\n", "---\n", "null\n", "gates:\n"} {
		if _, err := Load(Options{File: file(t, empty), Strict: true}); err != nil {
			t.Errorf("%q: %v, want the defaults", empty, err)
		}
	}
}

func TestFurtherCheck(t *testing.T) {
	check := map[string]func(string) error{"heartbeat.every": func(v string) error {
		if v == "* * * * 99" {
			return errors.New("has no 99th day of the week")
		}
		return nil
	}}

	c := load(t, Options{Env: []string{"BELAY_HEARTBEAT_EVERY=* * * * 99"}, Check: check})
	if c.Heartbeat.Every != "@every 30m" || len(c.Warnings) != 1 ||
		!strings.Contains(c.Warnings[0].Error(), "99th day") {
		t.Errorf("%q with warnings %v, want the default and the check's words", c.Heartbeat.Every, c.Warnings)
	}
}

func TestPairsGoBackTogether(t *testing.T) {
	path := file(t, "watch: {poll_max: 500ms}\n") // less than the default of watch.poll
	c := load(t, Options{File: path})
	var fault *Fault
	if len(c.Warnings) != 1 || !errors.As(c.Warnings[0], &fault) || fault.Origin != path {
		t.Fatalf("warnings %v, want one that names the file", c.Warnings)
	}
	if c.Watch.Poll != time.Second || c.Watch.PollMax != 30*time.Second ||
		c.origins["watch.poll_max"] != OriginDefault {
		t.Errorf("poll %v up to %v, want the defaults", c.Watch.Poll, c.Watch.PollMax)
	}
	if _, err := Load(Options{Flags: map[string]string{"watch.poll_max": "500ms"}}); err == nil {
		t.Error("a flag that does not fit: no error")
	}
}

func TestBinDir(t *testing.T) {
	for env, want := range map[string]string{
		"HOME=/h": "/h/.local/share/belay/bin", "XDG_DATA_HOME=/d": "/d/belay/bin", "HOME=.": "",
		"XDG_DATA_HOME=d": "",
	} {
		if got := BinDir(lookup([]string{env})); got != want {
			t.Errorf("%s: %q, want %q", env, got, want)
		}
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   []string
		state string // "" is an error
		file  string
		must  bool
	}{
		{"home", []string{"HOME=/h"}, "/h/.local/state/belay", "/h/.config/belay/config.yaml", false},
		{"xdg", []string{
			"HOME=/h", "XDG_STATE_HOME=/s", "XDG_CONFIG_HOME=/c",
		}, "/s/belay", "/c/belay/config.yaml", false},
		{"relative xdg counts as not set", []string{
			"HOME=/h", "XDG_STATE_HOME=s", "XDG_CONFIG_HOME=./c",
		}, "/h/.local/state/belay", "/h/.config/belay/config.yaml", false},
		{"own", []string{"HOME=/h", "BELAY_STATE_DIR=/x//y/../z/", "BELAY_CONFIG=/f.yaml"}, "/x/z", "/f.yaml", true},
		{"nothing", nil, "", "", false},
		{"relative home", []string{"HOME=."}, "", "", false},
		{"relative own", []string{"HOME=/h", "BELAY_STATE_DIR=x"}, "", "/h/.config/belay/config.yaml", false},
	} {
		getenv := lookup(c.env)
		if got, err := StateDir(getenv("BELAY_STATE_DIR"), getenv); got != c.state || (err != nil) != (c.state == "") {
			t.Errorf("%s: state folder %q, %v; want %q", c.name, got, err, c.state)
		}
		if got, must := FilePath(getenv); got != c.file || must != c.must {
			t.Errorf("%s: settings file %q, must exist %v; want %q, %v", c.name, got, must, c.file, c.must)
		}
	}
}

// markdown is the table of all settings for docs/settings.md.
func markdown() string {
	var b strings.Builder
	b.WriteString("| key | default | environment | meaning |\n| --- | --- | --- | --- |\n")
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	for _, f := range fields() {
		def := "`" + text(f.def) + "`"
		if text(f.def) == "" {
			def = "(empty)"
		}

		fmt.Fprintf(
			&b, "| `%s` | %s | `%s` | %s Allowed: %s. |\n", f.key, def, f.env, cell.Replace(f.help),
			cell.Replace(f.allowed()),
		)
	}

	return b.String()
}

// docs/settings.md holds the table.
func TestMarkdown(t *testing.T) {
	table := markdown()
	if n := strings.Count(table, "\n"); n != len(fields())+2 {
		t.Errorf("%d lines, want one for each setting and two for the head", n)
	}

	for _, want := range []string{
		"| `gates.sparse.time` | `5m` | `BELAY_GATES_SPARSE_TIME` |", "| `state_dir` | (empty) |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}

	page := filepath.Join("..", "..", "docs", "settings.md")
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(old), table) {
		return
	}

	head, rest, ok := strings.Cut(string(old), "| key |")
	_, tail, more := strings.Cut(rest, "\n\n")
	if !*update || !ok {
		t.Fatalf("docs/settings.md does not hold the table of markdown(); run this test with -update")
	}
	if more {
		tail = "\n" + tail
	}
	if err := os.WriteFile(page, []byte(head+table+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("gates: {sparse: {time: 5m}}\nretention.age: 1Y\n"), "BELAY_LOG_LEVEL=debug", "64MB")
	f.Add([]byte("a: &a [*a]\n"), "BELAY_=", "")
	f.Add([]byte("log: {? [x] : y}\nretention: !!binary aGk="), "x", "-1")
	f.Add([]byte("gates: !!set {a, b}\n2001-01-01: 1\nlog: {level: 2001-01-01}"), "BELAY_STATE_DIR=/\x00", "9w9d9h")
	f.Fuzz(func(t *testing.T, data []byte, env, value string) {
		l := newLoader(
			Options{Env: []string{env}, Flags: map[string]string{"retention.age": value, "spool.bytes": value}},
		)
		l.layerDefaults()
		l.layerYAML(data, "file")
		l.layerEnv()
		l.layerFlags()
		l.checkPairs()
		for _, fault := range l.faults {
			if fault.Key == "" || fault.What == "" || fault.Allowed == "" || len(fault.Key) > 300 {
				t.Errorf("fault without words, or with too many: %q", fault.Error())
			}
		}

		for _, f := range l.fields {
			v := l.values[f.key]
			if reflect.TypeOf(v) != reflect.TypeOf(f.zero) {
				t.Fatalf("%s = %#v, want a %T", f.key, v, f.zero)
			}

			back, err := f.parse(text(v))
			if err != nil && text(v) != "" || err == nil && !reflect.DeepEqual(back, v) {
				t.Errorf("%s: %#v prints as %q and reads back as %#v, %v", f.key, v, text(v), back, err)
			}
		}

		c := l.config()
		if c.Log.Level != l.values["log.level"] || c.Retention.Age != l.values["retention.age"] ||
			c.Spool.Bytes != l.values["spool.bytes"] {
			t.Errorf("settings %+v, want those of %v", c.Settings, l.values)
		}
	})
}
