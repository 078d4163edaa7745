package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/jsontext"
)

// ErrForeignForm: "hooks" is there in a form that no agent describes. Nothing is edited.
var ErrForeignForm = errors.New("hooks have an unknown form")

// Handler is one of belay's hooks as it stands in a text.
type Handler struct {
	Group, Index int    // places in the event's list and in the group's
	GroupText    []byte // the group with all its handlers; the handler itself where hooks stand flat
	Text         []byte

	levels []level // from the event's list inward: where the handler and what holds it stand
}

// level is one item of a container.
type level struct {
	in jsontext.Container
	n  int
}

// document is a settings text and where its outer parts stand.
type document struct {
	b     []byte
	root  jsontext.Container
	hooks jsontext.Container // when has
	has   bool
}

func (s Spec) parse(b []byte) (document, error) {
	d := document{b: b}
	var err error
	if d.root, err = s.Dialect.Object(b); err != nil {
		return d, err
	}
	if s.Top {
		d.hooks, d.has = d.root, true
		return d, nil
	}

	hooks, has := d.root.Find("hooks")
	if !has {
		return d, nil
	}
	if b[hooks.Value] != '{' {
		return d, fmt.Errorf("%w: \"hooks\" is no object", ErrForeignForm)
	}

	d.hooks, d.has = jsontext.Read(b, hooks.Value), true
	return d, nil
}

// empty says whether a text holds nothing of the user's: an object without members, or with the form's version alone.
func (s Spec) empty(b []byte) bool {
	root, err := s.Dialect.Object(b)
	if err != nil {
		return false
	}
	_, version := root.Find("version")
	return len(root.Items) == 0 || s.Flat && version && len(root.Items) == 1
}

// Merge gives the text with belay's hooks in it, and everything else as it was. A text in which they are already comes
// back as it is; hooks of another belay's, at another path or of another form, are replaced.
func (s Spec) Merge(text []byte, p agent.Paths) ([]byte, error) {
	if s.Dialect.Blank(text) {
		fresh := "{}\n"
		if s.Flat {
			fresh = "{\n  \"version\": 1\n}\n"
		}
		if strings.TrimSpace(string(text)) != "" && string(text) != jsontext.BOM { // comments
			fresh = string(text) + "\n" + fresh
		}

		text = []byte(fresh)
	}

	want := map[string]any{}
	for _, e := range s.Events {
		want[e.Name] = s.group(p, e)
	}

	text, err := s.strip(text, want)
	for _, e := range s.Events {
		if err == nil {
			text, err = s.add(text, e.Name, want[e.Name])
		}
	}

	return text, err
}

// group and handler are the agents' forms of a hook, in the order in which people write them.
type group struct {
	Matcher string    `json:"matcher,omitempty"`
	Hooks   []handler `json:"hooks"`
}

type handler struct {
	Type       string   `json:"type,omitempty"`
	Name       string   `json:"name,omitempty"`
	Command    string   `json:"command,omitempty"`
	Bash       string   `json:"bash,omitempty"`
	Args       []string `json:"args,omitempty"`
	Timeout    int      `json:"timeout,omitempty"`
	TimeoutSec int      `json:"timeoutSec,omitempty"`
}

// group is what belay writes for an event.
func (s Spec) group(p agent.Paths, e Event) any {
	args := []string{s.Agent, e.Name}
	if e.Waits {
		args = append([]string{waitFlag}, args...)
	}
	if p.Socket != "" {
		args = append([]string{"--socket", p.Socket}, args...)
	}

	h := handler{Type: s.Type, Name: s.Label, Command: p.Hook, Args: args, Timeout: int(e.Timeout / s.Unit)}
	if !s.Args {
		line := payload.ShellWord(p.Hook)
		for _, a := range args {
			line += " " + payload.ShellWord(a)
		}

		if s.Exec {
			line = "exec " + line
		}

		h.Command, h.Args = line, nil
	}

	if s.Bash {
		h.Bash, h.TimeoutSec, h.Command, h.Timeout = h.Command, h.Timeout, "", 0
	}

	if s.Flat {
		return h
	}

	return group{Matcher: e.Matcher, Hooks: []handler{h}}
}

// add puts a group at the end of an event's list, unless one of belay's is there.
func (s Spec) add(text []byte, event string, group any) ([]byte, error) {
	d, err := s.parse(text)
	if err != nil {
		return nil, err
	}

	lay := jsontext.LayoutOf(text, d.root)
	if !d.has {
		return jsontext.Put(text, d.root, lay, func(l jsontext.Layout) string {
			return l.Set("hooks", map[string][]any{event: {group}})
		}), nil
	}

	ev, ok := d.hooks.Find(event)
	if !ok {
		return jsontext.Put(text, d.hooks, lay, func(l jsontext.Layout) string {
			return l.Set(event, []any{group})
		}), nil
	}

	if text[ev.Value] != '[' {
		return nil, fmt.Errorf("%w: hooks of %s are no list", ErrForeignForm, event)
	}
	if len(s.own(text, ev)) > 0 {
		return text, nil
	}

	list := jsontext.Read(text, ev.Value)
	return jsontext.Put(text, list, lay, func(l jsontext.Layout) string { return l.Set("", group) }), nil
}

