package recovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"belay/checkpoint"
)

// everyCap plans with each cap from 200 to 4,000 bytes (under the race detector, which is slow, with every 41st) and
// checks what holds for all.
func everyCap(t *testing.T, b *story, opt Options, check func(most int, r Result)) {
	t.Helper()
	for most := MinBytes; most <= 4000 && !t.Failed(); most += capStep {
		opt.MaxBytes = most
		r := b.plan(t, opt)
		sound(t, r, most)
		if check != nil {
			check(most, r)
		}
	}
}

func TestL05EveryCapIsMetFromBelow(t *testing.T) {
	b := fromFile(t, "L05-cjk-cap.jsonl")
	for _, f := range []Format{Brief, Delta} {
		everyCap(
			t,
			b,
			Options{
				Start:  StartManual,
				Format: f,
				Roles:  []checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant},
			},
			func(most int, r Result) {
				if !strings.Contains(r.Text, "検査") {
					t.Errorf("%s, cap %d: no word of the talk in:\n%s", f, most, r.Text)
				}
			},
		)
	}
}

// TestO01EveryCap: 22 KB of talk, open calls, everything that a brief can hold.
func TestO01EveryCap(t *testing.T) {
	b := fromFile(
		t,
		"O01-many-turns.jsonl",
	).decision(
		"keep the old parser",
	).call(
		"c1",
		"Bash",
		`{"command":"orgctl create Acme"}`,
	).done(
		"c1",
	).
		call(
			"c2",
			"Bash",
			`{"command":"make release"}`,
		).call(
		"c3", "deploy", `{"path":"x"}`,
	)

	b.checkpoint(3)
	b.dies()
	last := ""
	for _, m := range b.s.Messages {
		if m.Role == checkpoint.RoleAssistant {
			last = m.Text
		}
	}

	everyCap(t, b, Options{}, func(most int, r Result) {
		if !strings.Contains(r.Text, last[:9]) {
			t.Errorf("cap %d: the newest answer %q is not in:\n%s", most, last[:9], r.Text)
		}

		named := strings.Contains(r.Text, "make release") && strings.Contains(r.Text, "deploy")
		if !named && !strings.Contains(r.Text, "2 calls") && !strings.Contains(r.Text, "and 1 more") {
			t.Errorf("cap %d: the open calls are neither named nor counted in:\n%s", most, r.Text)
		}
		if !strings.Contains(r.Text, "left out") {
			t.Errorf("cap %d: what is left out is not counted in:\n%s", most, r.Text)
		}
	})

	everyCap(
		t,
		b,
		Options{Format: Delta, Roles: []checkpoint.Role{checkpoint.RoleAssistant}, SinceNum: new(uint64)},
		func(most int, r Result) {
			if !strings.Contains(r.Text, last[:9]) {
				t.Errorf("delta, cap %d: the newest answer is not in:\n%s", most, r.Text)
			}
		},
	)
}

// TestO01FirstFourSectionsInTwoKB: an agent that cuts the text at 2 KB still shows the most needed lines.
func TestO01FirstFourSectionsInTwoKB(t *testing.T) {
	b := fromFile(t, "O01-many-turns.jsonl")
	for i := range 20 {
		b.call(fmt.Sprint("c", i), "Bash", fmt.Sprintf(`{"command":"step-%02d %s"}`, i, strings.Repeat("x", 200)))
	}

	b.dies()
	for _, most := range []int{2048, 3000, 4000, 9000} {
		r := b.plan(t, Options{MaxBytes: most})
		at := 0
		for _, head := range []string{"## Now\n", "## In doubt", "## Last answer", "## User said"} {
			i := strings.Index(r.Text[at:min(2048, len(r.Text))], head)
			if i < 0 {
				t.Fatalf("cap %d: %q is not in its place in the first 2,048 bytes:\n%s", most, head, r.Text)
			}
			at += i
		}

		has(t, r.Text[:min(2048, len(r.Text))], "step-19")
		sound(t, r, most)
	}
}

func TestO01LastTurnsPresentTheRestCounted(t *testing.T) {
	b := fromFile(t, "O01-many-turns.jsonl")
	for _, most := range []int{2048, 9000} {
		r := b.plan(t, Options{Start: StartManual, MaxBytes: most})
		has(
			t, r.Text, "turn 90:", "turn 89:",
			fmt.Sprintf("(%d earlier left out, %d bytes)", r.Omitted.Messages, r.Omitted.Bytes),
		)

		shown, bytes := 0, 0
		for _, m := range r.Messages {
			if strings.Contains(r.Text, m.Text[:strings.Index(m.Text, ":")+1]) {
				shown++
			} else {
				bytes += len(m.Text)
			}
		}

		if got, want := r.Omitted, (Omitted{Messages: len(r.Messages) - shown, Bytes: bytes}); got != want {
			t.Errorf("cap %d: omitted: got %+v, want %+v", most, got, want)
		}

		for i := 40; i <= 90; i++ {
			if n := strings.Count(r.Text, fmt.Sprintf("turn %d:", i)); n > 1 {
				t.Errorf("cap %d: turn %d stands there %d times", most, i, n)
			}
		}
	}
}

// P37: the user's words have a share of their own, from before the conversation that fits.
func TestP37UsersWordsHaveTheirOwnShare(t *testing.T) {
	text := fromFile(t, "O01-many-turns.jsonl").plan(t, Options{Start: StartManual}).Text
	_, user, _ := strings.Cut(text, "## User said\n")
	user, earlier, _ := strings.Cut(user, "## Earlier messages\n")
	if older := strings.Count(user, "> turn "); older < 3 {
		t.Errorf("got %d of the user's words from before the conversation that fits, want 3 or more:\n%s", older, text)
	}
	if n := strings.Count(earlier, "the user had said\n"); n < 3 {
		t.Errorf("got %d of the user's words in the conversation, want 3 or more:\n%s", n, text)
	}
}

func TestM07TheUsersWordsOutliveOneHugeResult(t *testing.T) {
	r := fromFile(t, "M07-one-huge-result.jsonl").plan(t, Options{Start: StartManual, MaxBytes: 4096})
	sound(t, r, 4096)
	once(t, r.Text, "remember: the port is 7411")
	if n := strings.Count(r.Text, "remember"); n != 2 {
		t.Errorf("got %d lines to remember, want both:\n%s", n, r.Text)
	}
}

func TestCapUnder200IsAnError(t *testing.T) {
	_, err := Plan(Input{State: newStory().user("x").s}, Options{MaxBytes: 199}, noon)
	if !errors.Is(err, ErrTooSmall) {
		t.Errorf("got %v, want ErrTooSmall", err)
	}
}

func TestDefaultCaps(t *testing.T) {
	b := fromFile(t, "O01-many-turns.jsonl")
	for f, most := range map[Format]int{Brief: 9000, Delta: 2048} {
		r := b.plan(t, Options{Start: StartManual, Format: f})
		sound(t, r, most)
		if len(r.Text) < most/2 {
			t.Errorf("%s: got %d bytes of %d: room was left while messages were left out", f, len(r.Text), most)
		}
	}
}
