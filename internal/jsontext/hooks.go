package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Errors of reading settings. Nothing is edited after any of them.
var (
	// ErrNoObject: the text is no JSON object. A person must mend it.
	ErrNoObject = errors.New("settings are no JSON object")
	// ErrForeignForm: "hooks" is there in a form that no agent describes.
	ErrForeignForm = errors.New("hooks have an unknown form")
)

// Hooks edits the hooks of one owner in a settings text.
type Hooks struct {
	Events []string                  // in the order in which new ones are added
	Own    func(handler []byte) bool // says whether a handler, a JSON value, is the owner's
	// Flat is set where an event's list holds the handlers themselves: each is a group of its own.
	Flat bool
}

// Handler is one hook of the owner's as it stands in a text.
type Handler struct {
	Group, Index int    // places in the event's list and in the group's
	GroupText    []byte // the group with all its handlers
	Text         []byte
}

// settings is a text and where its outer parts stand.
type settings struct {
	b       []byte
	open    int // of the outermost object
	after   int
	members []Member
	hooks   Member   // when has
	events  []Member // of hooks
	has     bool
}

func parse(b []byte) (settings, error) {
	s := settings{b: b}
	body := bytes.TrimPrefix(b, []byte(BOM))
	s.open = SkipSpace(b, len(b)-len(body))
	if !json.Valid(body) {
		var v any
		return s, fmt.Errorf("%w: %w", ErrNoObject, json.Unmarshal(body, &v))
	}
	if b[s.open] != '{' {
		return s, ErrNoObject
	}
	s.members, s.after = Members(b, s.open)
	if s.hooks, s.has = Find(s.members, "hooks"); !s.has {
		return s, nil
	}
	if b[s.hooks.Value] != '{' {
		return s, fmt.Errorf("%w: \"hooks\" is no object", ErrForeignForm)
	}
	s.events, _ = Members(b, s.hooks.Value)
	return s, nil
}

// Blank says whether a text holds nothing.
func Blank(b []byte) bool {
	return len(bytes.TrimSpace(bytes.TrimPrefix(b, []byte(BOM)))) == 0
}

// Empty says whether a text is an object without members.
func Empty(b []byte) bool {
	s, err := parse(b)
	return err == nil && len(s.members) == 0
}

// Merge gives the text with the owner's groups as wanted (event to group), and everything else as it was. A text in which
// they are already comes back as it is.
func (h Hooks) Merge(text []byte, want map[string]any) ([]byte, error) {
	if Blank(text) {
		text = []byte("{}\n")
	}
	text, err := h.Strip(text, want)
	if err != nil {
		return nil, err
	}
	for _, event := range h.Events {
		g, ok := want[event]
		if !ok {
			continue
		}
		if text, err = h.add(text, event, g); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// add puts a group at the end of an event's list, unless one of the owner's is there.
func (h Hooks) add(text []byte, event string, group any) ([]byte, error) {
	s, err := parse(text)
	if err != nil {
		return nil, err
	}
	first := -1
	if len(s.members) > 0 {
		first = s.members[0].Start
	}
	lay := LayoutOf(text, s.open, first)
	if !s.has {
		return Add(text, Spans(s.members), s.open, s.after, lay, func(l Layout) string {
			return l.Set("hooks", map[string][]any{event: {group}})
		}), nil
	}
	ev, ok := Find(s.events, event)
	if !ok {
		return Add(text, Spans(s.events), s.hooks.Value, s.hooks.End, lay, func(l Layout) string {
			return l.Set(event, []any{group})
		}), nil
	}
	if text[ev.Value] != '[' {
		return nil, fmt.Errorf("%w: hooks of %s are no list", ErrForeignForm, event)
	}
	groups := Elements(text, ev.Value)
	if len(h.own(text, groups)) > 0 {
		return text, nil
	}
	return Add(text, groups, ev.Value, ev.End, lay, func(l Layout) string { return l.Set("", group) }), nil
}

// Strip takes the owner's hooks out, and with them the lists and objects that become empty. An event whose one hook of
// the owner's is just as in keep is left.
func (h Hooks) Strip(text []byte, keep map[string]any) ([]byte, error) {
	if Blank(text) {
		return text, nil
	}
	for {
		s, err := parse(text)
		if err != nil {
			return nil, err
		}
		next, found := h.stripOne(s, keep)
		if !found {
			return text, nil
		}
		text = next
	}
}

func (h Hooks) stripOne(s settings, keep map[string]any) ([]byte, bool) {
	for n, ev := range s.events {
		if s.b[ev.Value] != '[' {
			continue // not the owner's, and add says so
		}
		groups := Elements(s.b, ev.Value)
		found := h.own(s.b, groups)
		if len(found) == 0 {
			continue
		}
		own := found[0]
		if g, ok := keep[ev.Key]; ok && len(found) == 1 && sameJSON(s.b[own.at.Start:own.at.End], g) {
			continue
		}
		switch { // a key that is there twice stays: without the last, the one before it would count
		case len(own.handlers) > 1:
			return Cut(s.b, own.handlers, own.n, own.list.Value, own.list.End), true
		case len(groups) > 1 || twice(s.events, ev.Key):
			return Cut(s.b, groups, own.group, ev.Value, ev.End), true
		case len(s.events) > 1 || twice(s.members, s.hooks.Key):
			return Cut(s.b, Spans(s.events), n, s.hooks.Value, s.hooks.End), true
		}
		for i, m := range s.members {
			if m.Start == s.hooks.Start {
				return Cut(s.b, Spans(s.members), i, s.open, s.after), true
			}
		}
	}
	return nil, false
}

// Handlers gives the owner's hooks of an event as they stand in a text.
func (h Hooks) Handlers(text []byte, event string) ([]Handler, error) {
	if Blank(text) {
		return nil, nil
	}
	s, err := parse(text)
	if err != nil {
		return nil, err
	}
	ev, ok := Find(s.events, event)
	if !ok || text[ev.Value] != '[' {
		return nil, nil
	}
	var list []Handler
	for _, own := range h.own(text, Elements(text, ev.Value)) {
		at := own.handlers[own.n]
		list = append(list, Handler{own.group, own.n, text[own.at.Start:own.at.End], text[at.Start:at.End]})
	}
	return list, nil
}

// place is where one hook of the owner's stands.
type place struct {
	group    int    // index of its group
	at       Span   // of the group
	list     Member // the group's "hooks"
	handlers []Span // of that list
	n        int    // index in it
}

// own finds the owner's hooks in an event's groups. A group of an unknown form is none of them.
func (h Hooks) own(b []byte, groups []Span) []place {
	var found []place
	for i, g := range groups {
		if b[g.Start] != '{' {
			continue
		}
		if h.Flat {
			if h.Own(b[g.Start:g.End]) {
				found = append(found, place{group: i, at: g, handlers: []Span{g}})
			}
			continue
		}
		members, _ := Members(b, g.Start)
		list, ok := Find(members, "hooks")
		if !ok || b[list.Value] != '[' {
			continue
		}
		handlers := Elements(b, list.Value)
		for n, at := range handlers {
			if h.Own(b[at.Start:at.End]) {
				found = append(found, place{i, g, list, handlers, n})
			}
		}
	}
	return found
}

func twice(list []Member, key string) bool {
	n := 0
	for _, m := range list {
		if m.Key == key {
			n++
		}
	}
	return n > 1
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
