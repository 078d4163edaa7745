package repair

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"belay/internal/jsontext"
)

// ErrNoHeader is returned by a Form for a file that may begin with any record.
var ErrNoHeader = errors.New("no header is needed")

// judge turns what was found into edits and into the agent's answer.
func (s *scan) judge() error {
	calls := s.calls()
	for _, c := range calls {
		if len(s.x.OpenCalls) < maxListed {
			s.x.OpenCalls = append(s.x.OpenCalls, OpenCall{c.ID, c.Name, c.line, c.off})
		}
	}

	lost, names, err := s.name()
	if err != nil {
		return err
	}

	tree := s.form.ParentKey != ""
	if tree {
		s.mend(lost)
	}
	if err := s.recall(names); err != nil {
		return err
	}

	made := map[int32]string{} // the parent of what hung on a record whose calls were closed
	if err := s.closeCalls(calls, made); err != nil {
		return err
	}

	if tree {
		if err := s.relink(made); err != nil {
			return err
		}
	}

	headless, err := s.begin()
	if err != nil {
		return err
	}

	s.settle()
	s.answer(headless)
	return nil
}

// name chooses what the calls of lone results are called. Where the record that the result hangs on is not there, it
// was the call's: it gets its name back (lost). Else the call is put in between.
func (s *scan) name() (lost map[uint64]bool, names map[string]string, err error) {
	lost, names = map[uint64]bool{}, map[string]string{}
	if s.form.Recall == nil {
		return lost, names, nil
	}

	for _, l := range s.orphans() {
		if l.node == none {
			continue
		}

		data, err := s.read(l.place)
		if err != nil {
			return nil, nil, err
		}

		f, _ := s.fact(data)
		names[l.Call] = Name("call " + l.Call)
		if s.form.Recall(data, l.Result, names[l.Call], "") == nil {
			delete(names, l.Call)
			continue
		}

		parent := hash(f.Parent)
		if _, there := s.index[parent]; parent != 0 && !there && !lost[parent] {
			lost[parent], names[l.Call] = true, f.Parent
		}
	}

	return lost, names, nil
}

// recall makes the calls of lone results.
func (s *scan) recall(names map[string]string) error {
	if s.form.Recall == nil {
		return nil
	}

	for _, l := range s.orphans() {
		data, err := s.read(l.place)
		if err != nil {
			return err
		}

		name, parent := names[l.Call], ""
		if l.node != none {
			n := &s.nodes[l.node]
			switch {
			case hash(name) == n.parent:
				parent = s.beside(s.childOf(n.parent, l.node), n.parent)
			case n.under != "": // another result of the record has its call made already
				parent, n.under = n.under, name
			default:
				if parent = s.nameOf(n.to); n.to == none && n.moved == "" {
					f, _ := s.fact(data)
					parent = f.Parent // what was lost and has its name back, or nothing
				}
				n.under = name
			}
		}

		record := s.form.Recall(data, l.Result, name, parent)
		if record == nil {
			continue
		}

		s.edit(edit{place: place{l.line, l.off, 0}, with: append(record, '\n'), action: RemakeCall,
			what: fmt.Sprintf("call %s %s is made again before its result; what it asked for is lost", l.Name, l.Call)})
	}

	return s.err
}

// beside names a record before one in its thread that does not itself hang on a lost parent; empty when there is none.
func (s *scan) beside(i int32, lost uint64) string {
	const tries = 20 // the nearest ones; a file in disorder begins a new thread there
	for j, n := i-1, 0; j >= 0 && n < tries; j-- {
		if s.nodes[j].lane != s.nodes[i].lane {
			continue
		}

		n++
		root := j
		for s.nodes[root].to != none {
			root = s.nodes[root].to
		}

		if s.nodes[root].parent != lost {
			return s.nameOf(j)
		}
	}

	return ""
}

// childOf is the first record that names a parent; other when it is that.
func (s *scan) childOf(parent uint64, other int32) int32 {
	for i := range other {
		if s.nodes[i].parent == parent {
			return i
		}
	}
	return other
}

func (s *scan) nameOf(i int32) string {
	if i == none {
		return ""
	}

	data, err := s.read(s.nodes[i].place)
	if err != nil {
		s.err = err
	}

	f, _ := s.fact(data)
	return f.Node
}

// closeCalls makes results for the open calls. Made says for each record behind which they were put what follows it
// now.
func (s *scan) closeCalls(calls []asked, made map[int32]string) error {
	if len(calls) == 0 || s.form.Close == nil {
		return nil
	}

	tail := map[int32]int32{} // the newest result of a record's calls, or the record itself
	for _, c := range calls {
		if c.node != none {
			tail[c.node] = c.node
		}
	}

	s.tails(tail)
	for _, c := range calls {
		data, err := s.read(c.place)
		if err != nil {
			return err
		}

		at, parent := c.place, ""
		if c.node != none {
			end := tail[c.node]
			at = s.nodes[end].place
			if parent = made[end]; parent == "" || !s.form.Chained {
				parent = s.nameOf(end)
			}
		}

		record, name := s.form.Close(data, c.Call, parent)
		if record == nil {
			continue
		}

		s.edit(edit{place: place{at.line, at.end(), 0}, with: append([]byte("\n"), record...), action: CloseCall,
			what: fmt.Sprintf("call %s %s gets a result: interrupted, outcome not known", c.Name, c.ID)})
		if c.node != none {
			made[tail[c.node]] = name
		}
	}

	return s.err
}

