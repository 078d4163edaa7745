//go:build linux

package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"belay/internal/transcript/repair"
)

// A session that the real program made is damaged as the field cases tell. Then the program itself shows what it makes
// of it: it refuses the file, or the model is not told all that is in it. The copy that belay repairs it takes up
// whole.

// hurt is one way to damage a session.
type hurt struct {
	name    string
	do      func(l lines) lines
	refused bool     // the program takes it not up at all
	lost    []string // what the model is not told when the program takes the damaged file up
	gone    []string // what nobody can bring back: the damage lies on it
	made    bool     // the copy holds a result that was made
}

// told is all that a session of the lab says, in order.
var told = []string{
	"alpha-prompt",
	"alpha-look",
	"step-out",
	"alpha-answer",
	"beta-prompt",
	"beta-answer",
	"gamma-prompt",
	"gamma-answer",
}

// lines are those of a transcript.
type lines []string

func (l lines) text() []byte { return []byte(strings.Join(l, "\n")) }

// at is the first line that holds all the parts.
func (l lines) at(parts ...string) int {
	return slices.IndexFunc(l, func(s string) bool {
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(s, p) })
	})
}

func (l lines) with(i int, change func(string) string) lines {
	c := slices.Clone(l)
	c[i] = change(c[i])
	return c
}

func (l lines) without(i int) lines { return slices.Delete(slices.Clone(l), i, i+1) }

func half(s string) string { return s[:len(s)/2] }

func nuls(s string) string { return strings.Repeat("\x00", len(s)) }

// marks say how an agent writes what the damages look for.
type marks struct{ prompt, answer, call, result []string }

func (m marks) answerAt(l lines, word string) int {
	return l.at(append(slices.Clone(m.answer), word)...)
}
func (m marks) promptAt(l lines, word string) int {
	return l.at(append(slices.Clone(m.prompt), word)...)
}

// hurts are the damages that befall any file of lines. The last line of a file is empty: it ends with a newline.
func (m marks) hurts() map[string]func(lines) lines {
	beta := func(l lines) int { return m.answerAt(l, "beta-answer") }
	return map[string]func(lines) lines{
		"T01 torn tail": func(l lines) lines {
			i := m.answerAt(l, "gamma-answer")
			return append(slices.Clone(l[:i]), half(l[i]))
		},
		"T02 bad line": func(l lines) lines { return l.with(beta(l), half) },
		"T03 stub before a record": func(l lines) lines {
			return l.with(
				m.promptAt(l, "gamma-prompt"),
				func(s string) string { return `{"type":"pr-link","sessionId":"x","prNu` + s },
			)
		},
		"T03 fused records": func(l lines) lines {
			i := beta(l)
			return l.with(i, func(s string) string { return s + l[i+1] }).without(i + 1)
		},
		"T05 NULs after a record": func(l lines) lines {
			return l.with(beta(l), func(s string) string { return s + strings.Repeat("\x00", 9000) })
		},
		"T05 NULs before a record": func(l lines) lines {
			return l.with(beta(l), func(s string) string { return strings.Repeat("\x00", 9000) + s })
		},
		"T05 a record of NULs": func(l lines) lines { return l.with(beta(l), nuls) },
		"T08 torn header":      func(l lines) lines { return l.with(0, half) },
		"T08 no header":        func(l lines) lines { return l.without(0) },
		"L08 byte-order mark":  func(l lines) lines { return l.with(0, func(s string) string { return "\xef\xbb\xbf" + s }) },
		"R01 repeats": func(l lines) lines {
			return append(
				slices.Clone(l[:len(l)-1]),
				append(slices.Clone(l[m.promptAt(l, "beta-prompt"):m.answerAt(l, "gamma-answer")]), "")...)
		},
		"R05 open call":        func(l lines) lines { return l.without(l.at(m.result...)) },
		"R05 open call at end": func(l lines) lines { return append(slices.Clone(l[:l.at(m.result...)]), "") },
		"R05 lone result":      func(l lines) lines { return l.without(l.at(m.call...)) },
	}
}

