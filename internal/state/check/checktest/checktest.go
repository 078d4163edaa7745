// Package checktest is the oracle of belay's own tests: what a full check of a state folder says when a test is done
// with it. It is not linked into the product.
package checktest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/check"
	"belay/internal/vfs"
)

// Broken lists what is wrong in a state folder on which no daemon works. What a crash left and the next start mends is
// not wrong. A test that breaks a rule itself excuses it.
func Broken(d state.Dir, excused ...check.Rule) []string {
	return list(d, check.Options{}, excused)
}

// Kept is Broken with the retention that was in force from the folder's beginning.
func Kept(d state.Dir, p checkpoint.Policy, excused ...check.Rule) []string {
	return list(d, check.Options{Retention: p}, excused)
}

func list(d state.Dir, o check.Options, excused []check.Rule) (out []string) {
	for f := range check.Check(context.Background(), d, o) {
		if (!f.Note || f.Rule == check.Budget || f.Rule == check.Aside) && !slices.Contains(excused, f.Rule) {
			out = append(out, fmt.Sprintf("%s: %s: %s", f.Rule, f.Path, f.Said))
		}
	}
	return out
}

// most is how many findings a test prints.
const most = 10

// Whole fails a test for everything that is wrong in a state folder on the real disk.
func Whole(t testing.TB, root string, excused ...check.Rule) {
	t.Helper()
	broken := Broken(state.Dir{Root: root, FS: vfs.OS{}}, excused...)
	for _, one := range broken[:min(len(broken), most)] {
		t.Errorf("the store is not whole (%d findings): %s", len(broken), one)
	}
}
