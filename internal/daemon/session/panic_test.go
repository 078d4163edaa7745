package session

import (
	"errors"
	"strings"
	"testing"
)

// What a panic was about may be what somebody said: the log gets its kind, and the stack says where.
func TestPanicTextQuotesNothing(t *testing.T) {
	words := "the user said hunter2"
	for _, p := range []any{words, errors.New(words), []string{words}} {
		if got := PanicText(p); strings.Contains(got, "hunter2") {
			t.Errorf("PanicText(%T) = %q, want its kind alone", p, got)
		}
	}

	defer func() {
		if got := PanicText(recover()); !strings.Contains(got, "index out of range") {
			t.Errorf("a fault of the runtime is told as %q", got)
		}
	}()

	_ = []int{}[len(words)]
}
