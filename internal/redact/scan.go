package redact

import (
	"slices"
	"strings"
)

// text is one input while it is searched.
type text struct {
	s    string
	json bool // an unescaped quote always ends a string
	done int  // everything before was looked at or is inside a span

	// The end of the string around [from, to], so that many hits in one long string look for it once.
	from, to int
}

// span is one secret: the bytes [start, end). quote says that the mark must be written as a JSON string.
type span struct {
	start, end int
	kind       string
	quote      bool
}

// matcher looks at a trigger found at [at, after) and says what around it is a secret. It looks at a bounded number of
// bytes, or at bytes that become part of the span: that keeps the whole search linear.
type matcher func(t *text, at, after int) (span, bool)

// rule is one line of the table in rules.go. The triggers of a fold rule are lower case and match any case.
type rule struct {
	kind     string
	fold     bool
	triggers []string
	match    matcher
}

// The prefilter looks at three bytes, each folded to one of 32 classes, at every second place; what passes is asked for
// a fourth. Each trigger has at least three bytes, so its first three or the three from its second are seen there.
type index struct {
	class  [256]uint8
	grams  [1 << 15 / 64]uint64 // which three classes begin a hit
	fourth [1 << 15]uint32      // the classes that may follow them
	hits   [1 << 15]uint16      // place in lists
	lists  [][]triggerPlace     // who is hit
}

type triggerPlace struct {
	rule    *rule
	trigger string
	back    int // the trigger began so many bytes before
}

func buildIndex(rules []rule) *index {
	x := &index{lists: make([][]triggerPlace, 1)}
	for c := range 256 {
		b := byte(c)
		switch {
		case isAlpha(b):
			x.class[c] = 1 + (b | 0x20) - 'a'
		case isDigit(b):
			x.class[c] = 27
		case b == '_':
			x.class[c] = 28
		case b == '-':
			x.class[c] = 29
		case b == ':' || b == '/':
			x.class[c] = 30
		case b == '.' || b == '=':
			x.class[c] = 31
		}
	}

	for i := range rules {
		for _, trigger := range rules[i].triggers {
			x.add(triggerPlace{&rules[i], trigger, 1})
			x.add(triggerPlace{&rules[i], trigger, 0})
		}
	}

	for _, places := range x.lists { // earlier places first, then longer triggers
		slices.SortStableFunc(places, func(a, b triggerPlace) int {
			if a.back != b.back {
				return b.back - a.back
			}
			return len(b.trigger) - len(a.trigger)
		})
	}

	return x
}

func (x *index) add(p triggerPlace) {
	part := p.trigger[p.back:]
	lo, hi := uint16(0), uint16(31) // a trigger of three bytes leaves the third open when it is seen from its second
	if len(part) >= 3 {
		lo = uint16(x.class[part[2]])
		hi = lo
	}

	fourth := uint32(1<<32 - 1)
	if len(part) >= 4 {
		fourth = 1 << x.class[part[3]]
	}

	for c := lo; c <= hi; c++ {
		g := uint16(x.class[part[0]])<<10 | uint16(x.class[part[1]])<<5 | c
		x.grams[g>>6] |= 1 << (g & 63)
		x.fourth[g] |= fourth
		if x.hits[g] == 0 {
			x.hits[g] = uint16(len(x.lists))
			x.lists = append(x.lists, nil)
		}

		x.lists[x.hits[g]] = append(x.lists[x.hits[g]], p)
	}
}

// find returns the secrets of the text in order; they do not overlap.
func (t *text) find() []span {
	var spans []span
	s, x := t.s, triggers()
	for i := 0; i+2 < len(s); i += 2 {
		g := uint16(x.class[s[i]]&31)<<10 | uint16(x.class[s[i+1]]&31)<<5 | uint16(x.class[s[i+2]]&31)
		if x.grams[g>>6]&(1<<(g&63)) == 0 {
			continue
		}
		if i+3 < len(s) && x.fourth[g]&(1<<(x.class[s[i+3]]&31)) == 0 {
			continue
		}

		if sp, ok := t.hit(i, x.lists[x.hits[g]]); ok {
			spans = append(spans, sp)
			t.done = sp.end
			i = sp.end - 2
		}
	}

	return spans
}

func (t *text) hit(i int, places []triggerPlace) (span, bool) {
	for _, p := range places {
		at := i - p.back
		after := at + len(p.trigger)
		if at < t.done || after > len(t.s) || !equal(t.s[at:after], p.trigger, p.rule.fold) {
			continue
		}
		if end := markEnd(t.s, at-1); end > 0 {
			t.done = end
			return span{}, false
		}

		sp, ok := p.rule.match(t, at, after)
		if ok && sp.start >= t.done && sp.end > sp.start {
			if sp.kind == "" {
				sp.kind = p.rule.kind
			}
			return sp, true
		}
	}
	return span{}, false
}

func equal(s, trigger string, fold bool) bool {
	if !fold {
		return s == trigger
	}

	for i := range len(trigger) {
		c := s[i]
		if isUpper(c) {
			c |= 0x20
		}
		if c != trigger[i] {
			return false
		}
	}

	return true
}

// limit is the end of what belongs to the place i: the end of its JSON string, or of the text.
func (t *text) limit(i int) int {
	if !t.json {
		return len(t.s)
	}
	if t.from <= i && i <= t.to && t.to > 0 {
		return t.to
	}

	t.from, t.to = i, len(t.s)
	for j := i; j < len(t.s); j++ {
		k := strings.IndexByte(t.s[j:], '"')
		if k < 0 {
			break
		}

		j += k
		n := 0
		for b := j - 1; b >= i && t.s[b] == '\\'; b-- {
			n++
		}

		if n%2 == 0 {
			t.to = j
			break
		}
	}

	return t.to
}

// replace appends the text up to end to dst, with the mark of each span in its place.
func (t *text) replace(dst []byte, spans []span, end int) []byte {
	pos := 0
	for _, sp := range spans {
		if sp.start >= end {
			break
		}

		dst = append(dst, t.s[pos:sp.start]...)
		if sp.quote {
			dst = append(dst, '"')
		}

		dst = appendMark(dst, sp.kind, t.s[sp.start:sp.end])
		if sp.quote {
			dst = append(dst, '"')
		}

		pos = sp.end
	}

	if pos < end {
		dst = append(dst, t.s[pos:end]...)
	}

	return dst
}