// Strip takes belay's hooks out, and with them the lists and objects that become empty, unless a comment is in them.
func (s Spec) Strip(text []byte) ([]byte, error) { return s.strip(text, nil) }

// strip is Strip that leaves an event whose one hook of belay's is just as in keep.
func (s Spec) strip(text []byte, keep map[string]any) ([]byte, error) {
	if s.Dialect.Blank(text) {
		return text, nil
	}
	for {
		d, err := s.parse(text)
		if err != nil {
			return nil, err
		}

		next, found := s.stripOne(d, keep)
		if !found {
			return text, nil
		}

		text = next
	}
}

func (s Spec) stripOne(d document, keep map[string]any) ([]byte, bool) {
	for n, ev := range d.hooks.Items {
		if d.b[ev.Value] != '[' {
			continue // not belay's, and add says so
		}

		found := s.own(d.b, ev)
		if len(found) == 0 {
			continue
		}
		if g, ok := keep[ev.Key]; ok && len(found) == 1 && sameJSON(found[0].GroupText, g) {
			continue
		}

		levels := append([]level{{d.hooks, n}}, found[0].levels...)
		for i, m := range d.root.Items {
			if m.Key == "hooks" && m.Value == d.hooks.Open {
				levels = append([]level{{d.root, i}}, levels...)
			}
		}

		return cutLone(d.b, levels), true
	}
	return nil, false
}

// cutLone cuts an item out, and each container that holds nothing but what is cut. A key that is there twice stays:
// without the last, the one before it would count.
func cutLone(b []byte, levels []level) []byte {
	at := len(levels) - 1
	inner := levels[at].in.Items[levels[at].n]
	for at > 0 && len(levels[at].in.Items) == 1 {
		outer := levels[at-1]
		it := outer.in.Items[outer.n]
		if jsontext.HasComment(b[it.Start:inner.Start]) || jsontext.HasComment(b[inner.End:it.End]) || twice(b, outer) {
			break
		}
		at--
	}

	return jsontext.Cut(b, levels[at].in, levels[at].n)
}

// twice says whether the key of an object's item is there once more.
func twice(b []byte, l level) bool {
	n := 0
	for _, it := range l.in.Items {
		if b[l.in.Open] == '{' && it.Key == l.in.Items[l.n].Key {
			n++
		}
	}
	return n > 1
}

// Handlers gives belay's hooks of an event as they stand in a text.
func (s Spec) Handlers(text []byte, event string) ([]Handler, error) {
	if s.Dialect.Blank(text) {
		return nil, nil
	}

	d, err := s.parse(text)
	if err != nil {
		return nil, err
	}

	ev, ok := d.hooks.Find(event)
	if !ok || text[ev.Value] != '[' {
		return nil, nil
	}

	return s.own(text, ev), nil
}

// own finds belay's hooks in an event's list. A group of an unknown form is none of them.
func (s Spec) own(b []byte, event jsontext.Item) []Handler {
	var found []Handler
	groups := jsontext.Read(b, event.Value)
	for i, g := range groups.Items {
		outer := level{groups, i}
		text := b[g.Start:g.End]
		if s.Flat {
			if s.isOwn(text) {
				found = append(found, Handler{Group: i, GroupText: text, Text: text, levels: []level{outer}})
			}
			continue
		}

		if b[g.Start] != '{' {
			continue
		}

		members := jsontext.Read(b, g.Start)
		list, ok := members.Find("hooks")
		if !ok || b[list.Value] != '[' {
			continue
		}

		handlers := jsontext.Read(b, list.Value)
		for n, at := range handlers.Items {
			if h := b[at.Start:at.End]; s.isOwn(h) {
				levels := []level{outer, {handlers, n}}
				found = append(found, Handler{Group: i, Index: n, GroupText: text, Text: h, levels: levels})
			}
		}
	}

	return found
}

// isOwn recognises a hook of belay's by what it starts, at any path: a wrapper of the user's around belay-hook is the
// user's.
func (s Spec) isOwn(handler []byte) bool {
	argv := s.argvOf(handler)
	n := len(argv)
	return n >= 3 && strings.HasPrefix(filepath.Base(argv[0]), agent.HookBinary) && argv[n-2] == s.Agent
}

// argvOf is what a hook starts; nothing for one of another form.
func (s Spec) argvOf(handler []byte) []string {
	var p payload.Payload
	var args []string
	if s.Dialect.Decode(handler, &p) != nil || s.Type != "" && p.Text("type") != s.Type {
		return nil
	}

	line := cmp.Or(p.Text("command"), p.Text("bash"))
	if json.Unmarshal(p["args"], &args) == nil && len(args) > 0 {
		return append([]string{line}, args...)
	}

	argv := payload.ShellWords(line)
	if len(argv) > 0 && argv[0] == "exec" {
		argv = argv[1:]
	}

	return argv
}

// sameJSON compares a text with a value by meaning.
func sameJSON(raw []byte, value any) bool {
	var got, want any
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &want) != nil || jsontext.Comments.Decode(raw, &got) != nil {
		return false
	}
	return reflect.DeepEqual(got, want)
}
