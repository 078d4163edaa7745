package checkpoint

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStripOwn(t *testing.T) {
	block := Frame("abc", "said before\n")
	other := Frame("def", "said too")
	tests := []struct {
		name, text, rest string
		markers          []string
	}{
		{"none", "plain", "plain", nil},
		{"alone", block, "", []string{"abc"}},
		{"around", "a " + block + " b", "a  b", []string{"abc"}},
		{"two", block + "x" + other, "x", []string{"abc", "def"}},
		{"nested", Frame("abc", "in "+other+" side") + "after", "after", []string{"abc"}},
		{"a foreign end does not close it", "a" + strings.Replace(block, "said", frameClose+"zzz"+frameEnd, 1) + "b", "ab", []string{"abc"}},
		{"cut off by the agent", "a" + block[:len(block)-5], "a", []string{"abc"}},
		{"a look-alike without a marker", "a" + frameOpen + strings.Repeat("k", 65) + frameEnd + "b", "a" + frameOpen + strings.Repeat("k", 65) + frameEnd + "b", nil},
		{"a look-alike, then ours", frameOpen + " " + strings.Repeat("y", 70) + block + "z", frameOpen + " " + strings.Repeat("y", 70) + "z", []string{"abc"}},
		{"only the beginning", "a" + frameOpen, "a" + frameOpen, nil},
		{"an end alone", frameClose + "abc" + frameEnd, frameClose + "abc" + frameEnd, nil},
		{"empty", "", "", nil},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			rest, markers := StripOwn(c.text)
			if rest != c.rest || !slices.Equal(markers, c.markers) {
				t.Errorf("got %q %q, want %q %q", rest, markers, c.rest, c.markers)
			}
		})
	}
}

// TestStripOwnIsLinear compares a text with one four times as long, of the forms that cost most.
func TestStripOwnIsLinear(t *testing.T) {
	forms := map[string]func(n int) string{
		"openings": func(n int) string { return strings.Repeat(frameOpen, n/len(frameOpen)) },
		"blocks":   func(n int) string { b := Frame("m", ""); return strings.Repeat(b, n/len(b)) },
		"ends":     func(n int) string { return strings.Repeat(frameClose+"m"+frameEnd, n/32) },
		"empty markers": func(n int) string {
			return strings.Repeat(frameOpen+frameEnd+frameClose+frameEnd, n/42)
		},
	}
	for name, form := range forms {
		cost := func(text string) time.Duration {
			best := time.Hour
			for range 3 {
				began := time.Now()
				StripOwn(text)
				best = min(best, time.Since(began))
			}
			return best
		}
		small, big := cost(form(512<<10)), cost(form(4<<20))
		if big > 40*(small+time.Millisecond) {
			t.Errorf("%s: 512 KB took %s, 4 MB %s, want about 8 times", name, small, big)
		}
	}
}

func FuzzStripOwn(f *testing.F) {
	f.Add("a"+Frame("m", "x")+"b", "m")
	f.Add(frameOpen+frameOpen, "")
	f.Fuzz(func(t *testing.T, text, body string) {
		rest, markers := StripOwn(text)
		if len(rest) > len(text) || len(markers) == 0 && rest != text {
			t.Errorf("%q: rest %q, markers %q", text, rest, markers)
		}
		own := Frame("0123456789ab", body)
		if strings.Contains(body, frameClose+"0123456789ab") {
			return // no text can guess the marker
		}
		if got, m := StripOwn(own + text); got != rest || len(m) != len(markers)+1 {
			t.Errorf("our own block %q before %q left %q, want %q", own, text, got, rest)
		}
	})
}