// parents are the damages to a tree of records.
func (m marks) parents(id, parent string) map[string]func(lines) lines {
	swap := func(l lines, to func(s string) string) lines {
		return l.with(
			m.promptAt(l, "gamma-prompt"),
			func(s string) string { return strings.Replace(s, memberOf(s, parent), to(s), 1) },
		)
	}
	return map[string]func(lines) lines{
		"R04 phantom parent": func(l lines) lines {
			return swap(l, func(string) string { return "00000000-0000-4000-8000-000000000777" })
		},
		"R02 own parent": func(l lines) lines { return swap(l, func(s string) string { return memberOf(s, id) }) },
		"R02 cycle": func(l lines) lines {
			i := m.promptAt(l, "gamma-prompt")
			j := l.at(`"` + id + `":"` + memberOf(l[i], parent) + `"`)
			return l.with(
				j,
				func(s string) string { return strings.Replace(s, memberOf(s, parent), memberOf(l[i], id), 1) },
			)
		},
	}
}

func memberOf(s, key string) string {
	_, rest, _ := strings.Cut(s, `"`+key+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// patient is a session of the real program that can be damaged and taken up again.
type patient struct {
	h     *home
	path  string
	whole []byte
	ask   func() (printed string) // has the program take it up with one more prompt
}

// admit runs the real program: three prompts, one of them with a command.
func admit(h *home, command Call, again, resume func(path string) []string) *patient {
	h.t.Helper()
	if out, err := h.belay("uninstall", h.prog.name); err != nil { // the file is the program's alone
		h.t.Fatalf("belay uninstall: %v\n%s", err, out)
	}

	p := &patient{h: h}
	for i, word := range []string{"alpha", "beta", "gamma"} {
		if i > 0 && again == nil {
			break
		}

		turns := []Turn{{Text: word + "-answer"}}
		args := []string{word + "-prompt"}
		if i == 0 {
			turns = []Turn{{Text: "alpha-look", Calls: []Call{command}}, turns[0]}
		} else {
			args = again(word + "-prompt")
		}

		h.model.Script(turns...)
		h.run(args...)
	}

	p.read()
	p.ask = func() string {
		a := h.start(resume(p.path)...)
		a.wait()
		return a.printed()
	}

	return p
}

// read finds the session and keeps it as it is.
func (p *patient) read() {
	p.h.t.Helper()
	names, err := filepath.Glob(p.h.path(p.h.prog.files))
	if err != nil || len(names) == 0 {
		p.h.t.Fatalf("transcripts: %v, %v", names, err)
	}

	p.path = names[0]
	if p.whole, err = os.ReadFile(p.path); err != nil {
		p.h.t.Fatal(err)
	}
}

// laterFrom puts off all from a line on by a year.
func laterFrom(text []byte, parts ...string) []byte {
	l := lines(strings.Split(string(text), "\n"))
	for i := l.at(parts...); i < len(l); i++ {
		if year, err := strconv.Atoi(first(memberOf(l[i], "timestamp"), 4)); err == nil {
			l[i] = strings.Replace(
				l[i], fmt.Sprintf(`"timestamp":"%d-`, year), fmt.Sprintf(`"timestamp":"%d-`, year+1), 1,
			)
		}
	}

	return l.text()
}

func first(s string, n int) string { return s[:min(len(s), n)] }

// take puts a text in the place of the session and lets the program take it up: what it sends, if it does.
func (p *patient) take(text []byte) (r Request, took bool, printed string) {
	p.h.t.Helper()
	others, err := filepath.Glob(p.h.path(p.h.prog.files))
	if err != nil {
		p.h.t.Fatal(err)
	}

	for _, other := range others {
		if other == p.path {
			continue
		}
		if err := os.Remove(other); err != nil {
			p.h.t.Fatal(err)
		}
	}

	if err := os.WriteFile(p.path, text, 0o600); err != nil {
		p.h.t.Fatal(err)
	}

	p.h.model.Script(Turn{Text: "resumed."})
	from := len(p.h.model.Main())
	printed = p.ask()
	if list := p.h.model.Main(); len(list) > from {
		return list[from], true, printed
	}

	return r, false, printed
}

// repaired is belay's copy of a text.
func (p *patient) repaired(text []byte) (copied []byte, report string) {
	p.h.t.Helper()
	out := p.h.path("repaired.jsonl")
	_ = os.Remove(out) // of the case before
	if err := os.WriteFile(p.path, text, 0o600); err != nil {
		p.h.t.Fatal(err)
	}

	said, err := p.h.belay("doctor", "transcript", p.path, "--agent", p.h.prog.name, "--repair", out)
	if err != nil {
		p.h.t.Errorf("repair: %v\n%s", err, said)
	}
	if copied, err = os.ReadFile(out); err != nil {
		p.h.t.Error(err)
	}

	return copied, string(said)
}

// missing are the words that a request does not hold.
func missing(r Request, words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return r.Count(w) > 0 })
}

