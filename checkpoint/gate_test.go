package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)

func testKey() Key { return Key{Agent: "claude-code", Session: "11111111-1111-4111-8111-111111111111"} }

// defaultGates are what a person's settings hold who has set nothing.
func defaultGates() Gates {
	return Gates{SparseTime: 5 * time.Minute, SparseRounds: 5, FullTime: 5 * time.Minute, ForcedTime: time.Second}
}

// sim drives State and Gates in simulated time as the daemon's session does: fold, decide, write at once, and take what
// is owed when its gate opens.
type sim struct {
	t     *testing.T
	s     *State
	g     Gates
	cond  Condition
	now   time.Time
	seq   uint64
	slow  bool // writes do not end by themselves
	due   *Decision
	held  *State   // snapshot that is being written
	taken []string // "8m20s SPARSE round"
	last  Decision
}

func newSim(t *testing.T) *sim {
	return &sim{t: t, s: NewState(testKey()), g: defaultGates(), now: epoch}
}

// at moves the clock and takes what becomes due on the way. An event that comes at the very moment goes first.
func (m *sim) at(offset time.Duration) *sim {
	to := epoch.Add(offset)
	for m.due == nil && !m.cond.Degraded {
		d := m.g.DecideOwed(m.s, m.cond, m.now)
		if d.Take || d.Code == CodeNothingNew {
			m.settle(d)
			continue
		}
		if d.Opens.IsZero() || !d.Opens.Before(to) {
			break
		}
		if !d.Opens.After(m.now) {
			m.t.Fatalf("at %s: what is owed opens at %s and is not taken: %+v", m.now.Sub(epoch), d.Opens.Sub(epoch), d)
		}

		m.now = d.Opens
	}

	m.now = to
	return m
}

func (m *sim) apply(e Event) Effect {
	m.seq++
	e.Seq, e.Key = m.seq, m.s.Key
	if e.At.IsZero() {
		e.At = m.now
	}
	return m.s.Apply(e)
}

func (m *sim) event(e Event) Decision {
	f := m.apply(e)
	full := f.Force
	switch {
	case full != "":
	case f.ChainEnd:
		full = CauseChain
	case f.Beat:
		full = CauseHeartbeat
	}

	if f.Double || full == "" && !f.Round {
		return Decision{Code: CodeNoTrigger}
	}

	m.settle(m.g.Decide(m.s, full, f.Round, m.cond, m.now))
	return m.last
}

func (m *sim) settle(d Decision) {
	m.last = d
	m.s.Owe(d)
	if d.Code == CodeDegraded && d.Owed && m.s.Gap == nil {
		m.apply(Event{Kind: EventDegraded, Reason: "disk full"})
	}
	if !d.Take {
		return
	}

	m.due, m.held, m.cond.Busy = &d, m.s.Clone(), true
	if !m.slow {
		m.wrote("")
	}
}

// wrote ends the write of the checkpoint that is due.
func (m *sim) wrote(failed string) {
	d := *m.due
	c := New(m.held, m.s.LastNumber+1, d, m.now)
	t := c.Taken()
	t.Failed = failed
	m.due, m.cond.Busy = nil, false
	m.apply(Event{Kind: EventCheckpoint, Taken: &t})
	if failed != "" {
		d.Take, d.Owed = false, true
		m.s.Owe(d)
		return
	}

	text := fmt.Sprintf("%s %s %s", m.now.Sub(epoch), d.Level, d.Cause)
	if d.Both {
		text += " both"
	}

	m.taken = append(m.taken, text)
}

// round is one prompt now and its Stop after took; with a tool call when tool is set.
func (m *sim) round(start, took time.Duration, tool bool) Decision {
	m.at(start)
	n := m.s.TurnSeq + 1
	m.event(Event{Kind: EventPrompt, Text: fmt.Sprintf("prompt %d", n)})
	if tool {
		m.event(Event{Kind: EventToolStart, Call: fmt.Sprintf("t%d", n), Name: "Bash"})
		m.event(Event{Kind: EventToolEnd, Call: fmt.Sprintf("t%d", n), Name: "Bash"})
	}

	m.at(start + took)
	return m.event(Event{Kind: EventStop, Text: fmt.Sprintf("answer %d", n)})
}

