package recovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

const (
	here   = "/proj/demo"
	window = 24 * time.Hour
)

var newcomer = checkpoint.NewKey("claude-code", "", "99999999-9999-4999-8999-999999999999", "")

// dead is a proven predecessor: every test changes one thing about it.
func dead(id string, change ...func(*Candidate)) Candidate {
	c := Candidate{
		Key:       checkpoint.NewKey("claude-code", "", id, here),
		Workspace: here,
		Title:     "port the parser",
		LastEvent: noon.Add(-time.Hour),
		Ending:    &checkpoint.Ending{At: noon.Add(-time.Hour), InTurn: true},
		InTurn:    true,
		Open:      1,
		Dead:      true,
	}

	for _, f := range change {
		f(&c)
	}

	return c
}

// TestO08S09Choose holds the table that says which session is the predecessor.
func TestO08S09Choose(t *testing.T) {
	alive := func(c *Candidate) { c.Alive, c.Dead, c.Ending = true, false, nil }
	idle := func(c *Candidate) { c.InTurn, c.Open, c.Ending = false, 0, &checkpoint.Ending{At: c.LastEvent} }
	clean := func(c *Candidate) { c.InTurn, c.Ending = false, &checkpoint.Ending{At: c.LastEvent, Clean: true} }
	old := func(c *Candidate) { c.LastEvent = noon.Add(-25 * time.Hour) }
	elsewhere := func(c *Candidate) { c.Workspace = "/proj/other" }
	below := func(c *Candidate) { c.Workspace = here + "/sub" }
	unproven := func(c *Candidate) { c.Dead = false }
	given := func(c *Candidate) { c.Given = true }
	child := func(c *Candidate) { c.Key.Child = "k1" }
	agent := func(c *Candidate) { c.Key.Agent = "codex" }
	account := func(c *Candidate) { c.Key.Account = "work" }
	self := func(c *Candidate) { c.Key = newcomer }
	future := func(c *Candidate) { c.LastEvent = noon.Add(time.Hour) }
	for _, c := range []struct {
		name  string
		list  []Candidate
		adopt Adopt
		want  string // adopt ID, idle ID, list of IDs, or nothing
	}{
		{"nobody", nil, AdoptAuto, ""},
		{"proven", []Candidate{dead("a")}, AdoptAuto, "adopt a"},
		{"no setting is auto", []Candidate{dead("a")}, "", "adopt a"},
		{"died idle", []Candidate{dead("a", idle)}, AdoptAuto, "idle a"},
		{"ended cleanly", []Candidate{dead("a", clean)}, AdoptAuto, ""},
		{"too old", []Candidate{dead("a", old)}, AdoptAuto, ""},
		{"a clock that was set back", []Candidate{dead("a", future)}, AdoptAuto, "adopt a"},
		{"not known dead", []Candidate{dead("a", unproven)}, AdoptAuto, "list a"},
		{"two", []Candidate{dead("a", func(c *Candidate) { c.LastEvent = noon.Add(-2 * time.Hour) }), dead("b")}, AdoptAuto, "list b a"},
		{"two, one ended cleanly", []Candidate{dead("a"), dead("b", clean)}, AdoptAuto, "adopt a"},
		{"two, one too old", []Candidate{dead("a"), dead("b", old)}, AdoptAuto, "adopt a"},
		{"two, one was told", []Candidate{dead("a"), dead("b", given)}, AdoptAuto, "adopt a"},
		{"told already", []Candidate{dead("a", given)}, AdoptAuto, ""},
		{"another lives", []Candidate{dead("a"), dead("b", alive)}, AdoptAuto, "list a"},
		{"another agent's lives", []Candidate{dead("a"), dead("b", agent, alive)}, AdoptAuto, "list a"},
		{"another lives elsewhere", []Candidate{dead("a"), dead("b", elsewhere, alive)}, AdoptAuto, "adopt a"},
		{"only a living one", []Candidate{dead("a", alive)}, AdoptAuto, ""},
		{"another workspace", []Candidate{dead("a", elsewhere)}, AdoptAuto, ""},
		{"a workspace below", []Candidate{dead("a", below)}, AdoptAuto, ""},
		{"another agent", []Candidate{dead("a", agent)}, AdoptAuto, ""},
		{"another account", []Candidate{dead("a", account)}, AdoptAuto, ""},
		{"a sub-agent", []Candidate{dead("a", child)}, AdoptAuto, ""},
		{"itself", []Candidate{dead("a", self)}, AdoptAuto, ""},
		{"itself, alive, beside it", []Candidate{dead("a"), dead("b", alive, self)}, AdoptAuto, "adopt a"},
		{"setting list", []Candidate{dead("a")}, AdoptList, "list a"},
		{"setting list, idle", []Candidate{dead("a", idle)}, AdoptList, "list a"},
		{"setting never", []Candidate{dead("a")}, AdoptNever, ""},
	} {
		if got := answer(Choose(c.list, newcomer, here, c.adopt, window, noon)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}

	if got := answer(
		Choose([]Candidate{dead("a", func(c *Candidate) { c.Workspace = "" })}, newcomer, "", AdoptAuto, window, noon),
	); got != "" {
		t.Errorf("no workspace: got %q, want nothing: two unknown folders are not the same", got)
	}
}

func answer(c Choice) string {
	switch {
	case c.Adopt != nil:
		return "adopt " + c.Adopt.Key.Session
	case c.Idle != nil:
		return "idle " + c.Idle.Key.Session
	case len(c.List) > 0:
		out := "list"
		for _, o := range c.List {
			out += " " + o.Key.Session
		}
		return out
	}
	return ""
}

func TestIdleLineAndListHoldNoContent(t *testing.T) {
	want := "The last session in this folder stopped without a good-bye at 2026-01-05 11:00 UTC, while it was idle. What was said: " +
		"`belay recover --agent claude-code --session abc-1`\n"
	if got := IdleLine(dead("abc-1"), "belay"); got != want {
		t.Errorf("idle line: got %q, want %q", got, want)
	}

	want = "2 sessions in this folder ended without a good-bye; none is proven to be the one that goes on here. `belay recover --session ID` shows one.\n" +
		"- `abc-1`, last sign 11:00:00 UTC, in the middle of its work, 1 tool calls open, titled \"port the parser\"\n" +
		"- `abc-2`, last sign 2026-01-03 12:00 UTC, idle\n"
	other := dead(
		"abc-2",
		func(c *Candidate) { c.InTurn, c.Open, c.Title, c.LastEvent = false, 0, "", noon.AddDate(0, 0, -2) },
	)

	if got := ListText([]Candidate{dead("abc-1"), other}, "belay", noon); got != want {
		t.Errorf("list: got %q, want %q", got, want)
	}

	if got := ListText(
		[]Candidate{dead("abc-1")}, "belay", noon,
	); !strings.HasPrefix(
		got, "A session in this folder ended",
	) {
		t.Errorf("list of one: got %q", got)
	}
}

func TestListIsBoundedWhateverItHolds(t *testing.T) {
	var list []Candidate
	for i := range 1000 {
		list = append(
			list,
			dead(fmt.Sprint(i, strings.Repeat("x", 5000)), func(c *Candidate) { c.Title = strings.Repeat("長", 5000) }),
		)
	}

	got := ListText(list, "belay", noon)
	if lines := strings.Count(
		got, "\n",
	); lines != 12 || len(got) > 5000 ||
		!strings.Contains(got, "- and 990 older ones\n") {
		t.Errorf("got %d lines and %d bytes, want 12 lines, at most 5,000 bytes and 990 counted", lines, len(got))
	}
}

func TestHostileNamesInTheList(t *testing.T) {
	for _, evil := range attacks(t) {
		c := dead(evil, func(c *Candidate) { c.Title = evil })
		for _, text := range []string{IdleLine(c, "belay"), ListText([]Candidate{c}, "belay", noon)} {
			if n, want := strings.Count(
				text, "\n",
			), strings.Count(
				ListText([]Candidate{dead("a")}, "belay", noon), "\n",
			); n > want {
				t.Errorf("%q adds lines: %q", evil, text)
			}
			harmless(t, evil, text)
		}
	}
}

// TestCommandIsOneShellWordEach: a command that stands in a brief may be run as it is.
func TestCommandIsOneShellWordEach(t *testing.T) {
	for _, c := range []struct{ session, want string }{
		{"4038b454-c8ce-4bef-8515-65b5cbf8eb40", "`belay show --agent pi --session 4038b454-c8ce-4bef-8515-65b5cbf8eb40`"},
		{"agent:main:main", "`belay show --agent pi --session agent:main:main`"},
		{"two words", "`belay show --agent pi --session='two words'`"},
		{"x; rm -rf ~", "`belay show --agent pi --session='x; rm -rf ~'`"},
		{"$(id)", "`belay show --agent pi --session='$(id)'`"},
		{"-rf", "`belay show --agent pi --session='-rf'`"},
		{"", "`belay show --agent pi --session=''`"},
		{"a'; rm x; '", "`belay list`"},
		{"a`id`", "`belay list`"},
		{"a\nb", "`belay list`"},
		{"a\u202eb", "`belay list`"},
		{strings.Repeat("x", 201), "`belay list`"},
	} {
		if got := command("belay", "show", "pi", c.session); got != c.want {
			t.Errorf("session %q: got %s, want %s", c.session, got, c.want)
		}
	}
}
