package checkpoint

import (
	"cmp"
	"slices"
	"time"
)

// Policy bounds what one session keeps in a store. A zero field is no bound.
type Policy struct {
	Count int64
	Bytes int64
	Age   time.Duration
}

// Room is the policy to prune by before a checkpoint of size bytes is put: what it leaves has room for one more, so
// that the bounds hold while the new one is written too.
func (p Policy) Room(size int64) Policy {
	// A bound that is used up must not become 0, which is none: 1 leaves only what Prune never takes.
	if p.Count > 0 {
		p.Count = max(p.Count-1, 1)
	}
	if p.Bytes > 0 {
		p.Bytes = max(p.Bytes-size, 1)
	}

	return p
}

// Prune says which numbers of a session's list to delete, in the order to delete them. The list may be in any order.
//
// A FULL and the SPARSEs after it, up to the next FULL, are a chain. Chains go whole, oldest first, SPARSEs before
// their FULL: cut off at any point, no SPARSE has outlived its FULL. Never deleted is the last good FULL (one of 0
// bytes is not good: a full disk left it), whatever the bounds say; the SPARSEs of its own chain go one by one, oldest
// first. The newest checkpoint never goes by age. Where a session has no good FULL at all, its newest good checkpoint
// is kept.
//
// A checkpoint from the future (the clock was set back) has no age; count and bytes bound it.
func Prune(list []Meta, p Policy, now time.Time) []uint64 {
	if len(list) == 0 {
		return nil
	}

	all, newest := units(list)
	left := totals(list)
	var drop []uint64
	kept := all[:0]
	for _, u := range all {
		if p.Age > 0 && u.last != newest && !u.at.IsZero() && now.Sub(u.at) > p.Age {
			drop = u.drop(drop, &left)
		} else {
			kept = append(kept, u)
		}
	}

	for _, u := range kept {
		if (p.Count <= 0 || left.count <= p.Count) && (p.Bytes <= 0 || left.bytes <= p.Bytes) {
			break
		}
		drop = u.drop(drop, &left)
	}

	return drop
}

// unit is what is deleted together.
type unit struct {
	numbers []uint64 // in the order of deletion
	last    uint64   // the highest of them
	at      time.Time
	bytes   int64
}

type total struct{ count, bytes int64 }

func totals(list []Meta) total {
	t := total{count: int64(len(list))}
	for _, m := range list {
		t.bytes += m.Bytes
	}
	return t
}

func (u unit) drop(to []uint64, left *total) []uint64 {
	left.count -= int64(len(u.numbers))
	left.bytes -= u.bytes
	return append(to, u.numbers...)
}

// units cuts a list into what may be deleted together, oldest first, without what is never deleted; newest is the
// highest number of the list.
func units(list []Meta) (all []unit, newest uint64) {
	sorted := slices.SortedFunc(slices.Values(list), func(a, b Meta) int { return cmp.Compare(a.Number, b.Number) })
	newest = sorted[len(sorted)-1].Number
	protected := lastGood(sorted)
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Level != Full {
			n++
		}

		chain := sorted[:n]
		sorted = sorted[n:]
		if !slices.ContainsFunc(chain, func(m Meta) bool { return m.Number == protected }) {
			all = append(all, join(chain))
			continue
		}

		for i, m := range chain {
			if m.Number != protected && (i > 0 || m.Level != Full) {
				all = append(all, join(chain[i:i+1]))
			}
		}
	}

	return all, newest
}

// lastGood is the number that is never deleted.
func lastGood(sorted []Meta) uint64 {
	good := sorted[len(sorted)-1]
	for _, m := range sorted {
		if m.Bytes > 0 && (m.Level == Full || good.Level != Full || good.Bytes == 0) {
			good = m
		}
	}
	return good.Number
}

// join makes one unit of a chain: it is as old as its newest member.
func join(chain []Meta) unit {
	u := unit{last: chain[len(chain)-1].Number}
	for _, m := range chain {
		u.bytes += m.Bytes
		if m.At.After(u.at) {
			u.at = m.At
		}
	}

	if chain[0].Level == Full {
		chain = slices.Concat(chain[1:], chain[:1])
	}

	for _, m := range chain {
		u.numbers = append(u.numbers, m.Number)
	}

	return u
}
