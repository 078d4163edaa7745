//go:build linux

package lab

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// What only OpenClaw's file era can show: up to 2026.7 a session is a file of lines.

// openclawFiles says whether this OpenClaw is of the file era, and its version.
func openclawFiles(t *testing.T) (bool, string) {
	t.Helper()
	program, err := filepath.EvalSymlinks(os.Getenv(openclawVar))
	if err != nil {
		t.Fatal(err)
	}

	data, err := os.ReadFile(filepath.Join(filepath.Dir(program), "package.json"))
	if err != nil {
		t.Fatal(err)
	}

	var about struct{ Version string }
	if err := json.Unmarshal(data, &about); err != nil {
		t.Fatal(err)
	}

	return regexp.MustCompile(`^2026\.[1-7]\.`).MatchString(about.Version), about.Version
}

// filesOnly ends a case that this OpenClaw cannot show: since 2026.8 it keeps its sessions in a database.
func filesOnly(t *testing.T) {
	t.Helper()
	if ok, version := openclawFiles(t); !ok {
		t.Skipf("OpenClaw %s keeps its sessions in a database: this is for one that has files", version)
	}
}

// TestOpenClawFallback: the gateway dies, and the client that waits for it takes the turn up itself, from its
// beginning. It is told what is in doubt, and that is all there is to tell.
func TestOpenClawFallback(t *testing.T) {
	h := newOpenClaw(t)
	filesOnly(t)
	g := h.gateway()
	a := h.openclawInTool(gatewayTurn("please start the work")...)
	session := h.newest()
	h.until("the call is known", func() bool { return len(h.status(session).OpenCalls) == 1 })
	before := len(h.model.Main())
	h.model.Script(Turn{Text: "I look at what was done."})
	g.signal(syscall.SIGKILL)
	h.killTools()
	openclawInDoubt(t, h.asked(before, "please start the work"))
	if code := a.wait(); code != 0 {
		t.Errorf("the client: exit %d, want 0\n%s", code, a.printed())
	}

	h.until("its turn is a round", func() bool { return h.status(session).MessageCount == 1 })
	h.gateway()
	if r := h.gatewayRun("and what now"); r.Count(record) != 0 {
		t.Errorf("the next turn: got %d records, want none\n%s", r.Count(record), said(r))
	}
}

// TestOpenClawSuccessor: the gateway moves a session to a file of its own, under another id, when it compacts it. The
// words that belay has of the old one are told to the new one.
func TestOpenClawSuccessor(t *testing.T) {
	h := newOpenClaw(t)
	filesOnly(t)
	h.openclawSet(`mode: "default"`, `mode: "default", truncateAfterCompaction: true, keepRecentTokens: 20000`)
	h.gateway()
	session := h.openclawWork()
	if out := h.openclawOther(
		"sessions", "compact", "agent:main:main", "--json",
	); !strings.Contains(
		out, `"compacted": true`,
	) {
		t.Fatalf("the session was not compacted:\n%s", out)
	}

	h.openclawCompacted(session, 2, false)
	if st := h.status(session); h.newest() == session || st.State != "ended" {
		t.Errorf("the old session: got %s, want ended, and another that goes on", st.State)
	}
}

// TestOpenClawRepair: OpenClaw mends some files itself, by leaving out what it cannot read, and all before that. The
// copy has it.
func TestOpenClawRepair(t *testing.T) {
	h := newOpenClaw(t)
	filesOnly(t)
	h.prog.files = ".openclaw/agents/*/sessions/*.jsonl"
	if out, err := h.belay("uninstall", h.prog.name); err != nil { // the file is the program's alone
		t.Fatalf("belay uninstall: %v\n%s", err, out)
	}

	h.gateway()
	for i, word := range []string{"alpha", "beta", "gamma"} {
		turns := []Turn{{Text: word + "-answer"}}
		if i == 0 {
			turns = []Turn{{Text: "alpha-look", Calls: []Call{openclawExec(aloud)}}, turns[0]}
		}
		h.model.Script(turns...)
		h.gatewayRun(word + "-prompt")
	}

	p := &patient{h: h, ask: func() string { _, _, answer := h.gatewaySays("go on"); return answer }}
	p.read()
	m := marks{
		prompt: []string{`"role":"user"`},
		answer: []string{`"role":"assistant"`},
		call:   []string{`"toolCall"`},
		result: []string{`"role":"toolResult"`},
	}

	do := m.hurts()
	maps.Copy(do, m.parents("id", "parentId"))
	p.treatAll(t, do, []hurt{
		{name: "L08 byte-order mark"}, // it makes itself another header, and so it does in T08
		{name: "R01 repeats", lost: []string{"gamma-answer"}},
		{name: "R02 cycle", lost: until("beta-prompt")},
		{name: "R02 own parent", lost: until("beta-answer")},
		{name: "R04 phantom parent", lost: until("beta-answer")},
		{name: "R05 lone result", lost: until("step-out"), gone: []string{"alpha-look"}},
		{name: "R05 open call", lost: until("step-out"), made: true},
		{name: "R05 open call at end", lost: afterwards, gone: afterwards, made: true},
		{name: "T01 torn tail", lost: []string{"gamma-answer"}, gone: []string{"gamma-answer"}},
		{name: "T02 bad line", lost: until("beta-answer"), gone: []string{"beta-answer"}},
		{name: "T03 fused records", lost: until("gamma-prompt")},
		{name: "T03 stub before a record", lost: until("gamma-prompt")},
		{name: "T05 NULs after a record", lost: until("beta-answer")},
		{name: "T05 NULs before a record", lost: until("beta-answer")},
		{name: "T05 a record of NULs", lost: until("beta-answer"), gone: []string{"beta-answer"}},
		{name: "T08 torn header"},
		{name: "T08 no header"},
	}, told)
}
