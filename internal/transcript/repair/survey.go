package repair

import (
	"cmp"
	"maps"
	"slices"

	"belay/checkpoint"
)

// node is a record in the tree of records.
type node struct {
	place
	id     uint64 // hashes; 0 is none
	parent uint64
	group  uint64
	lane   uint64
	result bool
	to     int32  // the record that it follows, mended; or none
	moved  Action // why that is another one than it says
	under  string // the call that was made for it, which it follows now
}

const none = -1

// asked is a call whose result was not met.
type asked struct {
	Call
	place
	node int32 // of its record; none outside of the tree
}

// lone is a result whose call was not met.
type lone struct {
	Result
	place
	node int32
}

// survey is what is remembered of the records: a little of each, by hash.
type survey struct {
	nodes  []node
	keys   map[uint64]bool
	index  map[uint64]int32 // of nodes, by their names
	alias  map[uint64]uint64
	open   map[string]asked
	done   map[uint64]bool
	lones  map[string]lone
	talks  int
	first  []place // the first records, from which a header may be made
	header bool    // the first record is one
	edits  []edit
}

const firstRecords = 40

func newSurvey() survey {
	return survey{keys: map[uint64]bool{}, index: map[uint64]int32{}, alias: map[uint64]uint64{},
		open: map[string]asked{}, done: map[uint64]bool{}, lones: map[string]lone{}}
}

// edit replaces the bytes of a place.
type edit struct {
	place
	with   []byte
	action Action
	what   string
}

func (s *survey) edit(e edit) { s.edits = append(s.edits, e) }

func hash(s string) uint64 {
	if s == "" {
		return 0
	}
	return max(checkpoint.Hash(s), 1)
}

// record takes one whole record. Whole is what goes when it is dropped.
func (s *scan) record(f Fact, at, whole place) {
	if key := hash(f.Key); key != 0 {
		if s.keys[key] {
			s.repeat(f, whole)
			return
		}
		s.keys[key] = true
	}

	s.x.Records++
	if s.x.Records == 1 {
		s.header = f.Header
	}
	if len(s.first) < firstRecords {
		s.first = append(s.first, at)
	}
	if f.Compaction {
		s.x.Compactions++
	}
	if f.Talk {
		s.talks++
	}

	me := s.place(f, at)
	for _, c := range f.Calls {
		s.call(c, at, me)
	}

	for _, r := range f.Results {
		s.result(r, at, me)
	}
}

// repeat drops a record that was there before. What names it as its parent from now on may mean this place: the loader
// that wrote the repeat had gone on from here.
func (s *scan) repeat(f Fact, whole place) {
	s.x.Repeats++
	s.edit(edit{place: whole, action: DropRepeat, what: "a record that stands before"})
	id, parent := hash(f.Node), hash(f.Parent)
	if i, ok := s.index[id]; ok && parent != 0 && parent != id && parent != s.nodes[i].parent {
		s.alias[id] = parent
	}
}

// place puts a record into the tree.
func (s *survey) place(f Fact, at place) int32 {
	id := hash(f.Node)
	if id == 0 {
		return none
	}

	me := int32(len(s.nodes))
	n := node{place: at, id: id, parent: hash(f.Parent), lane: hash(f.Lane), group: hash(f.Group),
		result: len(f.Results) > 0, to: none}
	if other, ok := s.alias[n.parent]; ok && other != id {
		n.parent, n.moved = other, Relink
	}
	if _, known := s.index[id]; !known {
		s.index[id] = me
	}

	s.nodes = append(s.nodes, n)
	return me
}

// call and result pair by id, in whichever order they stand: the file's is not always that of time.
func (s *survey) call(c Call, at place, me int32) {
	key := hash(c.ID)
	if key == 0 || s.done[key] {
		return
	}

	if _, ended := s.lones[c.ID]; ended {
		delete(s.lones, c.ID)
		s.done[key] = true
		return
	}

	s.open[c.ID] = asked{c, at, me} // one that is told twice, as asked for and as begun, is where it began
}

func (s *survey) result(r Result, at place, me int32) {
	key := hash(r.Call)
	if key == 0 || s.done[key] {
		return
	}

	if _, known := s.open[r.Call]; known {
		delete(s.open, r.Call)
		s.done[key] = true
		return
	}

	if _, known := s.lones[r.Call]; !known {
		s.lones[r.Call] = lone{r, at, me}
	}
}

// calls are the open ones, as they stand in the file.
func (s *survey) calls() []asked {
	return slices.SortedFunc(maps.Values(s.open),
		func(a, b asked) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.ID, b.ID)) })
}

// orphans are the results without a call, as they stand in the file.
func (s *survey) orphans() []lone {
	return slices.SortedFunc(maps.Values(s.lones),
		func(a, b lone) int { return cmp.Or(cmp.Compare(a.off, b.off), cmp.Compare(a.Call, b.Call)) })
}
