package wholefile

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// texts collects all strings of a JSON text by walking it, and the text of all other scalars.
func texts(j *JSON, depth int) ([]string, error) {
	kind, err := j.Kind()
	if err != nil || depth > 100 {
		return nil, errors.Join(err, j.Skip())
	}

	var list []string
	switch kind {
	case '{':
		err = j.Object(func(string) error {
			more, err := texts(j, depth+1)
			list = append(list, more...)
			return err
		})

	case '[':
		err = j.Array(func() error {
			more, err := texts(j, depth+1)
			list = append(list, more...)
			return err
		})

	case '"':
		r, err := j.Text()
		if err != nil {
			return nil, err
		}
		s, err := io.ReadAll(r)
		return []string{string(s)}, err

	default:
		raw, _, err := j.Value(1 << 20)
		return []string{string(raw)}, err
	}

	return list, err
}

func TestJSON(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":"x","b":[1,true,null,"y"],"c":{"d":"z"}}`, "x|1|true|null|y|z"},
		{` [ "a\n\t\"\\\/\b\f\r" , "\u00e9\ud83d\ude00" , -1.5e3 ] `, "a\n\t\"\\/\b\f\r|é😀|-1.5e3"},
		{`["\ud83d","\ud83dx","\ud83d\n","\ude00","\ud83d\u0041"]`, "\ufffd|\ufffdx|\ufffd\n|\ufffd|\ufffdA"},
		{`{"e":"","f":[],"g":{}}`, ""},
		{`"just words"`, "just words"},
		{"\ufeff[\"\ufeff\"]", "\ufeff"},
	} {
		for name, in := range map[string]io.Reader{"at once": strings.NewReader(c.in), "piece by piece": iotest.HalfReader(strings.NewReader(c.in))} {
			got, err := texts(NewJSON(in), 0)
			if err != nil || strings.Join(got, "|") != c.want {
				t.Errorf("%s %s: %v, got %q, want %q", c.in, name, err, strings.Join(got, "|"), c.want)
			}
		}
	}
}

func TestJSONThatBreaksOff(t *testing.T) {
	const whole = `{"a":"x\u00e9\n","b":[1,{"c":"d"}],"e":{}}`
	for n := range len(whole) {
		if _, err := texts(NewJSON(strings.NewReader(whole[:n])), 0); !errors.Is(err, ErrBroken) {
			t.Errorf("%q: %v, want ErrBroken", whole[:n], err)
		}
	}

	for _, bad := range []string{`{"a" 1}`, `{a:1}`, `[1 2]`, `{"a":}`, `[,]`, `]`, `{"a":"\uZZZZ"}`} {
		if _, err := texts(NewJSON(strings.NewReader(bad)), 0); !errors.Is(err, ErrBroken) {
			t.Errorf("%q: %v, want ErrBroken", bad, err)
		}
	}
}

func TestValueHasALimit(t *testing.T) {
	j := NewJSON(strings.NewReader(`[{"long":"` + strings.Repeat("x", 1<<20) + `"},"next"]`))
	var got []string
	err := j.Array(func() error {
		raw, over, err := j.Value(20)
		if over {
			got = append(got, "over")
		}
		got = append(got, string(raw))
		return err
	})

	if err != nil || strings.Join(got, "|") != `over|{"long":"xxxxxxxxxxx|"next"` {
		t.Errorf("%v, got %q", err, got)
	}
}

func TestWhatIsNotReadIsSkipped(t *testing.T) {
	j := NewJSON(strings.NewReader(`{"a":{"b":["]","}"]},"c":"text that stays","d":"seen"}`))
	got := ""
	err := j.Object(func(key string) error {
		switch key {
		case "c":
			r, err := j.Text()
			if err != nil {
				return err
			}
			_, err = io.ReadFull(r, make([]byte, 4))
			return err
		case "d":
			raw, _, err := j.Value(100)
			got = string(raw)
			return err
		}
		return nil
	})

	if err != nil || got != `"seen"` {
		t.Errorf("%v, got %q", err, got)
	}
}

// Any text ends, and a text that is JSON gives the strings that encoding/json gives.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":["b",1,{"c":"\ud83d\ude00"}]}`, `"\ud83d\u"`, `[[[[`, "{\"a\":\x00}", `{"a":"b"`, `"é"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := texts(NewJSON(strings.NewReader(s)), 0)
		var v any
		if json.Unmarshal([]byte(s), &v) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}

		var one string
		if json.Unmarshal([]byte(s), &one) == nil && s[0] == '"' {
			clean := func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\ufffd", "") }
			// broken bytes stay as they are: whoever reads the text cleans it
			if len(got) != 1 || clean(got[0]) != clean(one) {
				t.Errorf("%q: got %q, want %q", s, got, one)
			}
		}
	})
}
