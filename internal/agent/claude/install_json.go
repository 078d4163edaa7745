package claude

import (
	"path/filepath"
	"strings"

	"belay/internal/agent"
	"belay/internal/jsontext"
)

// bom may stand before JSON that an editor on Windows wrote.
const bom = jsontext.BOM

// hooks edits belay's own hooks in a settings text.
func hooks() jsontext.Hooks {
	h := jsontext.Hooks{Own: isOwn}
	for _, e := range hookEvents() {
		h.Events = append(h.Events, e.name)
	}
	return h
}

// merge gives the text with belay's hooks as wanted, and everything else as it was.
func merge(text []byte, want map[string]group) ([]byte, error) {
	return hooks().Merge(text, groups(want))
}

// strip takes belay's hooks out, but for those that are just as in keep.
func strip(text []byte, keep map[string]group) ([]byte, error) {
	return hooks().Strip(text, groups(keep))
}

func groups(of map[string]group) map[string]any {
	all := map[string]any{}
	for event, g := range of {
		all[event] = g
	}
	return all
}

// isOwn recognises a hook of belay's by what it starts, in both forms and at any path: a wrapper of the user's around
// belay-hook is the user's.
func isOwn(raw []byte) bool {
	argv, ok := argvOf(raw)
	return ok && len(argv) >= 3 && strings.HasPrefix(filepath.Base(argv[0]), agent.HookBinary) && argv[len(argv)-2] == name
}
