package daemon

import (
	"os"
	"path/filepath"
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
	r := start(t, tempDir(t), func(d *Daemon) { d.times.session.IdleAfter = 20 * time.Millisecond })
	before := filePages(t)
	until(t, "the program's pages are given back", func() bool { return filePages(t) < before*2/3 })
	t.Logf("pages of files: %d KB at the start, %d KB at rest", before, filePages(t))
	r.event("s", wire.Event{Kind: "prompt", Text: "what now"})
	used := filePages(t)
	until(t, "the session leaves", func() bool { return len(r.l.sessions.Active()) == 0 })
	until(t, "they are given back again", func() bool { return filePages(t) < before*2/3 })
	t.Logf("%d KB after an event, %d KB at rest again", used, filePages(t))
}

// What is relocated at its start (-buildmode=pie, as distributions build) would end at the first page that it lost.
func TestOnlyAFixedProgramGivesPagesBack(t *testing.T) {
	for _, c := range []struct {
		name, head string
		want       bool
	}{
		{"at a fixed place", "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00", true},
		{"relocated", "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x03\x00", false},
		{"cut short", "\x7fELF", false},
		{"no ELF", "#!/bin/sh\necho \x02\x00\x02\x00\x02\x00", false},
	} {
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, []byte(c.head), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isFixed(path); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
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
