package claude

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"belay/internal/agent"
)

// Errors of reading a settings file. Nothing is written after any of them.
var (
	// ErrBadSettings: the file is no JSON object. Claude Code ignores such a file as a whole; a person must mend it.
	ErrBadSettings = errors.New("settings are no JSON object")
	// ErrForeignForm: "hooks" is there in a form that Claude Code does not describe.
	ErrForeignForm = errors.New("hooks have an unknown form")
)

// hookBinary begins the name of every program of belay's that a hook may start.
const hookBinary = "belay-hook"

// group and handler are Claude Code's form of a hook, in the order in which people write it.
type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	Timeout int      `json:"timeout"` // seconds
}

// wanted is what belay writes for each event. From execForm on no shell is needed; before, the command line replaces its
// shell by the hook (exec), so that the hook's parent is the agent in both. A version that is not known gets the command
// line, which all understand, and every event: names that it does not know do not hurt since namesForgiven.
func wanted(p agent.Paths, v version, known bool) map[string]group {
	want := map[string]group{}
	for _, e := range hookEvents() {
		if known && v.before(e.since) && v.before(namesForgiven) {
			continue
		}
		var args []string
		if p.Socket != "" {
			args = append(args, "--socket", p.Socket)
		}
		args = append(args, name, e.name)
		h := handler{Type: "command", Command: p.Hook, Args: args, Timeout: e.timeout}
		if !known || v.before(execForm) {
			line := "exec " + shellWord(p.Hook)
			for _, a := range args {
				line += " " + shellWord(a)
			}
			h.Command, h.Args = line, nil
		}
		want[e.name] = group{Matcher: e.matcher, Hooks: []handler{h}}
	}
	return want
}

// settingsText is a settings file's text and where its outer parts stand.
type settingsText struct {
	b       []byte
	open    int // of the outermost object
	after   int
	members []member
	hooks   member   // when hasHooks
	events  []member // of hooks
	has     bool
}

func parseSettings(b []byte) (settingsText, error) {
	s := settingsText{b: b}
	body := bytes.TrimPrefix(b, []byte(bom))
	s.open = skipSpace(b, len(b)-len(body))
	if !json.Valid(body) {
		var v any
		return s, fmt.Errorf("%w: %w", ErrBadSettings, json.Unmarshal(body, &v))
	}
	if b[s.open] != '{' {
		return s, ErrBadSettings
	}
	s.members, s.after = scanMembers(b, s.open)
	if s.hooks, s.has = find(s.members, "hooks"); !s.has {
		return s, nil
	}
	if b[s.hooks.value] != '{' {
		return s, fmt.Errorf("%w: \"hooks\" is no object", ErrForeignForm)
	}
	s.events, _ = scanMembers(b, s.hooks.value)
	return s, nil
}

// blank is a file that exists and holds nothing.
func blank(b []byte) bool {
	return len(bytes.TrimSpace(bytes.TrimPrefix(b, []byte(bom)))) == 0
}

