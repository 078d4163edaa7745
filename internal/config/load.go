package config

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"belay/internal/vfs"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the settings file. A real one has some hundred bytes.
const maxFile = 1 << 20

// notSettings are variables of belay that are no settings.
var notSettings = []string{"BELAY_CONFIG", "BELAY_INTERNAL", "BELAY_SESSION"}

// loader lays one layer over the other and collects what is wrong.
type loader struct {
	opt    Options
	fields []*field
	byKey  map[string]*field
	byEnv  map[string]*field
	keys   []string
	envs   []string

	values  map[string]any
	origins map[string]string
	faults  []*Fault
}

func newLoader(opt Options) *loader {
	l := &loader{
		opt: opt, fields: fields(), byKey: make(map[string]*field), byEnv: make(map[string]*field),
		values: make(map[string]any), origins: make(map[string]string),
	}

	for _, f := range l.fields {
		l.byKey[f.key], l.byEnv[f.env] = f, f
		l.keys, l.envs = append(l.keys, f.key), append(l.envs, f.env)
	}

	return l
}

func (l *loader) fault(key, origin, what, allowed string) {
	l.faults = append(l.faults, &Fault{Key: key, Origin: origin, What: what, Allowed: allowed})
}

// set puts one value over what the lower layers gave, if it is good.
func (l *loader) set(f *field, raw, origin string) {
	value, err := f.parse(raw)
	if check := l.opt.Check[f.key]; err == nil && check != nil {
		err = check(raw)
	}
	if err != nil {
		l.fault(f.key, origin, fmt.Sprintf("%s (%s) %v", quote(raw), origin, err), "must be "+f.allowed())
		return
	}

	l.values[f.key], l.origins[f.key] = value, origin
}

func (l *loader) unknown(key, origin string, known []string) {
	hint := "see belay config for all keys"
	if near := nearest(key, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	l.fault(short(key), origin, "unknown key ("+origin+")", hint)
}

func (l *loader) layerDefaults() {
	for _, f := range l.fields {
		l.values[f.key], l.origins[f.key] = f.def, OriginDefault
	}
}

func (l *loader) layerFile() (path string, read bool) {
	path = l.opt.File
	if path == "" {
		return "", false
	}

	data, err := vfs.ReadFile(vfs.OS{}, path, maxFile)
	if errors.Is(err, fs.ErrNotExist) && !l.opt.MustExist {
		return path, false
	}
	if err != nil {
		l.fault("settings file", path, err.Error(), "must be a readable file")
		return path, false
	}

	l.layerYAML(data, path)
	return path, true
}

func (l *loader) layerYAML(data []byte, origin string) {
	var tree map[string]any
	if err := yaml.Unmarshal(data, &tree); err != nil {
		l.fault(
			"settings file", origin,
			"all of "+origin+" is passed over: "+strings.Join(strings.Fields(err.Error()), " "), "must be YAML",
		)
		return
	}

	l.section("", tree, origin, make(map[string]bool))
}

// section goes down through known sections only, so the depth of a file costs nothing.
func (l *loader) section(prefix string, tree map[string]any, origin string, seen map[string]bool) {
	var names []string
	for name := range tree {
		names = append(names, name)
	}

	slices.Sort(names)
	for _, name := range names {
		key, value := prefix+name, tree[name]
		f, sub := l.byKey[key], asMap(value)
		isSection := slices.ContainsFunc(l.keys, func(k string) bool { return strings.HasPrefix(k, key+".") })
		switch {
		case f == nil && !isSection:
			l.unknown(key, origin, append(l.sections(), l.keys...))
		case value == nil: // "key:" without a value
		case isSection && sub == nil:
			l.fault(key, origin, "is a section ("+origin+")", "must hold keys, such as "+l.under(key))
		case isSection:
			l.section(key+".", sub, origin, seen)
		case seen[key]: // gates.sparse.time on one line, and in sections too
			l.fault(key, origin, "is given twice ("+origin+")", "once is enough")
		default:
			seen[key] = true
			raw, ok := scalar(value)
			if !ok {
				l.fault(key, origin, "is not one value ("+origin+")", "must be "+f.allowed())
				continue
			}
			l.set(f, raw, origin)
		}
	}
}

// sections gives the names that hold keys.
func (l *loader) sections() []string {
	var all []string
	for _, key := range l.keys {
		for i := range len(key) {
			if key[i] == '.' && !slices.Contains(all, key[:i]) {
				all = append(all, key[:i])
			}
		}
	}

	return all
}

// under is the first key of a section.
func (l *loader) under(section string) string {
	i := slices.IndexFunc(l.keys, func(k string) bool { return strings.HasPrefix(k, section+".") })
	return l.keys[i]
}

func (l *loader) layerEnv() {
	given := make(map[string]string)
	for _, line := range l.opt.Env {
		name, value, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, "BELAY_") && value != "" {
			given[name] = value
		}
	}

	var names []string
	for name := range given {
		names = append(names, name)
	}

	slices.Sort(names)
	for _, name := range names {
		if f := l.byEnv[name]; f != nil {
			l.set(f, given[name], name)
		} else if !slices.Contains(notSettings, name) && l.meant(name) {
			l.unknown(name, "environment", l.envs)
		}
	}
}

