// Package audittest is the oracle of belay's own tests: what a full check of a state folder says when a test is done with it.
// It is not linked into the product.
package audittest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"belay/checkpoint"
	"belay/internal/audit"
	"belay/internal/statedir"
	"belay/internal/vfs"
)

// Broken lists what is wrong in a state folder on which no daemon works. What a crash left and the next start mends is not
// wrong. A test that breaks a rule itself excuses it.
func Broken(d statedir.Dir, excused ...audit.Rule) []string {
	return list(d, audit.Options{}, excused)
}

// Kept is Broken with the retention that was in force from the folder's beginning.
func Kept(d statedir.Dir, p checkpoint.Policy, excused ...audit.Rule) []string {
	return list(d, audit.Options{Retention: p}, excused)
}

func list(d statedir.Dir, o audit.Options, excused []audit.Rule) (out []string) {
	for f := range audit.Check(context.Background(), d, o) {
		if (!f.Note || f.Rule == audit.Budget || f.Rule == audit.Aside) && !slices.Contains(excused, f.Rule) {
			out = append(out, fmt.Sprintf("%s: %s: %s", f.Rule, f.Path, f.Said))
		}
	}
	return out
}

// most is how many findings a test prints.
const most = 10

// Whole fails a test for everything that is wrong in a state folder on the real disk.
func Whole(t testing.TB, root string, excused ...audit.Rule) {
	t.Helper()
	broken := Broken(statedir.Dir{Root: root, FS: vfs.OS{}}, excused...)
	for _, one := range broken[:min(len(broken), most)] {
		t.Errorf("the store is not whole (%d findings): %s", len(broken), one)
	}
}
