package claude

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/vfs"
)

// Check says what is wrong with the wiring, one finding each.
func (a *Agent) Check(ctx context.Context, p agent.Paths) []string {
	var found []string
	if info, err := os.Stat(p.Hook); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		found = append(found, fmt.Sprintf("%s is no program that can be started", p.Hook))
	}
	found = append(found, a.checkManaged()...)
	s, err := a.readSettings()
	switch {
	case err != nil:
		return append(found, err.Error())
	case !s.Exists:
		return append(found, fmt.Sprintf("%s is not there: no hook is installed", s.Path))
	}
	if _, err := hooks().Handlers(s.Text, ""); err != nil {
		return append(found, fmt.Sprintf("%s: %v", s.Path, err))
	}
	if flagOf(s.Text, "disableAllHooks") {
		found = append(found, fmt.Sprintf("%s: disableAllHooks is on: no hook runs", s.Path))
	}
	v, known := a.askVersion(ctx)
	want := wanted(p, v, known)
	for _, e := range hookEvents() {
		if g, ok := want[e.name]; ok {
			found = append(found, checkEvent(s.Text, e.name, g, p)...)
		}
	}
	return found
}

// checkEvent compares an event's hooks with what belay would write. Either form is right: a file may be shared by
// machines with different versions.
func checkEvent(text []byte, event string, want group, p agent.Paths) []string {
	own, err := hooks().Handlers(text, event)
	if err != nil {
		return []string{err.Error()}
	}
	switch len(own) {
	case 0:
		return []string{event + ": hook is missing"}
	case 1:
	default:
		return []string{fmt.Sprintf("%s: hook is there %d times", event, len(own))}
	}
	raw := own[0].Text
	var found []string
	argv, _ := argvOf(raw)
	if argv[0] != p.Hook {
		found = append(found, fmt.Sprintf("%s: hook starts %s, not %s", event, argv[0], p.Hook))
	}
	if got := argv[len(argv)-1]; got != event {
		found = append(found, fmt.Sprintf("%s: hook reports the event as %s", event, got))
	}
	var h struct{ Timeout *float64 }
	if json.Unmarshal(raw, &h) != nil || h.Timeout == nil {
		found = append(found, event+": hook has no timeout")
	} else if most := float64(want.Hooks[0].Timeout); *h.Timeout > most {
		found = append(found, fmt.Sprintf("%s: hook's timeout is %g seconds, more than %g", event, *h.Timeout, most))
	}
	var g struct{ Matcher string }
	// A matcher of another type is as wrong as a narrow one.
	if err := json.Unmarshal(own[0].GroupText, &g); err != nil || g.Matcher != want.Matcher && g.Matcher != "" && g.Matcher != "*" {
		found = append(found, fmt.Sprintf("%s: hook's matcher %q leaves calls out", event, g.Matcher))
	}
	return found
}

// checkManaged looks at the administrator's settings, which win over the user's.
func (a *Agent) checkManaged() []string {
	text, err := vfs.ReadFile(a.fsys, a.managed, maxSettings)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []string{"managed settings cannot be read: " + err.Error()}
	}
	var found []string
	for _, key := range []string{"disableAllHooks", "allowManagedHooksOnly"} {
		if flagOf(text, key) {
			found = append(found, fmt.Sprintf("%s: %s is on: belay's hooks do not run", a.managed, key))
		}
	}
	return found
}

func flagOf(text []byte, key string) bool {
	var p payload.Payload
	return json.Unmarshal([]byte(strings.TrimPrefix(string(text), bom)), &p) == nil && p.Flag(key)
}