// unpaired are the calls of a request without a result and the results without a call: a real model's server refuses
// those.
func unpaired(r Request) (list []string) {
	var body any
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return []string{err.Error()}
	}

	calls, results := map[string]int{}, map[string]int{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			text := func(key string) string { s, _ := v[key].(string); return s }
			switch kind := text("type"); {
			case kind == "tool_use":
				calls[text("id")]++
			case kind == "tool_result":
				results[text("tool_use_id")]++
			case kind == "function" && text("id") != "":
				calls[text("id")]++
			case strings.HasSuffix(kind, "_call") && text("call_id") != "":
				calls[text("call_id")]++
			case strings.HasSuffix(kind, "_call_output"):
				results[text("call_id")]++
			case text("role") == "tool":
				results[text("tool_call_id")]++
			}

			for _, e := range v {
				walk(e)
			}
		}
	}

	walk(body)
	for id, n := range calls {
		if results[id] != n {
			list = append(list, fmt.Sprintf("call %s: %d results", id, results[id]))
		}
	}

	for id := range results {
		if calls[id] == 0 {
			list = append(list, fmt.Sprintf("result %s: no call", id))
		}
	}

	slices.Sort(list)
	return list
}

// treat shows one damage, and its cure.
func (p *patient) treat(t *testing.T, c hurt, words []string) {
	text := c.do(strings.Split(string(p.whole), "\n")).text()
	sick, took, printed := p.take(text)
	lost := missing(sick, words)
	if !took {
		lost = nil
	}

	if took == c.refused || !slices.Equal(lost, c.lost) {
		t.Errorf(
			"the damaged file: taken up %v without %v, want %v without %v: the case shows nothing\n%s", took,
			lost, !c.refused, c.lost, printed,
		)
	}

	copied, report := p.repaired(text)
	well, took, printed := p.take(copied)
	if !took {
		t.Fatalf("the copy is refused: %s\n%s", printed, report)
	}
	if lost := missing(well, words); !slices.Equal(lost, c.gone) {
		t.Errorf("the copy: the model is not told %v, want %v\n%s", lost, c.gone, report)
	}
	if list := unpaired(well); len(list) > 0 {
		t.Errorf("the copy: %v in the request, want every call with its result\n%s", list, report)
	}
	if made := well.Count(repair.Interrupted) > 0; made != c.made {
		t.Errorf("the copy: a made result in the request is %v, want %v\n%s", made, c.made, report)
	}
}

func (p *patient) treatAll(t *testing.T, do map[string]func(lines) lines, list []hurt, words []string) {
	for _, c := range list {
		if c.do = do[c.name]; c.do == nil {
			t.Fatalf("no damage %q", c.name)
		}
		t.Run(c.name, func(t *testing.T) { p.treat(t, c, words) })
	}
}

