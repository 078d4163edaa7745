package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"belay/recovery"
)

// usualWidth is taken for a terminal that does not say how wide it is.
const usualWidth = 80

// width is the number of columns of the terminal that w writes to; 0 when it is none. People get lines that fit;
// programs get one line for each thing, never cut.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}

	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil || n <= 0 {
		return usualWidth
	}

	return max(n, 40)
}

// printable is a text on one line without anything that a terminal obeys: titles and paths come from outside.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return ' '
		}
		return visible(r)
	}, s)
}

// printableText leaves line ends and tabs in.
func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return r
		}
		return visible(r)
	}, s)
}

func visible(r rune) rune {
	switch {
	case r == '\u200d' || r >= '\ufe00' && r <= '\ufe0f':
		return -1 // they join and dress emoji, which are told apart without them
	case unicode.IsPrint(r) && !recovery.Hidden(r):
		return r
	}
	return unicode.ReplacementChar
}

// escapeHidden writes what is not to be seen in a JSON document, which can only stand in its strings, as \uXXXX.
func escapeHidden(doc string) string {
	var b strings.Builder
	last := 0
	for i, r := range doc {
		if r == '\n' || unicode.IsPrint(r) && !recovery.Hidden(r) {
			continue
		}

		b.WriteString(doc[last:i])
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}

		last = i + utf8.RuneLen(r)
	}

	return b.String() + doc[last:]
}

// warnPlanted names what looks like belay's own and is not.
func warnPlanted(w io.Writer, list []string) {
	for _, said := range list {
		fmt.Fprintf(w, "belay: not used: %s\n", printable(said))
	}
}

// short cuts a text to so many columns, and no character in two. 0 is no limit.
func short(s string, most int) string {
	if most <= 0 || columns(s) <= most {
		return s
	}

	var kept strings.Builder
	for rest, state, left := s, -1, most-1; rest != ""; {
		var cluster string
		var wide int
		cluster, rest, wide, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if left -= wide; left < 0 {
			break
		}
		kept.WriteString(cluster)
	}

	return kept.String() + "…"
}

// columns is how much of a terminal's line a text takes.
func columns(s string) int { return uniseg.StringWidth(s) }

// wrap breaks a text at spaces into lines of at most so many columns, where its words are not longer.
func wrap(s string, most int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) > most:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}

	return append(lines, line)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ago is an age for people.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return age(time.Since(t)) + " ago"
}

func age(d time.Duration) string {
	switch d = max(d.Round(time.Second), 0); {
	case d < time.Minute:
		return d.String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// shellWord quotes a word for a command that a person may paste.
func shellWord(s string) string {
	safe := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("/._-+:,@%=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// progress shows a bar on a terminal while something long goes on. Call step for each of n steps and done at the end.
func progress(w io.Writer, n int, what string) (step, done func()) {
	if width(w) == 0 || n < 2 {
		return func() {}, func() {}
	}

	bar := progressbar.NewOptions(
		n,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(
			30,
		),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)

	// A bar that cannot be drawn does not stop the work.
	return func() { _ = bar.Add(1) }, func() { _ = bar.Finish() }
}
