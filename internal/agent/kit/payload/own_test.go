package payload

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

// The parts of the frame that checkpoint.Frame writes.
const (
	opening = "<belay-record k=\""
	closing = "</belay-record k=\""
	ending  = "\">"
)

// TestStripOwnIsLinear compares a text with one four times as long, of the forms that cost most.
func TestStripOwnIsLinear(t *testing.T) {
	forms := map[string]func(n int) string{
		"many markers": func(n int) string {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				b.WriteString(checkpoint.Frame(strconv.Itoa(i), ""))
			}
			return b.String()
		},
		"openings": func(n int) string { return strings.Repeat(opening, n/len(opening)) },
		"blocks":   func(n int) string { b := checkpoint.Frame("m", ""); return strings.Repeat(b, n/len(b)) },
		"ends":     func(n int) string { return strings.Repeat(closing+"m"+ending, n/32) },
		"empty markers": func(n int) string {
			return strings.Repeat(opening+ending+closing+ending, n/42)
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

		small, big := cost(form(128<<10)), cost(form(1<<20))
		if big > 40*(small+time.Millisecond) {
			t.Errorf("%s: 128 KB took %s, 1 MB %s, want about 8 times", name, small, big)
		}
	}
}

func FuzzStripOwn(f *testing.F) {
	f.Add("a"+checkpoint.Frame("m", "x")+"b", "m")
	f.Add(opening+opening, "")
	f.Fuzz(func(t *testing.T, text, body string) {
		rest, markers := StripOwn(text)
		if len(rest) > len(text) || len(markers) == 0 && rest != text {
			t.Errorf("%q: rest %q, markers %q", text, rest, markers)
		}

		own := checkpoint.Frame("0123456789ab", body)
		if strings.Contains(body, closing+"0123456789ab") {
			return // no text can guess the marker
		}
		if got, m := StripOwn(own + text); got != rest || !slices.Contains(m, "0123456789ab") {
			t.Errorf("our own block %q before %q left %q, want %q", own, text, got, rest)
		}
	})
}