// merge gives the text with belay's hooks as wanted, and everything else as it was. A text in which they are already
// comes back as it is.
func merge(text []byte, want map[string]group) ([]byte, error) {
	if blank(text) {
		text = []byte("{}\n")
	}
	text, err := strip(text, want)
	if err != nil {
		return nil, err
	}
	for _, e := range hookEvents() { // in a fixed order
		g, ok := want[e.name]
		if !ok {
			continue
		}
		if text, err = addGroup(text, e.name, g); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// addGroup puts a group at the end of an event's list, unless one of belay's is there.
func addGroup(text []byte, event string, g group) ([]byte, error) {
	s, err := parseSettings(text)
	if err != nil {
		return nil, err
	}
	first := -1
	if len(s.members) > 0 {
		first = s.members[0].start
	}
	lay := layoutOf(text, s.open, first)
	if !s.has {
		return addItem(text, spans(s.members), s.open, s.after, lay, func(l layout) string {
			return l.set("hooks", map[string][]group{event: {g}})
		}), nil
	}
	ev, ok := find(s.events, event)
	if !ok {
		return addItem(text, spans(s.events), s.hooks.value, s.hooks.end, lay, func(l layout) string {
			return l.set(event, []group{g})
		}), nil
	}
	if text[ev.value] != '[' {
		return nil, fmt.Errorf("%w: hooks of %s are no list", ErrForeignForm, event)
	}
	groups := scanElements(text, ev.value)
	if len(ownHandlers(text, groups)) > 0 {
		return text, nil
	}
	return addItem(text, groups, ev.value, ev.end, lay, func(l layout) string { return l.set("", g) }), nil
}

// strip takes belay's hooks out, and with them the lists and objects that become empty. An event whose one hook of
// belay's is just as in keep is left.
func strip(text []byte, keep map[string]group) ([]byte, error) {
	if blank(text) {
		return text, nil
	}
	for {
		s, err := parseSettings(text)
		if err != nil {
			return nil, err
		}
		next, found := s.stripOne(keep)
		if !found {
			return text, nil
		}
		text = next
	}
}

func (s settingsText) stripOne(keep map[string]group) ([]byte, bool) {
	for n, ev := range s.events {
		if s.b[ev.value] != '[' {
			continue // not ours, and addGroup says so
		}
		groups := scanElements(s.b, ev.value)
		found := ownHandlers(s.b, groups)
		if len(found) == 0 {
			continue
		}
		own := found[0]
		if g, ok := keep[ev.key]; ok && len(found) == 1 && sameJSON(s.b[own.at.start:own.at.end], g) {
			continue
		}
		switch { // a key that is there twice stays: without the last, the one before it would count
		case len(own.handlers) > 1:
			return cutItem(s.b, own.handlers, own.n, own.list.value, own.list.end), true
		case len(groups) > 1 || twice(s.events, ev.key):
			return cutItem(s.b, groups, own.group, ev.value, ev.end), true
		case len(s.events) > 1 || twice(s.members, s.hooks.key):
			return cutItem(s.b, spans(s.events), n, s.hooks.value, s.hooks.end), true
		}
		for i, m := range s.members {
			if m.start == s.hooks.start {
				return cutItem(s.b, spans(s.members), i, s.open, s.after), true
			}
		}
	}
	return nil, false
}

func twice(list []member, key string) bool {
	n := 0
	for _, m := range list {
		if m.key == key {
			n++
		}
	}
	return n > 1
}

// ownHandler is where one hook of belay's stands.
type ownHandler struct {
	group    int    // index of its group
	at       span   // of the group
	list     member // the group's "hooks"
	handlers []span // of that list
	n        int    // index in it
}

// ownHandlers finds belay's hooks in an event's groups. A group of an unknown form is none of ours.
func ownHandlers(b []byte, groups []span) []ownHandler {
	var found []ownHandler
	for i, g := range groups {
		if b[g.start] != '{' {
			continue
		}
		members, _ := scanMembers(b, g.start)
		list, ok := find(members, "hooks")
		if !ok || b[list.value] != '[' {
			continue
		}
		handlers := scanElements(b, list.value)
		for n, h := range handlers {
			if isOwn(b[h.start:h.end]) {
				found = append(found, ownHandler{i, g, list, handlers, n})
			}
		}
	}
	return found
}

// isOwn recognises a hook of belay's by what it starts, in both forms and at any path: a wrapper of the user's around
// belay-hook is the user's.
func isOwn(raw []byte) bool {
	argv, ok := argvOf(raw)
	return ok && len(argv) >= 3 && strings.HasPrefix(filepath.Base(argv[0]), hookBinary) && argv[len(argv)-2] == name
}

// argvOf is what a command hook starts.
func argvOf(raw []byte) ([]string, bool) {
	var h struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	if json.Unmarshal(raw, &h) != nil || h.Type != "command" {
		return nil, false
	}
	if len(h.Args) > 0 {
		return append([]string{h.Command}, h.Args...), true
	}
	argv := shellWords(h.Command)
	if len(argv) > 0 && argv[0] == "exec" {
		argv = argv[1:]
	}
	return argv, true
}

// shellWords splits a command line as far as shellWord writes it.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	open, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted:
			if quoted = c != '\''; quoted {
				word.WriteByte(c)
			}
		case c == '\'':
			open, quoted = true, true
		case c == '\\' && i+1 < len(line):
			i++
			open = true
			word.WriteByte(line[i])
		case c == ' ':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			open = true
			word.WriteByte(c)
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words
}

// sameJSON compares a text with a value by meaning.
func sameJSON(raw []byte, value any) bool {
	var got, want any
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &want) != nil || json.Unmarshal(raw, &got) != nil {
		return false
	}
	return reflect.DeepEqual(got, want)
}

func spans(members []member) []span {
	list := make([]span, len(members))
	for i, m := range members {
		list[i] = span{m.start, m.end}
	}
	return list
}
