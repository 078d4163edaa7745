package openclaw

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"belay/internal/jsontext"
)

// OpenClaw's settings may be cut into files: where an object has the key $include, the files that it names are merged in
// order, and the object's own members over them. Objects merge, lists are joined, of single values the last one counts.
//
// OpenClaw writes a part that is one $include and nothing else into the file that it names, and refuses to once something
// stands beside it. belay's entry goes where OpenClaw would put it; in all other forms it may stand in the main file.

// ErrInclude: an $include cannot be followed. Nothing is written; OpenClaw does not start with such settings either.
var ErrInclude = errors.New("$include of the settings cannot be followed")

const (
	includeKey   = "$include"
	includeDepth = 10 // as OpenClaw has it
)

// part is a value of the settings, in the file where it stands.
type part struct {
	file, text string
	value      value
}

// is says whether the value is this word.
func (p part) is(word string) bool { return p.text[p.value.start:p.value.end] == word }

// includes reads settings with what they include.
type includes struct {
	read func(path string) (jsontext.File, error)
	now  map[string]string // texts that count in place of a file's own
}

// load reads one file of the settings.
func (in includes) load(path string) (part, error) {
	f, err := in.read(path)
	if err != nil {
		return part{}, err
	}
	text, there := in.now[f.Target]
	if !there {
		if text = string(f.Text); !f.Exists {
			return part{}, fmt.Errorf("%w: %s is not there", ErrInclude, path)
		}
	}
	root, err := parseSettings(text)
	if err != nil {
		return part{}, fmt.Errorf("%s: %w", path, err)
	}
	return part{path, text, root}, nil
}

// named are the files that an object includes, in order.
func (p part) named() ([]string, error) {
	v, ok := p.value.member(includeKey)
	if !ok {
		return nil, nil
	}
	list := []value{v}
	if v.kind == '[' {
		list = nil
		for _, it := range v.items {
			list = append(list, it.value)
		}
	}
	var files []string
	for _, v := range list {
		path := v.words(p.text)
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
	v, ok := p.value.member(keys[0])
	if !ok {
		return found, nil
	}
	more, err := in.follow(part{p.file, p.text, v}, depth, keys[1:])
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
			there = there || p.value.index(p.text, words) >= 0
			some = some || p.value.kind == '[' && len(p.value.items) > 0
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
	w.entry = last("true", "entries", pluginID, "enabled") && last("true", "entries", pluginID, "hooks", "allowConversationAccess") &&
		!last("false", "entries", pluginID, "hooks", "allowPromptInjection")
	return w, err
}

// spot is a file of the settings and the keys that lead to the plugins in it.
type spot struct {
	jsontext.File
	keys []string
}

// spots are the files in which belay's plugin may stand, the one where it goes now first: the main file, and before it the
// file that has all of the plugins and nothing else.
func (a *Agent) spots(s jsontext.File) ([]spot, error) {
	list := []spot{{s, []string{"plugins"}}}
	root, err := parseSettings(blank(string(s.Text)))
	if err != nil {
		return list, err
	}
	home := filepath.Dir(s.Target)
	p, ok := part{file: s.Path, text: string(s.Text)}, false
	if p.value, ok = root.member("plugins"); !ok {
		return list, nil
	}
	for range includeDepth {
		files, err := p.named()
		v, _ := p.value.member(includeKey)
		if err != nil || len(files) != 1 || v.kind == '[' || len(p.value.items) != 1 {
			return list, err
		}
		f, err := a.settings().Read(files[0])
		switch {
		case err != nil:
			return list, err
		case !f.Exists:
			return list, fmt.Errorf("%w: %s is not there", ErrInclude, files[0])
		case !strings.HasPrefix(f.Target, home+string(filepath.Separator)):
			return list, nil // one that several machines share, it may be: OpenClaw does not write there
		}
		p = part{file: files[0], text: string(f.Text)}
		if p.value, err = parseSettings(p.text); err != nil {
			return list, fmt.Errorf("%s: %w", files[0], err)
		}
		list = append([]spot{{f, nil}}, list...)
	}
	return list, fmt.Errorf("%w: %s is too deep", ErrInclude, p.file)
}

// wired says what the settings would say of belay's plugin if the text of one of their files were this.
func (a *Agent) wired(s jsontext.File, at spot, text string) (wiring, error) {
	in := includes{read: a.settings().Read, now: map[string]string{}}
	if !s.Exists || strings.TrimSpace(string(s.Text)) == "" {
		in.now[s.Target] = "{}"
	}
	in.now[at.Target] = text
	root, err := in.load(s.Path)
	if err != nil {
		return wiring{}, err
	}
	return in.wiring(root, a.pluginFolder())
}

// blank is what an empty file stands for.
func blank(text string) string {
	if strings.TrimSpace(text) == "" {
		return "{}\n"
	}
	return text
}
