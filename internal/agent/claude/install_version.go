package claude

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"belay/internal/agent/kit/settings"
	"belay/internal/lazyre"
)

// version of Claude Code.
type version [3]int

// Versions at which hook settings changed.
var (
	execForm      = version{2, 1, 139} // "args": the program is started without a shell
	namesForgiven = version{2, 1, 101} // an unknown event name no longer spoils the whole file
)

var versionForm = lazyre.New(`\b(\d{1,6})\.(\d{1,6})\.(\d{1,6})\b`)

// parseVersion takes the first x.y.z out of a text.
func parseVersion(s string) (version, bool) {
	m := versionForm().FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}

	var v version
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // six digits always fit
	}

	return v, true
}

func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

func (v version) String() string {
	return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) + "." + strconv.Itoa(v[2])
}

// Present says whether Claude Code is on this machine: its program is on the PATH or its config home exists. The
// version is told where the installation names it; nothing is run for it.
func (a *Agent) Present() (string, bool) {
	program, ok := settings.FindProgram(a.path, "claude", nil)
	if v, known := a.installedVersion(program); ok && known {
		return v.String(), true
	}
	_, err := os.Stat(a.home)
	return "", ok || a.home != "" && err == nil
}

// installedVersion reads the version off the installation: the native installer names the program by it, npm has a
// package.json beside or above it.
func (a *Agent) installedVersion(program string) (version, bool) {
	if v, ok := parseVersion(filepath.Base(program)); ok {
		return v, true
	}
	mine := func(pkg string) bool { return strings.HasSuffix(pkg, "/claude-code") }
	text, _ := settings.PackageVersion(a.fsys, program, mine)
	return parseVersion(text)
}

// askVersion finds the version for Install and Check, in the last resort by running "claude --version". That starts no
// session; the mark keeps belay's own hook out of it all the same.
func (a *Agent) askVersion(ctx context.Context) (version, bool) {
	program, ok := settings.FindProgram(a.path, "claude", nil)
	if !ok {
		return version{}, false
	}
	if v, ok := a.installedVersion(program); ok {
		return v, true
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = append(cmd.Environ(), "BELAY_INTERNAL=1")
	cmd.WaitDelay = 500 * time.Millisecond // a child that holds the pipe open does not hold us
	out, err := cmd.Output()
	if err != nil {
		return version{}, false // not known: the form that every version reads is written
	}

	return parseVersion(string(out))
}