// tails follows the results of calls where they follow one another.
func (s *scan) tails(tail map[int32]int32) {
	if !s.form.Chained {
		return
	}

	owner := map[int32]int32{}
	for c := range tail {
		owner[c] = c
	}

	for i, n := range s.nodes {
		if c, ok := owner[n.to]; ok && n.result && n.to != none {
			tail[c] = int32(i)
			owner[int32(i)] = c
		}
	}
}

// relink writes down the parents that were mended, and those of records that follow a made result now.
func (s *scan) relink(made map[int32]string) error {
	for _, n := range s.nodes {
		what, moved, parent := "", n.moved, ""
		if n.under != "" {
			parent, moved, what = n.under, RemakeCall, "the result follows the call that was made for it"
		} else if behind, ok := made[n.to]; ok && n.to != none && !n.result &&
			(n.group == 0 || n.group != s.nodes[n.to].group) {
			parent, what = behind, "it follows the result that was made for the call before"
			moved = cmp.Or(moved, CloseCall)
		} else if moved != "" {
			parent = s.nameOf(n.to)
			what = "its parent is not in the file: it follows the record before it"
			if moved == Uncycle {
				what = "its parents go in a circle: it follows the record before it"
			}
		}

		if moved == "" {
			continue
		}
		if err := s.reparent(n.place, parent, moved, what); err != nil {
			return err
		}
	}
	return s.err
}

// reparent edits the name of a record's parent.
func (s *scan) reparent(at place, parent string, a Action, what string) error {
	data, err := s.read(at)
	if err != nil {
		return err
	}

	m, ok := jsontext.Read(data, 0).Find(s.form.ParentKey)
	if !ok || m.End < 0 {
		return nil
	}

	value := []byte("null")
	if parent != "" {
		if value, err = json.Marshal(parent); err != nil {
			return err
		}
	}

	if bytes.Equal(value, data[m.Value:m.End]) {
		return nil
	}

	s.edit(edit{place: place{at.line, at.off + int64(m.Value), int64(m.End - m.Value)}, with: value, action: a,
		what: what})
	return nil
}

// begin sees to the file's first record, and says why there is none and none can be made.
func (s *scan) begin() (headless error, err error) {
	if s.x.Records == 0 {
		return nil, nil
	}

	var head [3]byte
	if n, _ := s.r.ReadAt(head[:], 0); string(head[:n]) == mark && s.form.Symptoms[TrimMark] != "" {
		s.edit(edit{place: place{1, 0, int64(len(mark))}, action: TrimMark,
			what: "a byte-order mark stands before the first record"})
	}
	if s.header || s.form.Header == nil {
		return nil, nil
	}

	var first [][]byte
	for _, p := range s.first {
		data, err := s.read(p)
		if err != nil {
			return nil, err
		}
		first = append(first, data)
	}

	record, headless := s.form.Header(s.x.path, s.stub, first)
	switch {
	case errors.Is(headless, ErrNoHeader):
		return nil, nil
	case headless != nil:
		return headless, nil
	}

	s.edit(edit{place: place{1, 0, 0}, with: append(record, '\n'), action: MakeHeader,
		what: "the first record is made again from what the others say"})
	return nil, nil
}

// settle orders the edits, leaves out what another one covers, and tells them.
func (s *scan) settle() {
	slices.SortStableFunc(s.edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(min(a.size, 1), min(b.size, 1)),
			cmp.Compare(a.rank(), b.rank()))
	})

	done := int64(0)
	s.x.edits = []edit{}
	for _, e := range s.edits {
		if e.off < done {
			gone := min(done-e.off, e.size)
			e.off, e.size = e.off+gone, e.size-gone
		}
		if e.off < done || e.size == 0 && len(e.with) == 0 {
			continue
		}

		done = e.end()
		s.x.edits = append(s.x.edits, e)
		s.x.Changes = append(s.x.Changes, Change{e.line, e.off, e.size, e.action, e.what})
	}

	s.edits = nil
}

// rank orders what is put in at one place: what follows a record, its line end, what comes before the next one.
func (e edit) rank() int {
	switch e.action {
	case CloseCall:
		return 0
	case RemakeCall, MakeHeader:
		return 2
	}
	return 1
}

// answer says whether the agent would take the session up again.
func (s *scan) answer(headless error) {
	x := s.x
	seen := map[string]int{}
	for _, c := range x.Changes {
		why := s.form.Symptoms[c.Action]
		if why == "" {
			continue
		}
		if seen[why]++; seen[why] == 1 {
			x.WhyNot = append(x.WhyNot, fmt.Sprintf("line %d: %s", c.Line, why))
		}
	}

	for i, line := range x.WhyNot {
		_, why, _ := strings.Cut(line, ": ")
		if n := seen[why]; n > 1 {
			x.WhyNot[i] = fmt.Sprintf("%s (and %d more)", line, n-1)
		}
	}

	if headless != nil {
		x.WhyNot = append(x.WhyNot, fmt.Sprintf("the first record is missing, and cannot be made again: %v", headless))
	}
	if s.talks == 0 {
		x.WhyNot = append(x.WhyNot, silent)
	}

	x.Resumable = len(x.WhyNot) == 0
}

const silent = "no word of a conversation is in it"
