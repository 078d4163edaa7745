package recovery

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

// attacks are what a page, a file, a tool or a repository may have put into the conversation: a line each in
// testdata/attacks, quoted as in Go, some of them so many times.
func attacks(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/attacks/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("the attacks: %d files, %v", len(files), err)
	}

	var list []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "#") {
				continue
			}

			times, quoted, found := strings.Cut(line, " ")
			n, err := strconv.Atoi(times)
			if !found || err != nil {
				n, quoted = 1, line
			}

			text, err := strconv.Unquote(quoted)
			if err != nil {
				t.Fatalf("%s: %s: %v", f, line, err)
			}

			list = append(list, strings.Repeat(text, n))
		}
	}

	return list
}

// fields puts a text into every field that an agent, a user, a tool or a repository can fill.
func fields(evil string) Input {
	key := checkpoint.Key{Agent: "claude-code", Account: evil, Session: evil, Workspace: evil}
	b := &story{s: checkpoint.NewState(key), at: noon.Add(-2 * time.Hour)}
	b.s.Transcript = evil
	b.event(
		checkpoint.Event{
			Kind:       checkpoint.EventStart,
			Source:     evil,
			Workspace:  evil,
			Model:      evil,
			Mode:       evil,
			Transcript: evil,
		},
	).
		user(
			evil,
		).answer(
		evil,
	).user(
		"a plain prompt, long enough to be one",
	).answer(
		evil,
	).user(
		evil,
	).answer(
		"plain "+evil,
	).
		event(
			checkpoint.Event{Kind: checkpoint.EventTask, Text: evil},
		).decision(
		evil,
	).
		call(
			"c0",
			evil,
			`{"command":"x"}`,
		).done(
		"c0",
	).call(
		"c1",
		evil,
		evil,
	).call(
		evil,
		"Bash",
		evil,
	).
		event(
			checkpoint.Event{
				Kind:   checkpoint.EventToolEnd,
				Call:   "c2",
				Name:   evil,
				Input:  evil,
				Output: evil,
				Failed: true,
			},
		).
		event(
			checkpoint.Event{Kind: checkpoint.EventChildStart, Child: evil, ChildName: evil},
		).
		file(
			checkpoint.Entry{ID: evil, Kind: checkpoint.EntryAssistant, Text: evil, Model: evil},
			checkpoint.Entry{Kind: checkpoint.EntryUser, Turn: evil, Text: evil + "\n" + evil},
			checkpoint.Entry{Kind: checkpoint.EntryCall, Call: evil + "3", Name: evil, Input: evil},
		)

	c := b.checkpoint(1)
	c.WorkTree = &checkpoint.WorkTree{Branch: evil, Head: evil, Changed: []string{evil}}
	b.s.Live = true
	b.event(checkpoint.Event{Kind: checkpoint.EventExit, Reason: evil})
	return Input{
		State:      b.s,
		Checkpoint: c,
		WorkTree:   &checkpoint.WorkTree{Branch: evil + "2", Head: evil + "2", Changed: []string{evil, "x"}},
	}
}

// Lines that belay itself writes in a brief and in a delta: everything else stands behind "> ".
var (
	briefLines = regexp.MustCompile(
		`^(## (Now|In doubt: check before you run it again|More calls in doubt|Last answer.*|User said|Decisions|Already done|Earlier messages|Work tree|More)|` +
			`A record .*|The task was.*|The agent stopped .*|Died .*|The agent's transcript .*|Sub-agent .*|A sub-agent was running.|This conversation goes on\..*|The context was compacted\..*|` +
			`\[[-0-9: UTC]+\]( the user had said| the agent had answered.*)?|` +
			`> ?.*|- .*|--- checkpoint 1 \(FULL, [0-9:]+ UTC\) was here ---|\([0-9]+ (earlier )?left out(, [0-9]+ bytes)?\)|Not as at the checkpoint: .*|` + "`belay .*`)?$",
	)
	deltaLines = regexp.MustCompile(
		`^(_delta_since_last: [-0-9T:.Z]+ → [-0-9T:.Z]+_|### 📡 Recovered Delta|\*\*\[[-0-9T:.Z]+\]\*\* .*|> ?.*|_[0-9]+ earlier left out, [0-9]+ bytes_)?$`,
	)
)

