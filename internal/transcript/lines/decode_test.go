package lines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestDecodeSkipsWrongTypes(t *testing.T) {
	var v struct {
		A string
		B int
		C []string
	}

	if err := Decode([]byte(`{"a":5,"b":7,"c":{"x":1}}`), &v); err != nil || v.A != "" || v.B != 7 {
		t.Errorf("wrong types: got %+v, %v", v, err)
	}
	if err := Decode([]byte(`{"a":"x"`), &v); err == nil {
		t.Error("a cut object was taken")
	}
}

func TestT03Rescue(t *testing.T) {
	const rec = `{"type":"user","uuid":"u1","message":{"content":[{"type":"text","text":"hi {\"x"}]}}`
	const rec2 = `{"type":"user","uuid":"u2"}`
	for _, c := range []struct {
		name, line string
		want       []string
		lost       bool
	}{
		{"stub cut in a key", `{"type":"pr-link","prNu` + rec, []string{rec}, true},
		{"stub cut in a string", `{"type":"a","text":"some wor` + rec, []string{rec}, true},
		{"stub cut after an escape", `{"type":"a","text":"some \` + rec, []string{rec}, true},
		{"stub cut after a colon", `{"type":"a","x":` + rec, []string{rec}, true},
		{"stub cut in a list", `{"type":"a","x":[1,` + rec, []string{rec}, true},
		{"stub cut after a comma", `{"type":"a",` + rec, []string{rec}, true},
		{"stub cut in a number", `{"n":12` + rec, []string{rec}, true},
		{"stub with objects", `{"t":"a","s":{"f":{"v":1},"g":{"v":2},"h":{"v":` + rec, []string{rec}, true},
		{"two stubs", `{"a":"b` + `{"c":[` + rec, []string{rec}, true},
		{"a lone brace", `{` + rec, []string{rec}, true},
		{"two records", rec + rec2, []string{rec, rec2}, false},
		{"record and rubbish", rec + `rubbish`, []string{rec}, true},
		{"record, stub, record", rec + `{"a":"` + rec2, []string{rec, rec2}, true},
		{"NULs inside", "{\"type\":\"a\x00\x00\x00" + rec, []string{rec}, true},
		{"only a stub", `{"type":"file-history-snapshot","messageId":"m-1","snap`, nil, true},
		{"no key", `{"a":1` + `{"b":2}`, nil, true},
	} {
		got, lost := Rescue([]byte(c.line), "uuid")
		var texts []string
		for _, r := range got {
			texts = append(texts, string(r))
		}

		if fmt.Sprint(texts) != fmt.Sprint(c.want) || lost != c.lost {
			t.Errorf("%s: got %q lost %v, want %q lost %v", c.name, texts, lost, c.want, c.lost)
		}
	}
}

// A bad line costs a bounded number of looks at it, whatever it holds.
func TestRescueIsLinear(t *testing.T) {
	const size = 1 << 20
	quickest := func(f func()) time.Duration {
		best := time.Hour
		for range 3 {
			start := time.Now()
			f()
			best = min(best, time.Since(start))
		}
		return best
	}

	good := []byte(`{"a":[` + strings.Repeat(`{"b":1},`, size/8) + `1]}`)
	look := quickest(func() { json.Valid(good) })
	for _, unit := range []string{`{"`, `{"a":`, `{"a":{"b":1},`, `{"a":"b`, `{"a":1}`, `{"a":"{\"`, `[{"a":"`} {
		line := []byte(strings.Repeat(unit, size/len(unit)))
		if took := quickest(func() { Rescue(line, "uuid") }); took > 100*look {
			t.Errorf("%q: one look at a good line takes %v, Rescue %v", unit, look, took)
		}
	}
}

func TestBroken(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{
		{`"plain \n \\ud83c"`, 0},
		{`"pair \ud83c\udff7"`, 0},
		{`"half \ud83c"`, 1},
		{`"half \udff7 and \uD83C\n"`, 2},
		{"\"bytes \xff\xfe\"", 2},
		{`"real ` + "\uFFFD" + `"`, 0},
	} {
		if got := Broken([]byte(c.in)); got != c.want {
			t.Errorf("%s: got %d, want %d", c.in, got, c.want)
		}
		var s string
		if err := json.Unmarshal([]byte(c.in), &s); err != nil {
			t.Errorf("%s: %v", c.in, err)
		}
	}
}

func TestClean(t *testing.T) {
	if got, want := Clean("a\x00b\x1b[31m\r\n\tc\x7f\u0085\xff"), "ab[31m\n\tc\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSeenIsBounded(t *testing.T) {
	s := NewSeen(1000)
	for n := range 10_000 {
		if id := fmt.Sprint(n); !s.Add(id) || s.Add(id) || !s.Has(id) {
			t.Fatalf("id %d is not remembered", n)
		}
	}

	kept := 0
	for n := range 10_000 {
		if s.Has(fmt.Sprint(n)) {
			kept++
		}
	}

	if kept < 500 || kept > 1000 || !s.Has("9999") || !s.Has("9500") {
		t.Errorf("kept %d of 10,000 ids, want 500 to 1,000 and the newest", kept)
	}
}

func FuzzRescue(f *testing.F) {
	f.Add([]byte(`{"a":"b{"uuid":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		got, _ := Rescue(line, "uuid")
		for _, r := range got {
			if !json.Valid(r) || r[0] != '{' {
				t.Errorf("%q gave %q", line, r)
			}
		}

		if s := Clean(string(line)); !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			t.Errorf("%q cleaned to %q", line, s)
		}

		Broken(line)
	})
}
