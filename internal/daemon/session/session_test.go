package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"belay/checkpoint"
)

// Twelve rounds, one each 100 s: a SPARSE at the fifth, and at the tenth.
func TestRoundsAtLeisure(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		for i := range 12 {
			b.at(time.Duration(i+1) * 100 * time.Second)
			b.round()
		}
		if got, want := b.taken(), []string{"SPARSE 8m20s", "SPARSE 16m40s"}; !slices.Equal(got, want) {
			t.Errorf("taken: %q, want %q", got, want)
		}
	})
}

// Twelve rounds in four minutes: a SPARSE at the fifth, one that the clock takes without an event when its gate opens,
// and none in the silence after it.
func TestWhatTimeRefusesIsTakenLater(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		for i := range 12 {
			b.at(time.Duration(i+1) * 20 * time.Second)
			b.round()
		}

		b.at(9 * time.Minute)
		if got, want := b.taken(), []string{"SPARSE 1m40s", "SPARSE 6m40s"}; !slices.Equal(got, want) {
			t.Errorf("taken: %q, want %q", got, want)
		}

		ticks := b.Counts.Ticks.Load()
		b.at(13 * time.Minute)
		if got := b.Counts.Ticks.Load(); got != ticks {
			t.Errorf("it woke %d times in silence", got-ticks)
		}
	})
}

// A session in which nothing happens for ten minutes is saved and leaves memory by itself.
func TestAnIdleSessionLeaves(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		b.round()
		b.at(9 * time.Minute)
		if b.house.left.Load() {
			t.Fatal("it left before its time")
		}

		b.at(11 * time.Minute)
		if !b.house.left.Load() {
			t.Fatal("it is in memory after eleven idle minutes")
		}

		<-b.ended
		st, err := b.Dir.LoadState(b.Key)
		if err != nil || st.Rounds != 1 {
			t.Errorf("saved: %+v, %v; want its round", st, err)
		}
		if _, ok := b.Apply(t.Context(), checkpoint.Event{Kind: checkpoint.EventStop}); ok {
			t.Error("a session that has left took an event")
		}
	})
}

// A store that fails is tried again with a growing pause; nothing is lost, the log is told once, and who waits hears of
// it.
func TestAFailedCheckpointIsTriedAgain(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		b.round()
		b.disk.fail(func() error { return errBroken })
		reply, ok := b.Checkpoint(t.Context(), checkpoint.CauseManual)
		if r := <-reply; !ok || !errors.Is(r.Err, errBroken) || !r.Decision.Owed {
			t.Errorf("a checkpoint by hand: %+v, want the store's error, and owed", r)
		}

		b.at(time.Minute)
		b.disk.fail(nil)
		b.at(2 * time.Minute)

		var after []time.Duration
		for i := 1; i < len(b.disk.puts); i++ {
			after = append(after, b.disk.puts[i].Sub(b.disk.puts[i-1]).Round(time.Second))
		}

		want := []time.Duration{
			time.Second,
			2 * time.Second,
			4 * time.Second,
			8 * time.Second,
			16 * time.Second,
			30 * time.Second,
		}

		if !slices.Equal(after, want) {
			t.Errorf("tried again after %v, want %v", after, want)
		}
		if got, want := b.taken(), []string{"FULL 1m1s"}; !slices.Equal(got, want) {
			t.Errorf("taken: %q, want %q", got, want)
		}
		if n := b.logs.FilterMessage("checkpoint").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}

// A store that hangs for one checkpoint delays neither events nor the end of the session.
func TestAHungStoreDelaysNoEvent(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		let := make(chan struct{})
		b.disk.fail(func() error { <-let; return nil })
		b.round()
		reply, _ := b.Checkpoint(t.Context(), checkpoint.CauseManual)
		for range 100 {
			b.round()
		}

		if took := time.Since(b.began); took > 0 {
			t.Errorf("events waited %s for the store", took)
		}

		close(let)
		if r := <-reply; !r.Decision.Take || r.Number != 1 {
			t.Errorf("the checkpoint: %+v, want number 1", r)
		}
	})
}

// What panics costs one checkpoint, and the log quotes nothing of it.
func TestAPanicCostsOneCheckpoint(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		b.round()
		b.disk.fail(func() error { panic("the user said hunter2") })
		reply, _ := b.Checkpoint(t.Context(), checkpoint.CauseManual)
		if r := <-reply; r.Err == nil {
			t.Errorf("got %+v, want an error", r)
		}

		b.disk.fail(nil)
		b.at(time.Minute)
		if got := b.taken(); len(got) != 1 || b.Counts.Panics.Load() != 1 {
			t.Errorf("taken: %q, %d panics; want one of each", got, b.Counts.Panics.Load())
		}
		if n := b.logs.FilterMessage("panic").FilterField(zap.String("panic", "string")).Len(); n != 1 {
			t.Errorf("%d lines tell the panic by its kind alone, want 1", n)
		}
	})
}

// An event that comes again is one event; its second answer names the record that holds it.
func TestTheSameEventCountsOnce(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		first := b.say(checkpoint.Event{ID: "e1", Kind: checkpoint.EventStop, Text: "once"})
		again := b.say(checkpoint.Event{ID: "e1", Kind: checkpoint.EventStop, Text: "once"})
		if first.Double || !again.Double || again.Seq != first.Seq {
			t.Errorf("first %+v, again %+v; want the second to be a double with the same number", first, again)
		}

		rounds, _ := Ask(t.Context(), b.Session, func(st *checkpoint.State) int { return st.Rounds })
		if rounds != 1 {
			t.Errorf("%d rounds, want 1", rounds)
		}
	})
}

// A question to a session that is held up ends with the context of whoever asks.
func TestAskingEndsWithTheContext(t *testing.T) {
	alone(t, func(t *testing.T, b *bench) {
		let := make(chan struct{})
		go Ask(t.Context(), b.Session, func(*checkpoint.State) bool { <-let; return true })
		b.at(0) // it is held up now
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := b.Apply(
			ctx, checkpoint.Event{Kind: checkpoint.EventStop},
		); ok ||
			time.Since(b.began) != time.Second {
			t.Errorf("answered: %t after %s; want no answer after 1s", ok, time.Since(b.began))
		}

		close(let)
	})
}
