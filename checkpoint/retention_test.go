package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// metas reads "F10 S5 s0": FULL of 10 bytes, SPARSE of 5, numbered from 1, one hour apart, the last one an hour before
// now.
func metas(t *testing.T, text string, now time.Time) []Meta {
	t.Helper()
	words := strings.Fields(text)
	var list []Meta
	for i, w := range words {
		m := Meta{Number: uint64(i + 1), Level: Sparse, At: now.Add(-time.Duration(len(words)-i) * time.Hour)}
		if w[0] == 'F' {
			m.Level = Full
		}
		if _, err := fmt.Sscanf(w[1:], "%d", &m.Bytes); err != nil {
			t.Fatalf("bad word %q: %v", w, err)
		}

		list = append(list, m)
	}

	return list
}

func TestG05PruneWholeChains(t *testing.T) {
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name string
		list string
		p    Policy
		want []uint64
	}{
		{"no bounds", "F1 S1 S1 F1", Policy{}, nil},
		{"nothing stored", "", Policy{Count: 1}, nil},
		{"within all bounds", "F1 S1 F1", Policy{Count: 3, Bytes: 3, Age: 24 * time.Hour}, nil},
		{"one over the count takes the whole chain", "F1 S1 S1 F1 S1", Policy{Count: 4}, []uint64{2, 3, 1}},
		{"one byte over takes the whole chain", "F9 S1 S1 F9 S1", Policy{Bytes: 20}, []uint64{2, 3, 1}},
		{"oldest chain first", "F1 F1 F1 F1", Policy{Count: 2}, []uint64{1, 2}},
		{"a chain stays while its newest SPARSE is young", "F1 S1 S1 F1", Policy{Age: 150 * time.Minute}, nil},
		{"a chain goes when its newest SPARSE is old", "F1 S1 F1 F1", Policy{Age: 150 * time.Minute}, []uint64{2, 1}},
		{"the last FULL never goes", "F9", Policy{Count: 1, Bytes: 1, Age: time.Minute}, nil},
		{"old and alone", "F1 S1 S1", Policy{Age: time.Minute}, []uint64{2}},
		{"the last chain gives its SPARSEs, oldest first", "F5 S1 S1 S1", Policy{Bytes: 7}, []uint64{2}},
		{"the bytes win over the last SPARSE", "F5 S5", Policy{Bytes: 6}, []uint64{2}},
		{"the last FULL stays below younger SPARSEs", "F5 S1 S1", Policy{Count: 1}, []uint64{2, 3}},
		{"an empty FULL is not good", "F5 S1 F0", Policy{Count: 1}, []uint64{2, 3}},
		{"an empty FULL goes with its SPARSEs", "F5 F0 S1 F5", Policy{Count: 2}, []uint64{1, 3, 2}},
		{"SPARSEs before the first FULL are oldest", "S1 S1 F5 S1", Policy{Count: 3}, []uint64{1, 2}},
		{"no FULL at all keeps the newest", "S1 S1 S1", Policy{Count: 1}, []uint64{1, 2}},
		{"no good FULL keeps the newest good", "S1 S1 F0", Policy{Count: 1}, []uint64{1, 3}},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			list := metas(t, tt.list, now)
			slices.Reverse(list) // as a store gives it
			if got := Prune(list, tt.p, now); !slices.Equal(got, tt.want) {
				t.Errorf("Prune(%s, %+v) = %v, want %v", tt.list, tt.p, got, tt.want)
			}
		})
	}
}

func TestPruneClockSetBack(t *testing.T) {
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	list := metas(t, "F1 F1 F1", now)
	list[0].At = now.Add(1000 * time.Hour)
	list[1].At = time.Time{}
	if got := Prune(list, Policy{Age: time.Hour}, now); got != nil {
		t.Errorf("by age: got %v, want nothing: no age is known", got)
	}
	if got, want := Prune(list, Policy{Count: 1}, now), []uint64{1, 2}; !slices.Equal(got, want) {
		t.Errorf("by count: got %v, want %v", got, want)
	}
}

