package wholefile

import (
	"encoding/json"
	"strings"
	"testing"

	"belay/checkpoint"
)

func TestOwnBlocksAreTakenOut(t *testing.T) {
	deep := func(s string, times int) string {
		for range times {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			s = string(b)
		}
		return s
	}

	frame := checkpoint.Frame("mark1", "what belay said </belay-record k=\"other\"> more of it")
	for name, c := range map[string]struct{ in, want string }{
		"plain":        {"before " + frame + " after", "before  after"},
		"in JSON":      {deep("before "+frame+" after", 1), `"before  after"`},
		"deep in JSON": {deep("before "+frame+" after", 3), `before  after`},
		"no end":       {"before " + frame[:60], "before"},
		"twice":        {frame + "x" + frame, "x"},
		"none":         {"a belay-record is a thing", "a belay-record is a thing"},
	} {
		said, markers := Words(c.in)
		if !strings.Contains(said, c.want) || strings.Contains(said, "what belay said") {
			t.Errorf("%s: got %q, want %q", name, said, c.want)
		}
		if want := name != "none"; want != (len(markers) == 1 && markers[0] == "mark1") {
			t.Errorf("%s: markers %q", name, markers)
		}
	}
}

func TestNames(t *testing.T) {
	a, b := NewNames(), NewNames()
	first := []string{a.Of("user", "x"), a.Of("user", "y"), a.Of("user", "x")}
	again := []string{b.Of("user", "x"), b.Of("user", "y"), b.Of("user", "x")}
	if strings.Join(first, " ") != strings.Join(again, " ") || first[0] == first[2] || first[0] == first[1] {
		t.Errorf("%v and %v: want equal names for the same document, and one for each message", first, again)
	}
	if long := Ident(strings.Repeat("x", 10_000)); len(long) > maxIdent {
		t.Errorf("an id of %d bytes", len(long))
	}
}
