//go:build linux

package lab

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pictureVar names the file that TestClaudePicture writes: the picture of the README.
const pictureVar = "BELAY_LAB_PICTURE"

// shown is one line of the picture, the colour of its text, and how long it is waited for.
type shown struct {
	text, colour string
	after        time.Duration
}

const (
	white, grey, red, green, yellow = "#e6edf3", "#8b949e", "#ff7b72", "#7ee787", "#e3b341"

	pictureColumns = 100
	beat           = 900 * time.Millisecond
)

// TestClaudePicture draws what a user sees: Claude Code is killed in the middle of a deploy, and what the next session
// had in front of its first prompt. Nothing in it is made up but the model's words, which a script gives, and the order
// of the show.
func TestClaudePicture(t *testing.T) {
	file := os.Getenv(pictureVar)
	if file == "" {
		t.Skipf("%s names no file to draw the README's picture into", pictureVar)
	}

	h := newHome(t)
	for name, text := range map[string]string{
		"run-tests": "#!/bin/sh\necho ok\n", "deploy": "#!/bin/sh\ntouch started.flag; sleep 60\n",
	} {
		h.write("proj/"+name, text)
		if err := os.Chmod(h.proj+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	const task, goOn = "Deploy the service to staging and tell me when it is up. Leave production alone.", "Go on, please."
	turns := []Turn{{Text: "The tests first.", Calls: []Call{Bash("./run-tests")}},
		{Text: "The tests pass. I start the deploy to staging now.", Calls: []Call{Bash("./deploy staging")}}}
	h.model.Script(turns...)
	a := h.start(task)
	h.until("the deploy starts", func() bool { return exists(h.proj + "/started.flag") })
	session := h.newest()
	h.until("the deploy's processes are noted", func() bool {
		open := h.status(session).OpenCalls
		return len(open) == 1 && len(open[0].Procs) > 0
	})

	a.signal(syscall.SIGKILL)
	h.died(session)
	h.model.Script(
		Turn{
			Text: "A deploy to staging was running when I was cut off, and its process is still there. I watch that one and start no second.",
		},
	)

	next := h.start(goOn)
	if code := next.wait(); code != 0 {
		t.Fatalf("exit code %d, want 0:\n%s", code, next.printed())
	}

	told := said(h.model.Main()[next.from])
	told, _, found := strings.Cut(told, "</belay-record")
	if !found {
		t.Fatalf("no whole record in the request:\n%s", told)
	}

	lines := []shown{{"$ claude -p \"" + task + "\"", white, beat}}
	for i, turn := range turns {
		if !h.transcripts(turn.Text) {
			t.Fatalf("turn %d is not in the transcript", i)
		}
		lines = append(
			lines, shown{"● " + turn.Text, white, beat},
			shown{"● Bash(" + []string{"./run-tests", "./deploy staging"}[i] + ")", grey, beat / 2},
		)
	}

	lines = append(
		lines, shown{"Killed", red, 2 * beat}, shown{"", white, 0},
		shown{"$ claude -p \"" + goOn + "\"", white, 2 * beat},
	)

	for line := range strings.Lines(told) {
		lines = append(lines, shown{strings.TrimRight(line, "\n"), recordColour(line), beat / 3})
	}

	lines = append(
		lines, shown{"</belay-record>", grey, beat / 3},
		shown{"● " + strings.TrimSpace(next.printed()), white, 2 * beat},
	)

	if err := os.WriteFile(file, []byte(drawing(lines)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func recordColour(line string) string {
	switch {
	case strings.HasPrefix(line, "## In doubt"), strings.Contains(line, "Result unknown"):
		return yellow
	case strings.HasPrefix(line, "<"), strings.HasPrefix(line, "A record kept"), strings.HasPrefix(line, "`belay show"):
		return grey
	}
	return green
}

// drawing is a terminal as an SVG whose lines come one after the other. A viewer that moves nothing shows them all:
// what is animated is that a line is not there yet.
func drawing(lines []shown) string {
	const left, top, high, wide = 22, 58, 19, 8.42
	var b strings.Builder
	var at time.Duration
	row := 0
	for _, l := range lines {
		at += l.after
		for i, part := range broken(l.text, pictureColumns) {
			if i > 0 {
				part = "  " + part
			}

			fmt.Fprintf(
				&b, `<text x="%d" y="%d" fill="%s" style="animation-duration:%.1fs" xml:space="preserve">`,
				left, top+row*high, l.colour, at.Seconds(),
			)

			_ = xml.EscapeText(&b, []byte(part)) // a Builder takes everything
			b.WriteString("</text>\n")
			row++
		}
	}

	w, h := int(2*left+pictureColumns*wide), top+row*high+6
	return fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14">
<title>Claude Code is killed in the middle of a deploy; the next session is told what is in doubt</title>
<style>text{animation:wait 0s step-end}@keyframes wait{from{opacity:0}to{opacity:0}}@media (prefers-reduced-motion:reduce){text{animation:none}}</style>
<rect width="100%%" height="100%%" rx="10" fill="#0d1117"/>
<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/><circle cx="62" cy="20" r="6" fill="#28c840"/>
`,
		w,
		h,
		w,
		h,
	) + b.String() + "</svg>\n"
}

// broken is a line in pieces that fit, broken at spaces; the pieces after the first are to be set in by two.
func broken(line string, most int) []string {
	parts := []string{""}
	for _, word := range strings.Split(line, " ") {
		last := &parts[len(parts)-1]
		switch n := len([]rune(*last)) + 1 + len([]rune(word)); {
		case *last == "":
			*last = word
		case n > most-2*min(len(parts)-1, 1):
			parts = append(parts, word)
		default:
			*last += " " + word
		}
	}

	return parts
}

func TestDrawing(t *testing.T) {
	long := strings.Repeat("word ", 30)
	text := drawing([]shown{{`$ claude -p "a < b & c"`, white, beat}, {long, green, beat}})
	var svg struct {
		Texts []struct {
			Style string `xml:"style,attr"`
			Text  string `xml:",chardata"`
		} `xml:"text"`
	}

	if err := xml.Unmarshal([]byte(text), &svg); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if len(svg.Texts) != 3 || svg.Texts[0].Text != `$ claude -p "a < b & c"` {
		t.Fatalf("got %+v, want the first line and two of the second", svg.Texts)
	}

	words := 0
	for i, l := range svg.Texts {
		if n := len([]rune(l.Text)); n > pictureColumns {
			t.Errorf("line %d has %d columns, over %d", i, n, pictureColumns)
		}
		words += strings.Count(l.Text, "word")
	}

	if words != 30 {
		t.Errorf("%d words of the long line are there, want 30", words)
	}
	if first, last := svg.Texts[0].Style, svg.Texts[2].Style; first != "animation-duration:0.9s" ||
		last != "animation-duration:1.8s" {
		t.Errorf("the lines come after %q and %q, want 0.9s and 1.8s", first, last)
	}
}
