package openclaw

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
)

// OpenClaw's settings may be cut into files: where an object has the key $include, the files that it names are merged
// in order, and the object's own members over them. Objects merge, lists are joined, of single values the last one
// counts.
//
// OpenClaw writes a part that is one $include and nothing else into the file that it names, and refuses to once
// something stands beside it. belay's entry goes where OpenClaw would put it; in all other forms it may stand in the
// main file.

// ErrInclude: an $include cannot be followed. Nothing is written; OpenClaw does not start with such settings either.
var ErrInclude = errors.New("$include of the settings cannot be followed")

const (
	includeKey   = "$include"
	includeDepth = 10 // as OpenClaw has it
)

// part is a value of the settings, in the file where it stands: text[from:to].
type part struct {
	file     string
	text     []byte
	from, to int
}

// is says whether the value is this word.
func (p part) is(word string) bool { return string(p.text[p.from:p.to]) == word }

// member is a member of a value that is an object.
func (p part) member(key string) (part, bool) {
	if p.text[p.from] != '{' {
		return p, false
	}
	it, ok := jsontext.Read(p.text, p.from).Find(key)
	return part{p.file, p.text, it.Value, it.End}, ok
}

// includes reads settings with what they include.
type includes struct {
	read func(path string) (settings.File, error)
	now  map[string][]byte // texts that count in place of a file's own
}

// load reads one file of the settings.
func (in includes) load(path string) (part, error) {
	f, err := in.read(path)
	if err != nil {
		return part{}, err
	}

	text, there := in.now[f.Target]
	if !there {
		if text = f.Text; !f.Exists {
			return part{}, fmt.Errorf("%w: %s is not there", ErrInclude, path)
		}
	}

	root, err := parseSettings(text)
	if err != nil {
		return part{}, fmt.Errorf("%s: %w", path, err)
	}

	return part{path, text, root.Open, root.End}, nil
}

// named are the files that an object includes, in order.
func (p part) named() ([]string, error) {
	v, ok := p.member(includeKey)
	if !ok {
		return nil, nil
	}

	list := []jsontext.Item{{Value: v.from, End: v.to}}
	if p.text[v.from] == '[' {
		list = jsontext.Read(p.text, v.from).Items
	}

	var files []string
	for _, it := range list {
		path := stringAt(p.text, it)
		if path == "" {
			return nil, fmt.Errorf("%w: in %s it names no file", ErrInclude, p.file)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(p.file), path)
		}

		files = append(files, path)
	}

	return files, nil
}

// find gives every place in which the value at these keys is said, the one that counts last.
func (in includes) find(p part, keys ...string) ([]part, error) { return in.follow(p, 0, keys) }

func (in includes) follow(p part, depth int, keys []string) ([]part, error) {
	files, err := p.named()
	if err == nil && depth > includeDepth {
		err = fmt.Errorf("%w: %s is %d deep", ErrInclude, p.file, depth)
	}

	var found []part
	for _, path := range files {
		var q part
		var more []part
		if err == nil {
			q, err = in.load(path)
		}
		if err == nil {
			more, err = in.follow(q, depth+1, keys)
		}

		found = append(found, more...)
	}

	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return append(found, p), nil
	}

	v, ok := p.member(keys[0])
	if !ok {
		return found, nil
	}

	more, err := in.follow(v, depth, keys[1:])
	return append(found, more...), err
}

// wiring is what the settings say of belay's plugin, all their files together.
type wiring struct {
	path, entry bool // load.paths names the folder; the entry is there and has what belay needs
	listed      bool // a list of the plugins that may load is there
	allowed     bool // ... and names belay, or there is none
	denied, off bool
}

func (w wiring) works() bool { return w.path && w.entry && w.allowed }

func (in includes) wiring(root part, folder string) (w wiring, err error) {
	look := func(keys ...string) (list []part) {
		if err == nil {
			list, err = in.find(root, append([]string{"plugins"}, keys...)...)
		}
		return list
	}

	names := func(words string, keys ...string) (there, some bool) {
		for _, p := range look(keys...) {
			there = there || indexOf(p.text, p.from, words) >= 0
			some = some || p.text[p.from] == '[' && len(jsontext.Read(p.text, p.from).Items) > 0
		}
		return there, some
	}

	last := func(word string, keys ...string) bool {
		list := look(keys...)
		return len(list) > 0 && list[len(list)-1].is(word)
	}

	w.path, _ = names(folder, "load", "paths")
	w.allowed, w.listed = names(pluginID, "allow")
	w.allowed = w.allowed || !w.listed // a list that is empty or absent shuts nobody out
	w.denied, _ = names(pluginID, "deny")
	w.off = last("false", "enabled")
	w.entry = last("true", "entries", pluginID, "enabled") &&
		last("true", "entries", pluginID, "hooks", "allowConversationAccess") &&
		!last("false", "entries", pluginID, "hooks", "allowPromptInjection")
	return w, err
}

// spot is a file of the settings and the keys that lead to the plugins in it.
type spot struct {
	settings.File
	keys []string
}

// spots are the files in which belay's plugin may stand, the one where it goes now first: the main file, and before
// it the file that has all of the plugins and nothing else.
func (a *Agent) spots(s settings.File) ([]spot, error) {
	list := []spot{{s, []string{"plugins"}}}
	text := filled(s.Text)
	root, err := parseSettings(text)
	if err != nil {
		return list, err
	}

	home := filepath.Dir(s.Target)
	p, ok := part{s.Path, text, root.Open, root.End}.member("plugins")
	if !ok {
		return list, nil
	}

	for range includeDepth {
		files, err := p.named()
		v, _ := p.member(includeKey)
		if err != nil || len(files) != 1 || p.text[v.from] == '[' || len(jsontext.Read(p.text, p.from).Items) != 1 {
			return list, err
		}

		f, err := a.files().Read(files[0])
		switch {
		case err != nil:
			return list, err
		case !f.Exists:
			return list, fmt.Errorf("%w: %s is not there", ErrInclude, files[0])
		case !strings.HasPrefix(f.Target, home+string(filepath.Separator)):
			return list, nil // one that several machines share, it may be: OpenClaw does not write there
		}

		if root, err = parseSettings(f.Text); err != nil {
			return list, fmt.Errorf("%s: %w", files[0], err)
		}

		p = part{files[0], f.Text, root.Open, root.End}
		list = append([]spot{{f, nil}}, list...)
	}

	return list, fmt.Errorf("%w: %s is too deep", ErrInclude, p.file)
}

// wired says what the settings would say of belay's plugin if the text of one of their files were this.
func (a *Agent) wired(s settings.File, at spot, text []byte) (wiring, error) {
	in := includes{read: a.files().Read, now: map[string][]byte{s.Target: filled(s.Text)}}
	in.now[at.Target] = text
	root, err := in.load(s.Path)
	if err != nil {
		return wiring{}, err
	}
	return in.wiring(root, a.pluginFolder())
}
