package mirror

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestF03ReplacedInPlace(t *testing.T) {
	before, after := caseFile(t, "F03-before.jsonl"), caseFile(t, "F03-after.jsonl")
	r := newRig(t, Options{})
	r.write(before)
	r.sync()
	r.write(after)
	if p := r.sync(); p.Generations != 1 {
		t.Errorf("got %d older copies, want 1", p.Generations)
	}

	r.holds(after)
	if got := readAll(t, r.fsys, filepath.Join(r.dir, "transcript.g001.jsonl.zst")); got != before {
		t.Errorf("the older copy holds %s, want %s", brief(got), brief(before))
	}
}

func TestF11HeaderOnlyFileWaits(t *testing.T) {
	old, header := caseFile(t, "F11-old.jsonl"), caseFile(t, "F11-new-header-only.jsonl")
	r := newRig(t, Options{})
	r.write(old)
	r.sync()
	r.rename(header)
	r.sync()
	if st := r.m.Status(); st.State != Replaced || st.Generations != 0 {
		t.Errorf("got status %+v, want replaced and no older copy", st)
	}

	r.reopen()
	r.sync()
	r.holds(old)
	r.rename(old + lines(0, 1, 50)) // the old one comes back and goes on
	r.sync()
	r.holds(old + lines(0, 1, 50))
	if st := r.m.Status(); st.State != Following || st.Generations != 0 {
		t.Errorf("got status %+v, want following and no older copy", st)
	}
}

func TestF12TruncatedOnResume(t *testing.T) {
	before, after := caseFile(t, "F12-before.jsonl"), caseFile(t, "F12-after.jsonl")
	r := newRig(t, Options{})
	r.write(before)
	r.sync()
	r.write(after)
	r.sync()
	r.holds(before) // one record is nothing to replace forty by
	r.append(lines(0, 1, 50))
	r.sync()
	r.holds(after + lines(0, 1, 50))
	gens, err := Generations(r.fsys, r.dir)
	if err != nil || len(gens) != 2 || gens[0].Number != 0 || gens[1].Number != 1 || gens[1].Lines != 40 {
		t.Fatalf("got %+v, %v; want the mirror and a copy of 40 lines", gens, err)
	}
	if got := readAll(t, r.fsys, gens[1].Path); got != before {
		t.Errorf("the older copy holds %s, want the 40 records", brief(got))
	}
}

func TestTruncatedToNothing(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 20, 50))
	r.sync()
	r.write("")
	r.sync()
	r.holds(lines(0, 20, 50))
	r.append(lines(90, 1, 50))
	r.sync()
	r.holds(lines(90, 1, 50))
	if got := r.m.Status().Generations; got != 1 {
		t.Errorf("got %d older copies, want 1", got)
	}
}

func TestSameTextInANewFileGoesOn(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 20, 50))
	r.sync()
	r.rename(lines(0, 25, 50))
	if p := r.sync(); p.Generations != 0 {
		t.Errorf("got %d older copies, want none", p.Generations)
	}

	r.holds(lines(0, 25, 50))
}

func TestF04OldFileIsReadToItsEnd(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 50))
	r.sync()
	r.append(lines(10, 10, 50)) // then moved away before the next look
	if err := os.Rename(r.src, r.src+".1"); err != nil {
		t.Fatal(err)
	}

	r.write(lines(500, 10, 50))
	r.sync()
	r.holds(lines(500, 10, 50))
	if got := readAll(t, r.fsys, filepath.Join(r.dir, "transcript.g001.jsonl.zst")); got != lines(0, 20, 50) {
		t.Errorf("the older copy holds %s, want all 20 lines", brief(got))
	}
}

func TestF08GoneAndArchived(t *testing.T) {
	r := newRig(t, Options{})
	r.write(lines(0, 10, 50))
	r.sync()
	r.append(lines(10, 1, 50))
	if err := os.Remove(r.src); err != nil {
		t.Fatal(err)
	}

	r.sync()
	r.holds(lines(0, 11, 50)) // the open file was read to its end
	if got := r.m.Status().State; got != Gone {
		t.Errorf("got state %q, want gone", got)
	}
	if err := os.WriteFile(r.src+".zst", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	r.reopen()
	r.sync()
	if got := r.m.Status().State; got != Archived {
		t.Errorf("got state %q, want archived", got)
	}

	r.write(lines(0, 12, 50)) // it comes back plain and goes on
	if p := r.sync(); p.Copied != int64(len(lines(11, 1, 50))) || p.Generations != 0 {
		t.Errorf("got %+v, want one line copied", p)
	}

	r.holds(lines(0, 12, 50))
}

func TestGenerationsAreBounded(t *testing.T) {
	r := newRig(t, Options{KeepGenerations: 2})
	for i := range 7 {
		n := 5
		if i == 1 {
			n = 50 // the richest
		}

		r.write(lines(i*100, n, 50))
		r.sync()
		r.append(lines(i*100+n, 1, 50))
		r.sync()
	}

	gens, err := Generations(r.fsys, r.dir)
	if err != nil {
		t.Fatal(err)
	}

	var got []int
	for _, g := range gens {
		got = append(got, g.Number)
	}

	if want := []int{0, 6, 5, 2}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got copies %v, want %v: the newest two and the richest", got, want)
	}
	if r.m.Status().Generations != 3 {
		t.Errorf("status: got %d older copies, want 3", r.m.Status().Generations)
	}
}
