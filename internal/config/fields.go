package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is one setting as its tags describe it.
type field struct {
	key    string // gates.sparse.time
	index  []int  // where it stands in Settings, as reflect counts
	env    string // BELAY_GATES_SPARSE_TIME
	help   string
	kind   string // what it is, in words: "a duration"
	such   string // an example in words: " such as 5m"
	form   string
	atMost string // the key that it may not pass
	zero   any    // of its type
	def    any    // default
	min    any    // nil is none
	max    any
	oneOf  []string
}

// fields reads the tags of Settings, in their order. A tag that does not fit its type is a broken invariant.
func fields() []*field { return walk(reflect.TypeFor[Settings](), "", nil) }

func walk(t reflect.Type, prefix string, index []int) []*field {
	var all []*field
	for i := range t.NumField() {
		sf := t.Field(i)
		key, at := prefix+sf.Tag.Get("key"), append(slices.Clone(index), i)
		if sf.Type.Kind() == reflect.Struct {
			all = append(all, walk(sf.Type, key+".", at)...)
			continue
		}

		f := &field{
			key:    key,
			index:  at,
			env:    envName(key),
			help:   help[key],
			form:   sf.Tag.Get("form"),
			atMost: sf.Tag.Get("atmost"),
			zero:   reflect.Zero(sf.Type).Interface(),
		}

		f.describe()
		if choices, ok := sf.Tag.Lookup("oneof"); ok {
			f.oneOf = strings.Split(choices, ",")
		}

		f.def = f.tag(sf, "default")
		f.min, f.max = f.tag(sf, "min"), f.tag(sf, "max")
		all = append(all, f)
	}

	return all
}

func (f *field) describe() {
	switch f.zero.(type) {
	case time.Duration:
		f.kind, f.such = "a duration", " such as 30s, 5m, 12h, 30d or 2w"
	case Size:
		f.kind, f.such = "a size", " such as 512KB, 64MB or 2GB"
	case int:
		f.kind = "a whole number"
	case bool:
		f.kind = "true or false"
	case []string:
		f.kind = "a list of"
	default:
		f.kind = "a text"
	}
	switch f.form {
	case "abs":
		f.kind = "an absolute path"
	case "cron":
		f.kind, f.such = "a cron line", ` such as "@every 30m", "@hourly" or "*/30 * * * *"`
	}
}

func (f *field) tag(sf reflect.StructField, name string) any {
	text, ok := sf.Tag.Lookup(name)
	if !ok {
		return nil
	}

	value, err := f.parse(text)
	if err != nil {
		panic(fmt.Sprintf("config: %s: tag %s: %q %v", f.key, name, text, err))
	}

	return value
}

// allowed says in words what the field takes.
func (f *field) allowed() string {
	if _, many := f.zero.([]string); many {
		return f.kind + " " + strings.Join(f.oneOf, ", ")
	}
	if len(f.oneOf) > 0 {
		last := len(f.oneOf) - 1
		return strings.Join(f.oneOf[:last], ", ") + " or " + f.oneOf[last]
	}

	s := f.kind + f.such
	if f.min != nil {
		s += ", at least " + text(f.min)
	}
	if f.max != nil {
		s += ", at most " + text(f.max)
	}
	if f.atMost != "" {
		s += ", at most " + f.atMost
	}

	return s
}

func envName(key string) string {
	return "BELAY_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// nearest gives the name that was meant, or "". It is a help for people: a few typing errors, or a key without its
// section.
func nearest(name string, known []string) string {
	best, least := "", max(2, len(name)/5)+1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}

	if best == "" {
		ends := func(k string) bool { return name != "" && strings.HasSuffix(k, "."+name) }
		if i := slices.IndexFunc(known, ends); i >= 0 {
			return known[i]
		}
	}

	return best
}

// distance counts the bytes to insert, remove or change (Levenshtein). Long names are far from everything.
func distance(a, b string) int {
	if len(a) > 100 {
		return len(a)
	}

	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
