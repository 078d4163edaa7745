// Package config finds the settings: defaults, then the file, then the environment, then flags; the later wins. Every
// value knows where it came from.
//
// Promised: every fault is found in one go and names key, place and what is allowed; a strict Load is all or nothing; a
// lenient one (the start of the daemon) always gives settings, with a warning and the next lower layer's value for each
// fault, so that a bad line never keeps an agent without its rope. A bad flag is an error in both: somebody just typed
// it.
//
// Not promised: that folders exist or can be written. Nothing is opened but the settings file.
package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
)

// Origins of a value beside the file's path and the name of a variable.
const (
	OriginDefault = "default"
	OriginFlag    = "flag"
)

// Options say where settings come from.
type Options struct {
	// File is the settings file (see FilePath); empty means none. A file that is not there is a fault only when
	// MustExist is set.
	File      string
	MustExist bool
	Env       []string          // as os.Environ gives it; an empty value counts as not set
	Flags     map[string]string // key to value
	// Strict turns every fault into an error: `belay config --check` and reloading.
	Strict bool
	// Check are further checks of a value's text by key, by packages that know more: the cron line. The error says what
	// is wrong in words that fit after the value.
	Check map[string]func(value string) error
}

// Fault is one thing that is wrong with the settings.
type Fault struct {
	Key     string // as it was given
	Origin  string // file path, name of a variable, "flag"
	What    string
	Allowed string
}

func (f *Fault) Error() string { return f.Key + ": " + f.What + ": " + f.Allowed }

// Config is the result of Load.
type Config struct {
	Settings
	// File is the file that was read; empty when there was none.
	File string
	// Warnings are the faults that were passed over, each a *Fault.
	Warnings []error

	values  map[string]any
	origins map[string]string
}

// Value is one setting for printing.
type Value struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // in the file's form
	Origin  string `json:"origin"`
	Default string `json:"default"`
	Env     string `json:"env"`
	Help    string `json:"help"`
	Allowed string `json:"allowed"`
}

// Load finds the settings. See the package comment for what is an error.
func Load(opt Options) (*Config, error) {
	l := newLoader(opt)
	l.layerDefaults()
	file, read := l.layerFile()
	l.layerEnv()
	l.layerFlags()
	l.checkPairs()

	var errs, warnings []error
	for _, f := range l.faults {
		if opt.Strict || f.Origin == OriginFlag {
			errs = append(errs, f)
		} else {
			warnings = append(warnings, f)
		}
	}

	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	c := l.config()
	c.Warnings = warnings
	if read {
		c.File = file
	}

	return c, nil
}

// config fills the struct from the values, which are of the right types.
func (l *loader) config() *Config {
	c := &Config{values: l.values, origins: l.origins}
	settings := reflect.ValueOf(&c.Settings).Elem()
	for _, f := range l.fields {
		settings.FieldByIndex(f.index).Set(reflect.ValueOf(l.values[f.key]))
	}
	return c
}

// Values gives all settings in the order of the struct.
func (c *Config) Values() []Value {
	var all []Value
	for _, f := range fields() {
		all = append(all, Value{
			Key: f.key, Value: text(c.values[f.key]), Origin: c.origins[f.key], Default: text(f.def), Env: f.env,
			Help: f.help, Allowed: f.allowed(),
		})
	}

	return all
}

// KeyDir is the folder of the key with which exact mirrors are encrypted: beside the settings, not beside what it
// opens. Empty when there is no home.
func KeyDir(getenv func(string) string) string {
	base := xdg(getenv, "XDG_CONFIG_HOME", ".config")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "belay", "keys")
}

// BinDir is where the programs are copied to for hooks: $XDG_DATA_HOME/belay/bin, else ~/.local/share/belay/bin; empty
// when there is no home. It is so on macOS, too: the folder that is usual there has a space in its name, and hooks are
// shell commands.
func BinDir(getenv func(string) string) string {
	base := xdg(getenv, "XDG_DATA_HOME", ".local/share")
	if base == "" {
		return ""
	}
	return filepath.Join(base, "belay", "bin")
}

// FilePath is the place of the settings file: BELAY_CONFIG (then it must exist), else
// $XDG_CONFIG_HOME/belay/config.yaml, else ~/.config/belay/config.yaml; empty when there is no home.
func FilePath(getenv func(string) string) (path string, mustExist bool) {
	if p := getenv("BELAY_CONFIG"); p != "" {
		return filepath.Clean(p), true
	}

	base := xdg(getenv, "XDG_CONFIG_HOME", ".config")
	if base == "" {
		return "", false
	}

	return filepath.Join(base, "belay", "config.yaml"), false
}

// StateDir is the state folder. Setting is the value of state_dir after Load, which has BELAY_STATE_DIR in it; empty
// means $XDG_STATE_HOME/belay, else ~/.local/state/belay. belay-hook keeps the same rule without the file: it calls
// nothing, but StateDir(getenv("BELAY_STATE_DIR"), getenv) must agree with it.
func StateDir(setting string, getenv func(string) string) (string, error) {
	if setting != "" {
		if !filepath.IsAbs(setting) {
			return "", fmt.Errorf("find state folder: %q is not absolute", setting)
		}
		return filepath.Clean(setting), nil
	}

	base := xdg(getenv, "XDG_STATE_HOME", ".local/state")
	if base == "" {
		return "", errors.New("find state folder: none of BELAY_STATE_DIR, XDG_STATE_HOME and HOME is an absolute path")
	}

	return filepath.Join(base, "belay"), nil
}

// xdg is a base folder of the XDG rules, by which a relative value counts as not set.
func xdg(getenv func(string) string, name, below string) string {
	if dir := getenv(name); filepath.IsAbs(dir) {
		return dir
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, below)
	}
	return ""
}