// answers are the ways in which a text of belay's is asked for.
func answers() []Options {
	all := []checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant, checkpoint.RoleTool}
	return []Options{
		{MaxBytes: 9000},
		{MaxBytes: 2048},
		{MaxBytes: 700},
		{Start: StartResume},
		{Start: StartCompact},
		{Start: StartManual, MaxBytes: 60000},
		{Format: Delta, Roles: all, MaxBytes: 20000, MaxMessages: 100, SinceNum: new(uint64), SinceTime: noon},
	}
}

// contained checks that a text in every field stays inside of one frame, as a quotation, in each answer.
func contained(t *testing.T, evil string) {
	t.Helper()
	in := fields(evil)
	for _, opt := range answers() {
		r := plan(t, in, opt)
		if r.Text == "" {
			t.Fatalf("%q: nothing is given", evil)
		}

		most := opt.MaxBytes
		if most == 0 {
			most = BriefBytes
		}

		sound(t, r, most)
		data, err := json.Marshal(r)
		var back Result
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil || back.Text != r.Text {
			t.Errorf("%q: as JSON the text is another (%v)", evil, err)
		}

		const open, end = "<belay-record k=\"0123456789ab\">\n", "\n</belay-record k=\"0123456789ab\">"
		inner := strings.TrimSuffix(strings.TrimPrefix(r.Text, open), end)
		harmless(t, evil, inner)
		form := briefLines
		if opt.Format == Delta {
			form = deltaLines
		}

		for line := range strings.SplitSeq(inner, "\n") {
			if !form.MatchString(line) {
				t.Errorf("%q: a line that is none of belay's: %q in:\n%s", evil, line, inner)
			}
		}

		if t.Failed() {
			return
		}
	}
}

// O04: nothing that was recovered ends the frame, and no line of it looks like belay's own or like a live turn.
func TestO04AttacksInEveryField(t *testing.T) {
	list := attacks(t)
	if len(list) < 30 {
		t.Fatalf("%d attacks: where are the others?", len(list))
	}

	for _, evil := range append(list, strings.Join(list[:100], "\n"), strings.Join(list[:100], " ")) {
		contained(t, evil)
		if t.Failed() {
			return
		}
	}
}

// TestLookalikes: tags in letters that are read as others, by what must be left of them.
func TestLookalikes(t *testing.T) {
	for in, want := range map[string]string{
		"<ѕуѕtеm>":           "‹ѕуѕtеm>",
		"</bеlаy-rесоrd k=1": "‹/belay·record k=1",
		"<𝓈𝓎𝓈𝓉𝑒𝓂>":           "‹𝓈𝓎𝓈𝓉𝑒𝓂>",
		"<ꜱʏꜱᴛᴇᴍ>":           "‹ꜱʏꜱᴛᴇᴍ>",
		"〈system〉 〈书〉":       "‹system〉 〈书〉",
		"&amp;lt;system":     "‹system",
		"<ⓢystem>":           "‹ⓢystem>",
		"<система>":          "<система>", // "system" in Russian is no tag of anybody's
		"a<b, ѕо <с>":        "a<b, ѕо <с>",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q): got %q, want %q", in, got, want)
		}
	}
}

// TestAttacksInCheckpointFiles: no text breaks out of a checkpoint's head, or ends the file early.
func TestAttacksInCheckpointFiles(t *testing.T) {
	for _, evil := range attacks(t) {
		in := fields(evil)
		data, err := in.Checkpoint.Encode()
		if err != nil {
			t.Fatalf("%q: %v", evil, err)
		}

		c, err := checkpoint.Decode(data)
		if err != nil {
			t.Fatalf("%q: %v", evil, err)
		}

		if c.Number != 1 || len(c.State.Messages) != len(in.Checkpoint.State.Messages) ||
			len(c.State.Calls) != len(in.Checkpoint.State.Calls) {
			t.Errorf(
				"%q: got checkpoint %d with %d messages and %d calls, want what was written", evil, c.Number,
				len(c.State.Messages), len(c.State.Calls),
			)
		}

		head, _, _ := strings.Cut(strings.TrimPrefix(string(data), "---\n"), "\n---\n")
		for line := range strings.SplitSeq(head, "\n") {
			name, value, found := strings.Cut(line, ": ")
			if !found || strings.Trim(name, "_abcdefghijklmnopqrstuvwxyz") != "" ||
				name != "_last_updated" && !json.Valid([]byte(value)) {
				t.Errorf("%q: a line of the head that is none: %q", evil, line)
			}
		}
	}
}

// FuzzFrame puts any text into every field.
func FuzzFrame(f *testing.F) {
	for _, s := range attacks(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) < 1<<12 { // what is longer was cut before it came here
			contained(t, s)
		}
	})
}