const aloud = "echo step-out"

// until is all that is said up to a word.
func until(word string) []string { return told[:slices.Index(told, word)+1] }

// afterwards is what was said after the call that a crash left open.
var afterwards = told[3:]

func TestClaudeRepair(t *testing.T) {
	h := newHome(t)
	m := marks{
		prompt: []string{`"type":"user"`},
		answer: []string{`"type":"assistant"`},
		call:   []string{`"type":"assistant"`, `"type":"tool_use"`},
		result: []string{`"type":"user"`, `"tool_result"`},
	}

	p := admit(
		h,
		Bash(aloud),
		func(s string) []string { return []string{"--continue", s} },
		func(path string) []string {
			return []string{"--resume", strings.TrimSuffix(filepath.Base(path), ".jsonl"), "go on"}
		},
	)

	// A record without its parent is taken for the next one of what was written a few seconds before, if anything was:
	// the result and the last prompt come a year later each, so that the speed of the machine is of no matter.
	for _, word := range []string{m.result[1], "gamma-prompt"} {
		p.whole = laterFrom(p.whole, m.prompt[0], word)
	}

	do := m.hurts()
	maps.Copy(do, m.parents("uuid", "parentUuid"))
	p.treatAll(t, do, []hurt{
		{name: "R01 repeats", lost: []string{"gamma-answer"}},
		{name: "R02 own parent", lost: until("beta-answer")},
		{name: "R04 phantom parent", lost: until("beta-answer")},
		{name: "R05 lone result", lost: until("step-out")},
		{name: "R05 open call", lost: until("step-out"), made: true},
		{name: "R05 open call at end", lost: afterwards, gone: afterwards, made: true},
		{name: "T01 torn tail", lost: []string{"gamma-answer"}, gone: []string{"gamma-answer"}},
		{name: "T02 bad line", lost: until("beta-answer"), gone: []string{"beta-answer"}},
		{name: "T03 stub before a record", lost: until("gamma-prompt")},
		{name: "T05 NULs before a record", lost: until("beta-answer")},
		{name: "T05 a record of NULs", lost: until("beta-answer"), gone: []string{"beta-answer"}},
	}, told)
}

func TestPiRepair(t *testing.T) {
	h := newPi(t)
	vars := h.prog.vars

	// it follows a circle until it has no memory left: that need not be all of the machine's
	h.prog.vars = func(h *home) []string {
		return append(vars(h), "NODE_OPTIONS=--max-old-space-size=512")
	}
	m := marks{
		prompt: []string{`"role":"user"`},
		answer: []string{`"role":"assistant"`},
		call:   []string{`"toolCall"`},
		result: []string{`"role":"toolResult"`},
	}

	p := admit(
		h, piBash(aloud), func(s string) []string { return []string{"--continue", s} },
		func(path string) []string { return []string{"--session", path, "go on"} },
	)

	do := m.hurts()
	maps.Copy(do, m.parents("id", "parentId"))
	p.treatAll(t, do, []hurt{
		{name: "L08 byte-order mark", refused: true},
		{name: "R01 repeats", lost: []string{"gamma-answer"}},
		{name: "R02 cycle", refused: true},
		{name: "R02 own parent", refused: true},
		{name: "R04 phantom parent", lost: until("beta-answer")},
		{name: "R05 lone result", lost: until("alpha-look"), gone: []string{"alpha-look"}},
		{name: "R05 open call", lost: until("step-out"), made: true},
		{name: "R05 open call at end", lost: afterwards, gone: afterwards, made: true},
		{name: "T01 torn tail", lost: []string{"gamma-answer"}, gone: []string{"gamma-answer"}},
		{name: "T02 bad line", lost: until("beta-answer"), gone: []string{"beta-answer"}},
		{name: "T03 fused records", lost: until("gamma-prompt")},
		{name: "T03 stub before a record", lost: until("gamma-prompt")},
		{name: "T05 NULs after a record", lost: until("beta-answer")},
		{name: "T05 NULs before a record", lost: until("beta-answer")},
		{name: "T05 a record of NULs", lost: until("beta-answer"), gone: []string{"beta-answer"}},
		{name: "T08 torn header", refused: true},
		{name: "T08 no header", refused: true},
	}, told)
}