// meant says whether an unknown variable looks like a setting: others may use the prefix for their own ends.
func (l *loader) meant(name string) bool {
	return nearest(name, l.envs) != "" || slices.ContainsFunc(l.keys, func(k string) bool {
		section, _, ok := strings.Cut(k, ".")
		return ok && strings.HasPrefix(name, envName(section)+"_")
	})
}

func (l *loader) layerFlags() {
	var keys []string
	for key := range l.opt.Flags {
		keys = append(keys, key)
	}

	slices.Sort(keys)
	for _, key := range keys {
		if f := l.byKey[key]; f != nil {
			l.set(f, l.opt.Flags[key], OriginFlag)
		} else {
			l.unknown(key, OriginFlag, l.keys)
		}
	}
}

// checkPairs holds values against each other. Whichever of the two is meant, together they make no sense, so both go
// back to their defaults, which do.
func (l *loader) checkPairs() {
	for _, f := range l.fields {
		other := l.byKey[f.atMost]
		if other == nil || number(l.values[f.key]) <= number(l.values[other.key]) {
			continue
		}

		origin := l.origins[f.key]
		if l.origins[other.key] == OriginFlag || origin == OriginDefault {
			origin = l.origins[other.key]
		}

		l.fault(
			f.key,
			origin,
			fmt.Sprintf("%s (%s) is more than %s, %s (%s)", text(l.values[f.key]), l.origins[f.key], other.key,
				text(l.values[other.key]), l.origins[other.key]),
			"must be at most "+other.key,
		)

		for _, back := range []*field{f, other} {
			l.values[back.key], l.origins[back.key] = back.def, OriginDefault
		}
	}
}

// asMap gives a YAML mapping with its keys as text; nil for anything else.
func asMap(value any) map[string]any {
	switch m := value.(type) {
	case map[string]any:
		return m
	case map[any]any: // when some key is no text
		out := make(map[string]any, len(m))
		for k, v := range m {
			out[fmt.Sprint(k)] = v
		}
		return out
	}
	return nil
}

// scalar gives the text of a YAML value as a person would write it; lists are joined by commas.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int, int64, uint64:
		return fmt.Sprint(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case []any:
		var all []string
		for _, one := range v {
			s, ok := one.(string)
			if !ok {
				return "", false
			}
			all = append(all, s)
		}

		return strings.Join(all, ","), true
	}
	return "", false
}

// quote shows a value, and short a name, whatever somebody put there.
func quote(s string) string { return strconv.Quote(cut(s)) }

func short(s string) string {
	if q := quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

func cut(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