// The rules hold for any list and any bounds, and after each single deletion, as a crash in the middle leaves it.
func TestG05PruneAnyList(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	for range 3000 {
		words := []string{"F5"}
		for range rnd.IntN(12) {
			words = append(words, []string{"F5", "F0", "S1", "S2", "S0"}[rnd.IntN(5)])
		}

		text := strings.Join(words, " ")
		p := Policy{Count: rnd.Int64N(9), Bytes: rnd.Int64N(30), Age: time.Duration(rnd.IntN(9)) * time.Hour}
		list := metas(t, text, now)
		checkPrune(t, text, list, p, now)
	}
}

func checkPrune(t *testing.T, text string, list []Meta, p Policy, now time.Time) {
	t.Helper()
	fullOf := map[uint64]uint64{} // SPARSE -> the FULL it needs
	var full, lastGood uint64
	for _, m := range list {
		if m.Level == Full {
			full = m.Number
			if m.Bytes > 0 {
				lastGood = m.Number
			}
		} else {
			fullOf[m.Number] = full
		}
	}

	kept := map[uint64]Meta{}
	for _, m := range list {
		kept[m.Number] = m
	}

	for _, n := range Prune(list, p, now) {
		if _, ok := kept[n]; !ok {
			t.Fatalf("%s %+v: %d deleted twice", text, p, n)
		}

		delete(kept, n)
		for sparse, full := range fullOf {
			_, keptSparse := kept[sparse]
			if _, keptFull := kept[full]; keptSparse && !keptFull {
				t.Fatalf("%s %+v: after deleting %d, SPARSE %d outlives FULL %d", text, p, n, sparse, full)
			}
		}
	}

	if _, ok := kept[lastGood]; !ok {
		t.Fatalf("%s %+v: the last good FULL %d is gone", text, p, lastGood)
	}

	var bytes int64
	for _, m := range kept {
		bytes += m.Bytes
	}

	if len(kept) > 1 && (p.Count > 0 && int64(len(kept)) > p.Count || p.Bytes > 0 && bytes > p.Bytes) {
		t.Fatalf("%s %+v: %d kept with %d bytes", text, p, len(kept), bytes)
	}
}

func TestG04BudgetHoldsAtEachStep(t *testing.T) {
	const budget = 5_000_000
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	now := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	p := Policy{Bytes: budget}
	stored := map[uint64]Meta{}
	var bytes, most int64
	for n := uint64(1); n <= 10_000; n++ {
		now = now.Add(time.Minute)
		next := Meta{Number: n, Level: Sparse, At: now, Bytes: 1 + rnd.Int64N(300_000)}
		if n%7 == 1 {
			next.Level = Full
		}

		var list []Meta
		for _, m := range stored {
			list = append(list, m)
		}

		for _, d := range Prune(list, p.Room(next.Bytes), now) {
			bytes -= stored[d].Bytes
			delete(stored, d)
		}

		stored[n] = next
		bytes += next.Bytes
		most = max(most, bytes)
		if bytes > budget {
			t.Fatalf("step %d: %d bytes stored, budget %d", n, bytes, budget)
		}
	}

	if most < budget/2 {
		t.Errorf("never more than %d bytes of a budget of %d were used: too much is deleted", most, budget)
	}
}

func TestPolicyRoom(t *testing.T) {
	tests := []struct {
		p    Policy
		size int64
		want Policy
	}{
		{Policy{}, 100, Policy{}},
		{Policy{Count: 5, Bytes: 500, Age: time.Hour}, 100, Policy{Count: 4, Bytes: 400, Age: time.Hour}},
		{Policy{Count: 1, Bytes: 50}, 100, Policy{Count: 1, Bytes: 1}},
	}
	for _, tt := range tests {
		if got := tt.p.Room(tt.size); got != tt.want {
			t.Errorf("%+v.Room(%d) = %+v, want %+v", tt.p, tt.size, got, tt.want)
		}
	}
}
