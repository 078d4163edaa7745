package openclaw

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"belay/internal/jsontext"
)

// pluginID is belay's name among OpenClaw's plugins.
const pluginID = "belay"

// Errors of reading the settings. Nothing is written after any of them.
var (
	// ErrBadSettings: the settings are no JSON5 object. A person must mend them.
	ErrBadSettings = errors.New("settings are no JSON5 object")
	// ErrForeignForm: a part of the settings is there in a form that OpenClaw does not describe, or that belay does
	// not edit.
	ErrForeignForm = errors.New("settings have an unknown form")
)

const entryText = `{"enabled": true, "hooks": {"allowConversationAccess": true}}`

func parseSettings(text []byte) (jsontext.Container, error) {
	root, err := jsontext.JSON5.Object(text)
	if err != nil {
		return root, ErrBadSettings
	}
	return root, nil
}

// filled is a text, or what an empty one stands for.
func filled(text []byte) []byte {
	if jsontext.JSON.Blank(text) {
		return []byte("{}\n")
	}
	return text
}

// quote renders a string.
func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("string has no JSON form: %v", err)) // every string has one
	}
	return string(data)
}

// indexOf finds a string in the list that begins at an offset; -1 also where there is no list.
func indexOf(text []byte, at int, words string) int {
	if text[at] != '[' {
		return -1
	}
	items := jsontext.Read(text, at).Items
	return slices.IndexFunc(items, func(it jsontext.Item) bool { return stringAt(text, it) == words })
}

// stringAt is the words of a value that is a string.
func stringAt(text []byte, it jsontext.Item) string {
	if c := text[it.Value]; c != '"' && c != '\'' {
		return ""
	}
	return jsontext.Words(text[it.Value:it.End])
}

// put adds what is rendered to an object or a list.
func put(text []byte, to, root jsontext.Container, rendered string) []byte {
	return jsontext.Put(text, to, jsontext.LayoutOf(text, root), func(jsontext.Layout) string { return rendered })
}

// withPlugin puts into a file's text what the settings lack of belay's plugin; everything else stays as it was. The
// keys lead to the plugins in that file.
func withPlugin(text []byte, folder string, keys []string, has wiring) (next []byte, err error) {
	next = text
	if !has.path {
		next, err = withElement(next, folder, slices.Concat(keys, []string{"load", "paths"}))
	}
	if err == nil && !has.allowed {
		next, err = withElement(next, pluginID, slices.Concat(keys, []string{"allow"}))
	}
	if err == nil && !has.entry {
		next, err = withEntry(next, slices.Concat(keys, []string{"entries", pluginID}))
	}

	return next, err
}

// withElement adds a string to the list at a path, unless it is there.
func withElement(text []byte, words string, path []string) ([]byte, error) {
	root, err := parseSettings(text)
	if err != nil {
		return nil, err
	}

	list, ok := jsontext.Lookup(text, root, path...)
	switch {
	case !ok:
		return withMember(text, root, "["+quote(words)+"]", path)
	case text[list.Value] != '[':
		return nil, fmt.Errorf("%w: %v is no list", ErrForeignForm, path)
	case indexOf(text, list.Value, words) >= 0:
		return text, nil
	}

	return put(text, jsontext.Read(text, list.Value), root, quote(words)), nil
}

// withMember adds a member at a path, whose first part may be there.
func withMember(text []byte, root jsontext.Container, rendered string, path []string) ([]byte, error) {
	at := root
	for len(path) > 1 {
		next, ok := at.Find(path[0])
		if !ok {
			break
		}

		path = path[1:]
		if text[next.Value] != '{' {
			return nil, fmt.Errorf("%w: what should hold %s is no object", ErrForeignForm, path[0])
		}

		at = jsontext.Read(text, next.Value)
	}

	for i := len(path) - 1; i > 0; i-- {
		rendered = "{" + quote(path[i]) + ": " + rendered + "}"
	}

	return put(text, at, root, quote(path[0])+": "+rendered), nil
}

// withEntry puts the plugin's entry in, in place of one that lacks what belay needs.
func withEntry(text []byte, path []string) ([]byte, error) {
	root, err := parseSettings(text)
	if err != nil {
		return nil, err
	}

	entry, ok := jsontext.Lookup(text, root, path...)
	if !ok {
		return withMember(text, root, entryText, path)
	}

	return jsontext.Splice(text, entry.Value, entry.End, entryText), nil
}

// withoutPlugin takes belay's plugin out again, and the lists and objects that are empty by that. It is for settings
// that somebody changed since: others come back whole.
func withoutPlugin(text []byte, folder string, keys []string) ([]byte, error) {
	for _, c := range []struct {
		path  []string
		words string // in a list at the path; empty for the member itself
	}{{[]string{"load", "paths"}, folder}, {[]string{"allow"}, pluginID}, {[]string{"entries", pluginID}, ""}} {
		root, err := parseSettings(text)
		if err != nil {
			return nil, err
		}

		path := slices.Concat(keys, c.path)
		it, ok := jsontext.Lookup(text, root, path...)
		if !ok {
			continue
		}

		if c.words != "" {
			i := indexOf(text, it.Value, c.words)
			if i < 0 {
				continue
			}
			text = prune(jsontext.Cut(text, jsontext.Read(text, it.Value), i), path)
			continue
		}

		text = prune(cutMember(text, path), path[:len(path)-1])
	}
	return text, nil
}

// cutMember takes out the member at a path, which is there.
func cutMember(text []byte, path []string) []byte {
	holder, _ := jsontext.JSON5.Object(text) // it was read before
	last := len(path) - 1
	if at, ok := jsontext.Lookup(text, holder, path[:last]...); ok {
		holder = jsontext.Read(text, at.Value)
	}
	return jsontext.Cut(text, holder, holder.Index(path[last]))
}

// prune cuts out what is empty at a path, from the inside outward. What holds a comment stays.
func prune(text []byte, path []string) []byte {
	for ; len(path) > 0; path = path[:len(path)-1] {
		root, _ := jsontext.JSON5.Object(text) // as before the cut
		it, ok := jsontext.Lookup(text, root, path...)
		if !ok || text[it.Value] != '{' && text[it.Value] != '[' || jsontext.SkipSpace(text, it.Value+1) != it.End-1 ||
			jsontext.HasComment(text[it.Value:it.End]) {
			return text
		}
		text = cutMember(text, path)
	}
	return text
}
