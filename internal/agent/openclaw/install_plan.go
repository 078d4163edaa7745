package openclaw

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// pluginID is belay's name among OpenClaw's plugins.
const pluginID = "belay"

// ErrForeignForm: a part of the settings is there in a form that OpenClaw does not describe, or that belay does not edit.
// Nothing is written.
var ErrForeignForm = errors.New("settings have an unknown form")

const entryText = `{"enabled": true, "hooks": {"allowConversationAccess": true}}`

// quote renders a string.
func quote(s string) string {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("string has no JSON form: %v", err)) // every string has one
	}
	return string(data)
}

// withPlugin puts into a file's text what the settings lack of belay's plugin; everything else stays as it was. The keys lead
// to the plugins in that file.
func withPlugin(text, folder string, keys []string, has wiring) (string, error) {
	var err error
	if !has.path {
		text, err = withElement(text, folder, slices.Concat(keys, []string{"load", "paths"}))
	}
	if err == nil && !has.allowed {
		text, err = withElement(text, pluginID, slices.Concat(keys, []string{"allow"}))
	}
	if err == nil && !has.entry {
		text, err = withEntry(text, slices.Concat(keys, []string{"entries", pluginID}))
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

// withElement adds a string to the list at a path, unless it is there.
func withElement(text, words string, path []string) (string, error) {
	root, err := parseSettings(text)
	if err != nil {
		return "", err
	}
	list, ok := root.find(path...)
	switch {
	case !ok:
		return withMember(text, root, "["+quote(words)+"]", path)
	case list.kind != '[':
		return "", fmt.Errorf("%w: %v is no list", ErrForeignForm, path)
	case list.index(text, words) >= 0:
		return text, nil
	}
	return put(text, list, quote(words)), nil
}

// withMember adds a member at a path, whose first part may be there.
func withMember(text string, at value, rendered string, path []string) (string, error) {
	for len(path) > 1 {
		next, ok := at.member(path[0])
		if !ok {
			break
		}
		at, path = next, path[1:]
	}
	if at.kind != '{' {
		return "", fmt.Errorf("%w: what should hold %s is no object", ErrForeignForm, path[0])
	}
	for i := len(path) - 1; i > 0; i-- {
		rendered = "{" + quote(path[i]) + ": " + rendered + "}"
	}
	return put(text, at, quote(path[0])+": "+rendered), nil
}

// withEntry puts the plugin's entry in, in place of one that lacks what belay needs.
func withEntry(text string, path []string) (string, error) {
	root, err := parseSettings(text)
	if err != nil {
		return "", err
	}
	entry, ok := root.find(path...)
	if !ok {
		return withMember(text, root, entryText, path)
	}
	return text[:entry.start] + entryText + text[entry.end:], nil
}

// withoutPlugin takes belay's plugin out again, and the lists and objects that are empty by that. It is for settings that
// somebody changed since: others come back whole.
func withoutPlugin(text, folder string, keys []string) (string, error) {
	root, err := parseSettings(text)
	if err != nil {
		return "", err
	}
	had := text
	for _, c := range []struct {
		path  []string
		words string
	}{{[]string{"load", "paths"}, folder}, {[]string{"allow"}, pluginID}} {
		path := slices.Concat(keys, c.path)
		if list, ok := root.find(path...); ok {
			if i := list.index(text, c.words); i >= 0 {
				text = cut(text, list, i)
				if text, err = prune(text, path); err != nil {
					return "", err
				}
				if root, err = parseSettings(text); err != nil {
					return "", err
				}
			}
		}
	}
	path := slices.Concat(keys, []string{"entries", pluginID})
	if _, ok := root.find(path...); ok {
		if text, err = cutMember(text, path...); err == nil {
			text, err = prune(text, path[:len(path)-1])
		}
	}
	if err != nil || had == text {
		return had, err
	}
	return text, nil
}

func cutMember(text string, path ...string) (string, error) {
	root, err := parseSettings(text)
	if err != nil {
		return "", err
	}
	last := len(path) - 1
	holder, _ := root.find(path[:last]...)
	for i := len(holder.items) - 1; i >= 0; i-- {
		if holder.items[i].key == path[last] {
			return cut(text, holder, i), nil
		}
	}
	return text, nil
}

// prune cuts out what is empty at a path, from the inside outward.
func prune(text string, path []string) (string, error) {
	for ; len(path) > 0; path = path[:len(path)-1] {
		root, err := parseSettings(text)
		if err != nil {
			return "", err
		}
		v, ok := root.find(path...)
		if !ok || len(v.items) > 0 || v.kind != '{' && v.kind != '[' {
			return text, nil
		}
		if text, err = cutMember(text, path...); err != nil {
			return "", err
		}
	}
	return text, nil
}
