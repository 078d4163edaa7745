package jsontext

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestObject: each dialect accepts what it has, and nothing else.
func TestObject(t *testing.T) {
	const none = Dialect(-1)
	for text, least := range map[string]Dialect{
		`{}`: JSON, "\ufeff {\"a\":[1,{\"b\":\"}\\\"\"}]}\r\n": JSON, `{"'":"//","b":"/*"}`: JSON,
		"// c\n{/**/}": Comments, `{"a":/* { */1} // }`: Comments, "{\"a\":1//\r\n}": Comments,
		`{a:1}`: JSON5, `{'a':'it"s',}`: JSON5, `[1]`: none, `{"a":[1,2,],}`: JSON5, "\u00a0{$b:.5,c:+Infinity}": JSON5,
		``: none, `{`: none, `{,}`: none, `{"a"}`: none, `{"a":}`: none, `{a:[}`: none, `{a:1}}`: none,
		`{} /* c`: none, `{a:1 b:2}`: none,
		`{a:[1 2]}`: none, `{a:'x}`: none, `{{}:1}`: none, `{a:` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`: none,
	} {
		for _, d := range []Dialect{JSON, Comments, JSON5} {
			c, err := d.Object([]byte(text))
			if want := least != none && d >= least; want != (err == nil) || err != nil && !errors.Is(err, ErrNoObject) {
				t.Errorf("%.40q as %d: %v, want it accepted: %v", text, d, err, want)
			}
			if err == nil && text[c.End-1] != '}' {
				t.Errorf("%q as %d: ends at %d", text, d, c.End)
			}
		}
	}

	for text, least := range map[string]Dialect{
		"": JSON, "\ufeff\r\n ": JSON, "// c": Comments, "/* c */ // d\n": Comments, "/* c": none, "x": none,
	} {
		for _, d := range []Dialect{JSON, Comments, JSON5} {
			if got, want := d.Blank([]byte(text)), least != none && d >= least; got != want {
				t.Errorf("%q as %d: blank: %v, want %v", text, d, got, want)
			}
		}
	}
}

// TestReadTorn: of a text that ends anywhere, what stands before the end is found.
func TestReadTorn(t *testing.T) {
	const whole = `{"a":1, "b\u0062":"x", "c":{"d":[1]}, "e":true}`
	for n := 1; n < len(whole); n++ {
		c := Read([]byte(whole[:n]), 0)
		if c.End >= 0 {
			t.Errorf("%s: has an end", whole[:n])
		}

		for i, it := range c.Items {
			if it.End < 0 && i < len(c.Items)-1 || !strings.Contains("a bb c e", it.Key) {
				t.Errorf("%s: item %d is %+v", whole[:n], i, it)
			}
		}
	}

	c := Read([]byte(whole), 0)
	if it, ok := Lookup([]byte(whole), c, "c", "d"); !ok || whole[it.Value:it.End] != "[1]" || len(c.Items) != 4 {
		t.Errorf("got %+v, %v in %+v", it, ok, c)
	}
	if it, ok := c.Find("bb"); !ok || whole[it.Value:it.End] != `"x"` {
		t.Errorf("an escaped key: got %+v, %v", it, ok)
	}
	if _, ok := Lookup([]byte(whole), c, "a", "b"); ok {
		t.Error("a number has members")
	}
}

// TestPutAndCut: what is put in stands as the items before it, and comments stay where they are when it goes.
func TestPutAndCut(t *testing.T) {
	for _, c := range []struct{ before, after, back string }{
		{`{"a":1}`, `{"a":1,"x":0}`, ""},
		{`{ "a": 1 }`, `{ "a": 1, "x":0 }`, ""},
		{"{}", "{\n  \"x\": 0\n}", ""},
		{"{\n\t\"a\": 1\n}\n", "{\n\t\"a\": 1,\n\t\"x\": 0\n}\n", ""},
		{"{\r\n  a: 1, // of a\r\n}", "{\r\n  a: 1, // of a\r\n  \"x\": 0,\r\n}", ""},
		{"{\n  a: 1 /* of a */ // too\n}", "{\n  a: 1, /* of a */ // too\n  \"x\": 0\n}", "{\n  a: 1 /* of a */ // too\n}"},
		{"{\n  // none yet\n}", "{\n  // none yet\n  \"x\": 0\n}", ""},
		{"{ // none yet\n}", "{ // none yet\n  \"x\": 0\n}", ""},
		{"{a: 1 // last\n}", "{a: 1,\"x\":0 // last\n}", ""},
		{"{/* c */}", "{/* c */\n  \"x\": 0\n}", "{/* c */\n}"},
		{"{'a':[1,],}", "{'a':[1,],\"x\":0,}", ""},
	} {
		b := []byte(c.before)
		root, err := JSON5.Object(b)
		if err != nil {
			t.Fatalf("%q: %v", c.before, err)
		}

		got := Put(b, root, LayoutOf(b, root), func(l Layout) string { return l.Set("x", 0) })
		if string(got) != c.after {
			t.Errorf("%q: got %q, want %q", c.before, got, c.after)
		}
		if root, err = JSON5.Object(got); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if c.back == "" {
			c.back = c.before
		}
		if got := Cut(got, root, root.Index("x")); string(got) != c.back {
			t.Errorf("%q: without it %q, want %q", c.before, got, c.back)
		}
	}
	for before, after := range map[string]string{
		`{"x":0,"a":1}`: `{"a":1}`, "{ \"x\":0 }": "{}", "{\n  // c\n  \"x\": 0,\n  a: 1\n}": "{\n  // c\n  a: 1\n}",
		"{x:0, // of x\n a:1}": "{ // of x\n a:1}",
		"{a:1, // of a\n x:0}": "{a:1 // of a\n }", "{a:1 // of a\n , x:0 }": "{a:1 // of a\n   }",
	} {
		root, err := JSON5.Object([]byte(before))
		if err != nil {
			t.Fatalf("%q: %v", before, err)
		}
		if got := string(Cut([]byte(before), root, root.Index("x"))); got != after {
			t.Errorf("%q: got %q, want %q", before, got, after)
		}
	}
}

// FuzzEdit: what is put in and cut out leaves the text valid, and everything else in it byte for byte.
func FuzzEdit(f *testing.F) {
	for _, s := range []string{
		"{}", "{a:1}", "{'a':'\\'b',}", "//\n{}", "{ // c\n}", "{a:{b:[1,2,],},/**/}", "{\n a:1, // c\n}",
		"{a:1//\r\n,}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range []Dialect{JSON, Comments, JSON5} {
			root, err := d.Object([]byte(text))
			if err != nil {
				continue
			}

			with := Put(
				[]byte(text), root, LayoutOf([]byte(text), root),
				func(l Layout) string { return l.Set("belay", 0) },
			)

			c, err := d.Object(with)
			if err != nil || !slices.Equal(valuesOf(with, c), append(valuesOf([]byte(text), root), `"belay"0`)) {
				t.Fatalf("%q as %d became %q: %v", text, d, with, err)
			}

			for n := range c.Items {
				left := Cut(with, c, n)
				rest, err := d.Object(left)
				if want := slices.Delete(
					valuesOf(with, c), n, n+1,
				); err != nil ||
					!slices.Equal(valuesOf(left, rest), want) {
					t.Errorf("%q as %d without item %d is %q: %v", with, d, n, left, err)
				}
			}
		}
	})
}

// valuesOf are the items of a container as they stand, without what is between key and value.
func valuesOf(b []byte, c Container) (list []string) {
	for _, it := range c.Items {
		key := b[it.Start:it.Value]
		if end := ValueEnd(b, it.Start); it.Start < it.Value {
			key = b[it.Start:end]
		}
		list = append(list, string(key)+string(b[it.Value:it.End]))
	}
	return list
}
