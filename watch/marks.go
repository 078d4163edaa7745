package watch

import (
	"container/heap"
	"time"
)

// marks holds at most one pending mark for each path and says when it is due: quiet after the newest change, but never
// later than longest after the first one. Without the second rule a file that is written all the time would never be
// read.
type marks struct {
	quiet, longest time.Duration
	byPath         map[string]*mark
	queue          markQueue
}

type mark struct {
	path  string
	first time.Time
	due   time.Time
	index int // place in the queue
}

func newMarks(quiet, longest time.Duration) *marks {
	return &marks{quiet: quiet, longest: longest, byPath: make(map[string]*mark)}
}

// add notes that a path may have changed. A mark that is due already stays due: who takes it reads the newest bytes.
func (m *marks) add(path string, now time.Time) {
	p, ok := m.byPath[path]
	if !ok {
		p = &mark{path: path, first: now, due: now.Add(min(m.quiet, m.longest))}
		m.byPath[path] = p
		heap.Push(&m.queue, p)
		return
	}

	if !p.due.After(now) {
		return
	}

	p.due = now.Add(m.quiet)
	if last := p.first.Add(m.longest); last.Before(p.due) {
		p.due = last
	}

	heap.Fix(&m.queue, p.index)
}

func (m *marks) has(path string) bool { return m.byPath[path] != nil }

// next is when the earliest mark is due; the zero time when there is none.
func (m *marks) next() time.Time {
	if len(m.queue) == 0 {
		return time.Time{}
	}
	return m.queue[0].due
}

// take removes and returns the earliest mark that is due.
func (m *marks) take(now time.Time) (path string, ok bool) {
	if len(m.queue) == 0 || m.queue[0].due.After(now) {
		return "", false
	}
	p := heap.Pop(&m.queue).(*mark)
	delete(m.byPath, p.path)
	return p.path, true
}

// drop forgets a path.
func (m *marks) drop(path string) {
	if p, ok := m.byPath[path]; ok {
		heap.Remove(&m.queue, p.index)
		delete(m.byPath, path)
	}
}

// markQueue is a heap by due time.
type markQueue []*mark

func (q markQueue) Len() int           { return len(q) }
func (q markQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q markQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *markQueue) Push(x any) {
	p := x.(*mark)
	p.index = len(*q)
	*q = append(*q, p)
}

func (q *markQueue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}