func (m *sim) want(want ...string) {
	m.t.Helper()
	if !slices.Equal(m.taken, want) {
		m.t.Errorf("taken\n  %s\nwant\n  %s", strings.Join(m.taken, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestExampleTwelveRoundsNoTools(t *testing.T) {
	m := newSim(t)
	for i := range 12 {
		m.round(time.Duration(i)*100*time.Second, 100*time.Second, false)
	}

	m.at(2 * time.Hour)
	m.want("8m20s SPARSE round", "16m40s SPARSE round")
	if m.s.Rounds != 12 || m.s.SinceSparse != 2 {
		t.Errorf("rounds %d, since the last SPARSE %d, want 12 and 2", m.s.Rounds, m.s.SinceSparse)
	}
}

func TestExampleTwelveRoundsWithTools(t *testing.T) {
	m := newSim(t)
	for i := range 12 {
		m.round(time.Duration(i)*100*time.Second, 100*time.Second, true)
	}
	m.at(2 * time.Hour)
	m.want("1m40s FULL tool-chain", "6m40s FULL tool-chain", "8m20s SPARSE round", "11m40s FULL tool-chain",
		"16m40s FULL tool-chain both", "21m40s FULL tool-chain")
}

func TestExampleTwelveRoundsInFourMinutes(t *testing.T) {
	m := newSim(t)
	for i := range 12 {
		m.round(time.Duration(i)*20*time.Second, 20*time.Second, false)
	}
	m.at(3 * time.Hour)
	m.want("1m40s SPARSE round", "6m40s SPARSE round")
}

func TestP05ThousandRoundsInAMinuteThenSilence(t *testing.T) {
	m := newSim(t)
	for i := range 1000 {
		m.round(time.Duration(i)*60*time.Millisecond, 60*time.Millisecond, false)
	}

	m.at(time.Minute)
	m.want("300ms SPARSE round")
	m.at(time.Minute + time.Hour)
	m.want("300ms SPARSE round", "5m0.3s SPARSE round")
	if m.s.Rounds != 1000 {
		t.Errorf("rounds %d, want 1000", m.s.Rounds)
	}
}

func TestP05SilenceWithBeatsCostsNothing(t *testing.T) {
	m := newSim(t)
	m.round(0, time.Second, true)
	for i := range 10 {
		m.at(time.Duration(i+1) * 30 * time.Minute)
		if d := m.event(Event{Kind: EventBeat}); d.Code != CodeNothingNew {
			t.Errorf("beat %d of an idle session: got %s (%s), want %s", i, d.Code, d.Text, CodeNothingNew)
		}
	}

	m.want("1s FULL tool-chain")
}

// TestGateRows names every row.
func TestGateRows(t *testing.T) {
	full := func(ago time.Duration, news uint64) *Taken {
		return &Taken{Number: 1, Level: Full, At: epoch.Add(-ago), News: news}
	}
	tests := []struct {
		name  string
		s     State
		full  Cause
		round bool
		cond  Condition
		want  Decision
	}{
		{name: "no trigger", want: Decision{Code: CodeNoTrigger, Text: "no trigger"}},
		{name: "round, first ever", s: State{News: 9, SinceSparse: 5}, round: true,
			want: Decision{Take: true, Level: Sparse, Cause: CauseRound, Code: CodePassed, Text: "all gates passed"}},
		{name: "round, too few", s: State{News: 9, SinceSparse: 3}, round: true,
			want: Decision{Level: Sparse, Cause: CauseRound, Code: CodeRoundGate, Text: "round gate: 3 of 5"}},
		{
			name:  "round, time before rounds",
			s:     State{News: 9, SinceSparse: 3, LastSparse: full(170*time.Second, 1)},
			round: true,
			want: Decision{
				Level: Sparse,
				Cause: CauseRound,
				Code:  CodeTimeGate,
				Text:  "time gate: 2m10s left",
				Opens: epoch.Add(130 * time.Second),
			},
		},
		{
			name:  "round, time alone",
			s:     State{News: 9, SinceSparse: 5, LastSparse: full(170*time.Second, 1)},
			round: true,
			want: Decision{
				Level: Sparse,
				Cause: CauseRound,
				Code:  CodeTimeGate,
				Text:  "time gate: 2m10s left",
				Owed:  true,
				Opens: epoch.Add(130 * time.Second),
			},
		},
		{
			name:  "round, exactly five minutes",
			s:     State{News: 9, SinceSparse: 5, LastSparse: full(5*time.Minute, 1)},
			round: true,
			want:  Decision{Take: true, Level: Sparse, Cause: CauseRound, Code: CodePassed, Text: "all gates passed"},
		},
		{
			name:  "round, a nanosecond early",
			s:     State{News: 9, SinceSparse: 5, LastSparse: full(5*time.Minute-1, 1)},
			round: true,
			want: Decision{
				Level: Sparse,
				Cause: CauseRound,
				Code:  CodeTimeGate,
				Text:  "time gate: 1s left",
				Owed:  true,
				Opens: epoch.Add(1),
			},
		},
		{
			name:  "round, nothing new since a FULL",
			s:     State{News: 9, SinceSparse: 5, LastFull: full(time.Hour, 9)},
			round: true,
			want:  Decision{Level: Sparse, Cause: CauseRound, Code: CodeNothingNew, Text: "nothing new"},
		},
		{name: "beat", s: State{News: 9, LastFull: full(5*time.Minute, 1)}, full: CauseHeartbeat,
			want: Decision{Take: true, Level: Full, Cause: CauseHeartbeat, Code: CodePassed, Text: "heartbeat"}},
		{
			name: "beat, too soon",
			s:    State{News: 9, LastFull: full(time.Minute, 1)},
			full: CauseHeartbeat,
			want: Decision{
				Level: Full,
				Cause: CauseHeartbeat,
				Code:  CodeTimeGate,
				Text:  "time gate: 4m0s left",
				Owed:  true,
				Opens: epoch.Add(4 * time.Minute),
			},
		},
		{
			name: "beat, new since the FULL though not since the SPARSE",
			s:    State{News: 9, LastFull: full(time.Hour, 1), LastSparse: full(time.Hour, 9)},
			full: CauseHeartbeat,
			want: Decision{Take: true, Level: Full, Cause: CauseHeartbeat, Code: CodePassed, Text: "heartbeat"},
		},
		{name: "beat, nothing new", s: State{News: 9, LastFull: full(time.Hour, 9)}, full: CauseHeartbeat,
			want: Decision{Level: Full, Cause: CauseHeartbeat, Code: CodeNothingNew, Text: "nothing new"}},
		{name: "chain", s: State{News: 9}, full: CauseChain,
			want: Decision{Take: true, Level: Full, Cause: CauseChain, Code: CodePassed, Text: "tool chain ended"}},
		{
			name:  "chain and round, both pass",
			s:     State{News: 9, SinceSparse: 5},
			full:  CauseChain,
			round: true,
			want: Decision{
				Take:  true,
				Level: Full,
				Cause: CauseChain,
				Code:  CodePassed,
				Text:  "tool chain ended",
				Both:  true,
			},
		},
		{
			name:  "chain and round, only the FULL passes",
			s:     State{News: 9, SinceSparse: 4},
			full:  CauseChain,
			round: true,
			want:  Decision{Take: true, Level: Full, Cause: CauseChain, Code: CodePassed, Text: "tool chain ended"},
		},
		{
			name:  "chain and round, only the SPARSE passes",
			s:     State{News: 9, SinceSparse: 5, LastFull: full(time.Minute, 1)},
			full:  CauseChain,
			round: true,
			want: Decision{
				Take:     true,
				Level:    Sparse,
				Cause:    CauseRound,
				Code:     CodePassed,
				Text:     "all gates passed",
				owedFull: CauseChain,
			},
		},
		{
			name:  "chain and round, both refused by time",
			s:     State{News: 9, SinceSparse: 5, LastFull: full(time.Minute, 1), LastSparse: full(2*time.Minute, 1)},
			full:  CauseChain,
			round: true,
			want: Decision{
				Level:      Full,
				Cause:      CauseChain,
				Code:       CodeTimeGate,
				Text:       "time gate: 4m0s left",
				Owed:       true,
				Opens:      epoch.Add(3 * time.Minute),
				owedSparse: true,
			},
		},
		{
			name: "forced skips time",
			s:    State{News: 9, LastFull: full(2*time.Second, 1), LastForced: epoch.Add(-time.Second)},
			full: CauseCompaction,
			want: Decision{
				Take:  true,
				Level: Full,
				Cause: CauseCompaction,
				Code:  CodePassed,
				Text:  "forced: compaction",
			},
		},
		{
			name: "forced, second in a second",
			s:    State{News: 9, LastForced: epoch.Add(-300 * time.Millisecond)},
			full: CauseManual,
			want: Decision{
				Level: Full,
				Cause: CauseManual,
				Code:  CodeForcedGate,
				Text:  "forced gate: 1s left",
				Owed:  true,
				Opens: epoch.Add(700 * time.Millisecond),
			},
		},
		{name: "forced, nothing new", s: State{News: 9, LastFull: full(time.Hour, 9)}, full: CauseEnd,
			want: Decision{Level: Full, Cause: CauseEnd, Code: CodeNothingNew, Text: "nothing new"}},
		{
			name:  "breaker before all",
			s:     State{News: 9, SinceSparse: 5},
			full:  CauseEnd,
			round: true,
			cond:  Condition{Degraded: true, Busy: true},
			want: Decision{
				Level:      Full,
				Cause:      CauseEnd,
				Code:       CodeDegraded,
				Text:       "degraded",
				Owed:       true,
				owedSparse: true,
			},
		},
		{
			name: "degraded, nothing new",
			s:    State{News: 9, LastFull: full(time.Hour, 9)},
			full: CauseEnd,
			cond: Condition{Degraded: true},
			want: Decision{Level: Full, Cause: CauseEnd, Code: CodeDegraded, Text: "degraded"},
		},
		{
			name:  "degraded, a first round is owed too",
			s:     State{News: 9, SinceSparse: 1},
			round: true,
			cond:  Condition{Degraded: true},
			want:  Decision{Level: Sparse, Cause: CauseRound, Code: CodeDegraded, Text: "degraded", Owed: true},
		},
		{
			name: "in progress, FULL",
			s:    State{News: 9},
			full: CauseManual,
			cond: Condition{Busy: true},
			want: Decision{
				Level: Full,
				Cause: CauseManual,
				Code:  CodeInProgress,
				Text:  "a checkpoint is being written",
				Owed:  true,
			},
		},
		{
			name:  "in progress, SPARSE with its rounds",
			s:     State{News: 9, SinceSparse: 5},
			round: true,
			cond:  Condition{Busy: true},
			want: Decision{
				Level: Sparse,
				Cause: CauseRound,
				Code:  CodeInProgress,
				Text:  "a checkpoint is being written",
				Owed:  true,
			},
		},
		{
			name:  "in progress, SPARSE without",
			s:     State{News: 9, SinceSparse: 4},
			round: true,
			cond:  Condition{Busy: true},
			want: Decision{
				Level: Sparse,
				Cause: CauseRound,
				Code:  CodeInProgress,
				Text:  "a checkpoint is being written",
			},
		},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if got := defaultGates().Decide(&c.s, c.full, c.round, c.cond, epoch); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestForcedCauses(t *testing.T) {
	for _, c := range []Cause{
		CauseEnd, CauseExit, CauseStopping, CauseCompaction, CauseFirstSight, CauseManual, CauseDecision,
		CauseCatchUp,
	} {
		if !c.Forced() {
			t.Errorf("%s is not forced, want forced", c)
		}
	}
	for _, c := range []Cause{CauseRound, CauseHeartbeat, CauseChain, ""} {
		if c.Forced() {
			t.Errorf("%q is forced, want gated", c)
		}
	}
}

func TestOwedFullSurvivesTheSparseOfTheSameEvent(t *testing.T) {
	m := newSim(t)
	for i := range 4 {
		m.round(time.Duration(i)*20*time.Second, 20*time.Second, i == 0) // a chain end at 20 s takes a FULL
	}
	m.round(80*time.Second, 20*time.Second, true) // its SPARSE passes, its FULL is owed
	m.at(time.Hour)
	m.want("20s FULL tool-chain", "1m40s SPARSE round", "5m20s FULL tool-chain")
}

func TestOwedSparseIsNotHeldByAnOwedFull(t *testing.T) {
	m := newSim(t)
	for i := range 5 {
		m.round(time.Duration(i)*20*time.Second, 20*time.Second, false)
	}

	m.want("1m40s SPARSE round") // its gate opens at 6m40s
	m.round(300*time.Second, time.Second, true)
	for i := range 4 {
		m.round(
			time.Duration(310+10*i)*time.Second, time.Second, i == 3,
		) // the last owes both: SPARSE at 6m40s, FULL at 10m1s
	}

	m.at(2 * time.Hour)
	m.want("1m40s SPARSE round", "5m1s FULL tool-chain", "6m40s SPARSE round", "10m1s FULL tool-chain")
}

func TestOwedIsForgottenWhenNothingIsNew(t *testing.T) {
	m := newSim(t)
	for i := range 10 {
		m.round(time.Duration(i)*10*time.Second, 10*time.Second, false)
	}

	if !m.s.OwedSparse {
		t.Fatal("no SPARSE is owed after ten quick rounds, want one")
	}

	m.at(110 * time.Second)
	m.settle(m.g.Decide(m.s, CauseManual, false, m.cond, m.now)) // holds all that the owed one would
	m.at(time.Hour)
	m.want("50s SPARSE round", "1m50s FULL manual")
	if m.s.OwedSparse || m.s.OwedFull != "" {
		t.Errorf("owed SPARSE %v, FULL %q, want nothing", m.s.OwedSparse, m.s.OwedFull)
	}
}

func TestForcedAtMostOneASecond(t *testing.T) {
	m := newSim(t)
	for i := range 20 { // ten a second
		m.at(time.Duration(i) * 100 * time.Millisecond)
		m.event(Event{Kind: EventMark, Decision: true, Text: fmt.Sprintf("decision %d", i)})
	}

	m.at(time.Minute)
	m.want("0s FULL decision", "1s FULL decision", "2s FULL decision")
	if len(m.s.Decisions) != 20 {
		t.Errorf("decisions %d, want 20", len(m.s.Decisions))
	}
}

func TestF06NoStormOfCompactions(t *testing.T) {
	m := newSim(t)
	m.round(0, time.Second, false)
	for i := range 20 {
		m.at(time.Duration(10+i) * time.Second)
		m.event(Event{Kind: EventCompacting, Reason: "auto"})
		if c := m.s.Cursor; c != "" {
			t.Fatalf("event %d moved the cursor to %q", i, c)
		}
	}

	m.want("10s FULL compaction")
}

func TestBusyOwesAndNeverOverlaps(t *testing.T) {
	m := newSim(t)
	m.slow = true
	m.at(0)
	m.event(Event{Kind: EventMark, Decision: true, Text: "one"})
	m.at(2 * time.Second)
	if d := m.event(Event{Kind: EventEnd}); d.Code != CodeInProgress || !d.Owed {
		t.Fatalf("end while a checkpoint is written: got %+v, want in progress and owed", d)
	}

	m.at(3 * time.Second)
	m.slow = false
	m.wrote("")
	m.at(10 * time.Second)
	m.want("3s FULL decision", "4s FULL session-end") // a second after the one before
}

func TestFailedWriteMovesNothingButTheForcedStamp(t *testing.T) {
	m := newSim(t)
	m.slow = true
	m.event(Event{Kind: EventMark, Decision: true, Text: "one"})
	m.wrote("no space left on device")
	if m.s.LastFull != nil || m.s.LastNumber != 0 || m.s.OwedFull != CauseDecision {
		t.Errorf(
			"after a failed write: last FULL %v, number %d, owed %q, want none, 0, decision", m.s.LastFull,
			m.s.LastNumber, m.s.OwedFull,
		)
	}

	m.slow = false
	m.at(time.Minute)
	m.want("1s FULL decision")
}

func TestP12DegradedCountsAndOwesOneCatchUp(t *testing.T) {
	m := newSim(t)
	m.cond.Degraded = true
	for i := range 3 { // fewer than the round gate asks for: owed all the same
		if d := m.round(time.Duration(i)*10*time.Second, time.Second, false); d.Code != CodeDegraded {
			t.Fatalf("round while degraded: got %s, want %s", d.Code, CodeDegraded)
		}
	}

	if m.s.Rounds != 3 || m.s.Gap == nil || m.s.OwedFull != CauseCatchUp {
		t.Fatalf("rounds %d, gap %v, owed %q, want 3, a gap, catch-up", m.s.Rounds, m.s.Gap, m.s.OwedFull)
	}

	m.at(time.Hour)
	m.want()
	m.cond.Degraded = false
	m.at(2 * time.Hour)
	m.want("1h0m0s FULL catch-up")
	if m.s.Gap != nil || m.s.OwedFull != "" || m.s.OwedSparse {
		t.Errorf("after the catch-up: gap %v, owed %q %v, want nothing", m.s.Gap, m.s.OwedFull, m.s.OwedSparse)
	}
}

func TestFullAloneLeavesTheSparseStamp(t *testing.T) {
	m := newSim(t)
	for i := range 4 {
		m.round(time.Duration(i)*time.Second, time.Second, false)
	}

	m.settle(m.g.Decide(m.s, CauseManual, false, m.cond, m.now))
	if m.s.SinceSparse != 4 || m.s.LastSparse != nil {
		t.Errorf(
			"after a FULL alone: %d rounds since SPARSE, stamp %v, want 4 and none", m.s.SinceSparse,
			m.s.LastSparse,
		)
	}

	m.round(5*time.Second, time.Second, false)
	m.want("4s FULL manual", "6s SPARSE round")
}

func TestElapsed(t *testing.T) {
	mono := time.Now()
	tests := []struct {
		name       string
		since, now time.Time
		least      time.Duration
		most       time.Duration
	}{
		{"never", time.Time{}, epoch, 1 << 62, 1<<63 - 1},
		{"plain", epoch, epoch.Add(7 * time.Second), 7 * time.Second, 7 * time.Second},
		{"stamp in the future counts as long ago", epoch.Add(10 * 365 * 24 * time.Hour), epoch, 1 << 62, 1<<63 - 1},
		{"another zone", epoch.In(time.FixedZone("x", 3600)), epoch.Add(time.Second), time.Second, time.Second},
		{"monotonic readings", mono, mono.Add(time.Minute), time.Minute, time.Minute},
		{
			"one without a monotonic reading",
			mono.Round(0),
			mono.Add(time.Minute),
			time.Minute - time.Millisecond,
			time.Minute + time.Millisecond,
		},
		{"now", epoch, epoch, 0, 0},
	}

	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if got := Elapsed(c.since, c.now); got < c.least || got > c.most {
				t.Errorf("got %s, want %s to %s", got, c.least, c.most)
			}
		})
	}
}

func TestClockJumpsNeverHoldAGateShut(t *testing.T) {
	g := defaultGates()
	for _, jump := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, 6 * time.Minute, 24 * time.Hour} {
		s := NewState(testKey())
		s.News, s.SinceSparse = 9, 5
		s.LastFull, s.LastSparse = &Taken{Level: Full, At: epoch}, &Taken{Level: Sparse, At: epoch}
		s.LastForced = epoch
		now := epoch.Add(jump)
		if d := g.Decide(s, CauseHeartbeat, true, Condition{}, now); !d.Take || !d.Both {
			t.Errorf("clock moved by %s: got %+v, want a FULL for both", jump, d)
		}
		if d := g.Decide(s, CauseManual, false, Condition{}, now); !d.Take {
			t.Errorf("clock moved by %s: forced got %+v, want taken", jump, d)
		}
	}
}