func TestCodexRepair(t *testing.T) {
	h := newCodex(t)
	m := marks{
		prompt: []string{`"response_item"`, `"role":"user"`},
		answer: []string{`"response_item"`, `"role":"assistant"`},
		call:   []string{`"type":"function_call"`},
		result: []string{`"function_call_output"`},
	}

	p := admit(
		h,
		codexExec(aloud),
		func(s string) []string { return []string{"resume", "--last", s} },
		func(path string) []string {
			b := strings.TrimSuffix(filepath.Base(path), ".jsonl")
			return []string{"resume", b[len(b)-36:], "go on"}
		},
	)

	p.treatAll(t, m.hurts(), []hurt{
		{name: "L08 byte-order mark", refused: true},
		{name: "R05 lone result", lost: []string{"step-out"}},
		{name: "R05 open call", made: true}, // it makes a result up itself, for the request alone
		{name: "R05 open call at end", lost: afterwards, gone: afterwards, made: true},
		{name: "T01 torn tail", lost: []string{"gamma-answer"}, gone: []string{"gamma-answer"}},
		{name: "T02 bad line", lost: []string{"beta-answer"}, gone: []string{"beta-answer"}},
		{name: "T03 fused records", lost: []string{"beta-answer"}},
		{name: "T03 stub before a record", lost: []string{"gamma-prompt"}},
		{name: "T05 NULs after a record", lost: []string{"beta-answer"}},
		{name: "T05 NULs before a record", lost: []string{"beta-answer"}},
		{name: "T08 torn header", refused: true},
		{name: "T08 no header", refused: true},
	}, told)
}

func TestGeminiRepair(t *testing.T) {
	h := newGemini(t)
	m := marks{prompt: []string{`"type":"user"`}, answer: []string{`"type":"gemini"`}}
	p := admit(h, geminiShell(aloud), nil, func(string) []string { return []string{"go on", "--resume", "latest"} })
	do := m.hurts()

	// A session that is resumed is written down anew each time: only one that was not shows a damage. Its last answer
	// is hit.
	last := func(l lines) int { return m.answerAt(l, "alpha-answer") }
	do["T01 torn tail"] = func(l lines) lines { i := last(l); return append(slices.Clone(l[:i]), half(l[i])) }
	do["T03 stub before a record"] = func(l lines) lines { return l.with(last(l), func(s string) string { return `{"$set":{"lastUp` + s }) }
	do["T03 fused records"] = func(l lines) lines {
		i := last(l)
		return l.with(i, func(s string) string { return s + l[i+1] }).without(i + 1)
	}

	do["T05 NULs after a record"] = func(l lines) lines {
		return l.with(last(l), func(s string) string { return s + strings.Repeat("\x00", 9000) })
	}
	do["T05 NULs before a record"] = func(l lines) lines {
		return l.with(last(l), func(s string) string { return strings.Repeat("\x00", 9000) + s })
	}
	words := until("alpha-answer")
	answer := []string{"alpha-answer"}
	p.treatAll(t, do, []hurt{
		{name: "L08 byte-order mark", lost: words}, // it does not find the session and begins a new one
		{name: "T01 torn tail", lost: answer, gone: answer},
		{name: "T03 fused records", lost: answer},
		{name: "T03 stub before a record", lost: answer},
		{name: "T05 NULs after a record", lost: answer},
		{name: "T05 NULs before a record", lost: answer},
		{name: "T08 torn header", lost: words},
		{name: "T08 no header", lost: words},
	}, words)
}
