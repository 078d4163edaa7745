package agent

import (
	"path/filepath"

	"belay/internal/vfs"
)

// Host is what an agent may know of the machine. The program finds these facts out once and hands them to every agent,
// so that no agent reads the environment by itself. The zero Host is a machine of which nothing is known: transcripts
// can be read there, nothing can be installed.
type Host struct {
	Home  string // the user's home folder; empty when none is known
	State string // belay's state folder; empty when none is known
	FS    vfs.FS // the disk that Install, Uninstall and Trust write to
	// gives a variable of the environment, empty when it is not set; nil when there are none
	Env func(name string) string
}

// Var gives a variable of the environment, empty when it is not set.
func (h Host) Var(name string) string {
	if h.Env == nil {
		return ""
	}
	return h.Env(name)
}

// Dir is the absolute folder that a variable names. A relative one would mean another folder in each workspace: it
// counts as not set, and the answer is empty.
func (h Host) Dir(variable string) string {
	if dir := h.Var(variable); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return ""
}

// Below is a place below the user's home folder; empty when there is no home.
func (h Host) Below(names ...string) string {
	if h.Home == "" {
		return ""
	}
	return filepath.Join(append([]string{h.Home}, names...)...)
}
