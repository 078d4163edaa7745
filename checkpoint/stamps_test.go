package checkpoint

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func TestC12StampsAreForDisplay(t *testing.T) {
	f := newFold(t)
	stamps := []time.Time{
		time.Date(2031, 6, 1, 0, 0, 0, 0, time.UTC),
		time.UnixMilli(1 << 60),
		time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
		{},
		time.Date(
			9999, 12, 31, 23, 59, 59, 0, time.FixedZone("w", -3600),
		),
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 24*3600)),
	}

	for i, at := range stamps {
		f.file(
			Entry{Kind: EntryUser, Text: fmt.Sprint("p", i), At: at},
			Entry{Kind: EntryCall, Call: fmt.Sprint("c", i), At: at},
			Entry{Kind: EntryCompaction, Text: "s", At: at},
		)
	}

	if f.s.Rounds != len(stamps)-1 || len(f.s.Messages) != len(stamps)+1 {
		t.Errorf("%d rounds, %d messages, want %d and %d", f.s.Rounds, len(f.s.Messages), len(stamps)-1, len(stamps)+1)
	}
	if last := f.s.LastEvent; !last.Equal(f.now) {
		t.Errorf("last sign %s, want the receive time %s", last, f.now)
	}
	if _, err := DecodeState([]byte(jsonOf(t, f.s))); err != nil {
		t.Error(err)
	}
}

func jsonOf(t testing.TB, s *State) string {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
