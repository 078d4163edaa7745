package daemon

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"belay/internal/wire"
)

// filePages is how much of files is mapped into this process, in KB.
func filePages(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); name == "RssFile" {
			kb, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb
		}
	}
	t.Skip("this kernel does not tell RssFile")
	return 0
}

// A daemon with nothing to do gives back what its start and its sessions took, and works on when it is needed.
func TestAtRest(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) { d.times.idleAfter = 20 * time.Millisecond })
	before := filePages(t)
	until(t, "the program's pages are given back", func() bool { return filePages(t) < before*2/3 })
	t.Logf("pages of files: %d KB at the start, %d KB at rest", before, filePages(t))
	r.event("s", wire.Event{Kind: "prompt", Text: "what now"})
	used := filePages(t)
	until(t, "the session leaves", func() bool { return len(r.d.active()) == 0 })
	until(t, "they are given back again", func() bool { return filePages(t) < before*2/3 })
	t.Logf("%d KB after an event, %d KB at rest again", used, filePages(t))
}

func TestSpan(t *testing.T) {
	for _, tc := range []struct {
		text     string
		from, to uintptr
		ok       bool
	}{
		{"00400000-00bad000", 0x400000, 0xbad000, true},
		{"7f1c37c25000-7f1c37d7b000", 0x7f1c37c25000, 0x7f1c37d7b000, true},
		{"00400000", 0x400000, 0, false},
		{"2-1", 2, 1, false},
		{"", 0, 0, false},
		{"x-y", 0, 0, false},
	} {
		if from, to, ok := span(tc.text); from != tc.from || to != tc.to || ok != tc.ok {
			t.Errorf("%q: %x to %x, %v; want %x to %x, %v", tc.text, from, to, ok, tc.from, tc.to, tc.ok)
		}
	}
}
