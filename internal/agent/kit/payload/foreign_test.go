package payload

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
)

// nested is a text inside of JSON strings, so many deep.
func nested(t *testing.T, s string, depth int) string {
	t.Helper()
	for range depth {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		s = string(b)
	}

	return s
}

// TestStripOwn: belay's own blocks go, in whatever form they come back, and nothing else does.
func TestStripOwn(t *testing.T) {
	block := checkpoint.Frame("mark1", "what was <b>said</b>")
	html := strings.NewReplacer("<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(block)
	long := "<belay-record k=\"" + strings.Repeat("x", 65) + "\">"
	for _, c := range []struct{ text, rest, markers string }{
		{"plain", "plain", ""},
		{"a " + block + " b", "a  b", "mark1"},
		{"a " + html + " b", "a  b", "mark1"},
		{block + block, "", "mark1"},
		{"a " + block[:len(block)-5], "a ", "mark1"},
		{"a " + checkpoint.Frame("m1", checkpoint.Frame("m2", "x")) + " b", "a  b", "m1"},
		{`a <belay-record k="m1">x</belay-record k="other"> y`, "a ", "m1"},
		{long + " b", long + " b", ""},
		{"a" + strings.Replace(checkpoint.Frame("m1", "said"), "said", closing+"zzz"+ending, 1) + "b", "ab", "m1"},
		{opening + " " + strings.Repeat("y", 70) + block + "z", opening + " " + strings.Repeat("y", 70) + "z", "mark1"},
		{"a" + opening, "a" + opening, ""},
		{closing + "abc" + ending, closing + "abc" + ending, ""},
		{"", "", ""},
		{"the word belay-record alone", "the word belay-record alone", ""},
	} {
		rest, markers := StripOwn(c.text)
		if rest != c.rest || strings.Join(markers, ",") != c.markers {
			t.Errorf("%q: got %q and markers %q, want %q and %q", c.text, rest, markers, c.rest, c.markers)
		}
		if got := WithoutOwn(c.text); got != c.rest {
			t.Errorf("%q: without: got %q, want %q", c.text, got, c.rest)
		}
	}

	for depth := range 4 {
		text := nested(t, "a "+block+" b", depth)
		rest, markers := StripOwn(text)
		if strings.Contains(rest, "said") || !slices.Equal(markers, []string{"mark1"}) ||
			!slices.Equal(Markers(text), markers) {
			t.Errorf(
				"%d strings deep: got %q and %q, %q, want the block gone and its marker", depth, rest, markers,
				Markers(text),
			)
		}
	}
}

// TestParsePayload: a whole object, a broken one, and what is left of one that was cut.
func TestParsePayload(t *testing.T) {
	whole := `{"id":"x","n":1,"on":true,"text":"` + strings.Repeat(
		"some words ", 5,
	) + `sécret\ud83d\ude00","last":{"a":[1,2]}}`

	p, err := ParsePayload([]byte("\xef\xbb\xbf"+whole), false)
	if err != nil || p.ID("id") != "x" || !p.Flag("on") || p.Flag("n") || p.Text("n") != "" || p.Path("absent") != "" {
		t.Fatalf("whole: got %v, %v", p, err)
	}

	for _, bad := range []string{"", "null", "7", "[1]", `{"a":`} {
		if _, err := ParsePayload([]byte(bad), false); !errors.Is(err, ErrNoObject) {
			t.Errorf("%q: got %v, want %v", bad, err, ErrNoObject)
		}
	}

	for n := range len(whole) {
		p, err := ParsePayload([]byte(whole[:n]), true)
		if n < len(`{"id":"x"`) {
			continue // nothing whole is there yet
		}
		if err != nil || p.Text("id") != "x" {
			t.Fatalf("cut at %d: got %v, %v, want what stands whole", n, p, err)
		}

		text := p.Text("text")
		if strings.Contains(text, "s\u00e9") && !strings.Contains(whole[:n], `de00"`) {
			t.Errorf("cut at %d: got %q, half a word", n, text)
		}
	}

	long := Payload{
		"id":   json.RawMessage(`"` + strings.Repeat("i", MaxID+1) + `"`),
		"path": json.RawMessage(`"/a\u0000b"`),
	}

	if long.ID("id") != "" || long.Path("path") != "" {
		t.Errorf("over the bounds: got %q and %q, want nothing", long.ID("id"), long.Path("path"))
	}
}

func FuzzParsePayload(f *testing.F) {
	f.Add([]byte(`{"a":"b\ud83d`), true)
	f.Add([]byte(`{"a":{"b":[1,`), true)
	f.Fuzz(func(t *testing.T, data []byte, cut bool) {
		p, err := ParsePayload(data, cut)
		if err != nil {
			return
		}

		for key, raw := range p {
			if !json.Valid(raw) {
				t.Errorf("%q: member %q is no JSON: %q", data, key, raw)
			}
		}
	})
}

func TestRealPath(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}

	for path, want := range map[string]string{
		link: dir, "": "", "rel/../x": "rel/../x", "/no/such/../thing": "/no/thing",
	} {
		if got := RealPath(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

// TestShellWords: what is quoted comes back as it was.
func TestShellWords(t *testing.T) {
	for _, word := range []string{"plain", "/a/b-c_d.e", "two words", "it's", "", `back\slash`, "$HOME", "ünï", "a;b"} {
		got := ShellWords("exec " + ShellWord(word) + "  x")
		if want := []string{"exec", word, "x"}; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got := ShellWord("/a/b"); got != "/a/b" {
		t.Errorf("a plain word: got %q, want it unquoted", got)
	}
}
