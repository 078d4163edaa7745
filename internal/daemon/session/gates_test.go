package session

import (
	"slices"
	"testing"
	"testing/synctest"

	"belay/checkpoint"
)

// newest gives the session's newest checkpoint.
func (b *bench) newest() *checkpoint.Checkpoint {
	b.t.Helper()
	list, err := b.Store.List(b.t.Context(), b.Key)
	if err != nil || len(list) == 0 {
		b.t.Fatalf("no checkpoint: %v", err)
	}

	data, err := b.Store.Get(b.t.Context(), b.Key, list[0].Number)
	if err != nil {
		b.t.Fatal(err)
	}

	c, err := checkpoint.Decode(data)
	if err != nil {
		b.t.Fatal(err)
	}

	return c
}

func TestForcedCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		e     checkpoint.Event
		cause checkpoint.Cause
	}{
		"session end":       {checkpoint.Event{Kind: checkpoint.EventEnd, Reason: "bye"}, checkpoint.CauseEnd},
		"before compaction": {checkpoint.Event{Kind: checkpoint.EventCompacting}, checkpoint.CauseCompaction},
		"decision":          {checkpoint.Event{Kind: checkpoint.EventMark, Text: "tabs", Decision: true}, checkpoint.CauseDecision},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func(t *testing.T, b *bench) {
				b.round()
				if d := b.say(c.e).Decision; !d.Take || d.Text != "forced: "+string(c.cause) {
					t.Errorf("decision %+v", d)
				}
				if got, want := b.taken(), []string{"FULL 0s"}; !slices.Equal(got, want) {
					t.Errorf("taken: %q, want %q", got, want)
				}
			})
		})
	}
}

// A trigger that comes while a checkpoint is being written is not in it: it is owed, and taken after it.
func TestATriggerDuringAWriteIsOwed(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		let := make(chan struct{})
		b.disk.fail(func() error { <-let; return nil })
		b.round()
		if _, ok := b.Checkpoint(t.Context(), checkpoint.CauseManual); !ok {
			t.Fatal("the session is stopping")
		}

		synctest.Wait() // the write is under way
		b.say(checkpoint.Event{Kind: checkpoint.EventPrompt, Text: "said during the write"})
		if d := b.say(
			checkpoint.Event{Kind: checkpoint.EventCompacting},
		).Decision; !d.Owed ||
			d.Code != checkpoint.CodeInProgress {
			t.Errorf("decision %+v, want it owed", d)
		}

		close(let)
		b.at(2 * b.Times.RetryFirst)
		if got := b.taken(); len(got) != 2 {
			t.Fatalf("taken: %q, want two", got)
		}
		if got := b.newest(); got.Cause != checkpoint.CauseCompaction || len(got.State.Messages) != 3 {
			t.Errorf("cause %s with %d messages, want compaction with 3", got.Cause, len(got.State.Messages))
		}
	})
}

func TestBothKindsAreOneFull(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		for range 4 {
			b.round()
		}

		for _, e := range []checkpoint.Event{
			{Kind: checkpoint.EventPrompt, Text: "the fifth"}, {Kind: checkpoint.EventToolStart, Call: "c", Name: "Read"},
			{Kind: checkpoint.EventToolEnd, Call: "c"}, {Kind: checkpoint.EventStop, Text: "a"},
		} {
			b.say(e)
		}

		if got, want := b.taken(), []string{"FULL 0s"}; !slices.Equal(got, want) {
			t.Errorf("taken: %q, want %q", got, want)
		}

		both, _ := Ask(
			t.Context(), b.Session,
			func(st *checkpoint.State) bool { return st.LastFull != nil && st.LastSparse != nil },
		)

		if !both {
			t.Error("not both stamps were moved by one FULL")
		}
	})
}
