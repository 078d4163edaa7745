package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fill writes a transcript of so many megabytes, with a cycle of parents here and there.
func fill(t *testing.T, path, session string, megabytes int) {
	t.Helper()
	put(t, path, nil)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	w, pad := bufio.NewWriterSize(f, 1<<20), strings.Repeat("x", 850)
	for n := range megabytes << 10 {
		parent := n - 1
		if n%1000 == 0 {
			parent = n + 500
		}

		fmt.Fprintf(
			w,
			`{"type":"user","uuid":"u%d","parentUuid":"u%d","sessionId":%q,"cwd":"/proj","message":{"role":"user","content":"%d %s"}}`+"\n",
			n, parent, session, n, pad,
		)
	}

	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// M02 and R02: what recovery costs follows what is new, not what there is: from nothing but the file, and from a FULL
// at its 99%. Two sizes in one run, so that a slow machine is slow for both.
func TestM02RecoverIsFlat(t *testing.T) {
	took := map[string]time.Duration{}
	for _, megabytes := range []int{10, 200} {
		h := newHome(t)
		session := fmt.Sprintf("66666666-6666-4666-8666-%012d", megabytes)
		path := filepath.Join(string(h), ".claude", "projects", "-proj", session+".jsonl")
		fill(t, path, session, megabytes)
		for _, from := range []string{"the file alone", "a FULL"} {
			if from == "a FULL" {
				h.ok(
					t, "event", "--agent", "claude-code", "--session", session, "--workspace", "/proj",
					fmt.Sprintf(`{"kind":"start","transcript":%q}`, path),
				)

				if !wait(func() bool { return strings.Contains(h.ok(t, "show", "--session", session), "FULL") }) {
					t.Fatal("no FULL at first sight")
				}

				stopDaemon(h.state())
				grow(t, path, session, megabytes)
			}

			best := time.Hour
			for range 3 { // the best of three
				began := time.Now()
				out := h.ok(t, "recover", "--session", session)
				best = min(best, time.Since(began))
				if from == "a FULL" && !strings.Contains(out, "the newest wish") {
					t.Errorf("%d MB: what came after the FULL is not in\n%s", megabytes, out)
				}
			}

			took[fmt.Sprintf("%s of %d MB", from, megabytes)] = best
		}
	}

	t.Logf("%v", took)
	for _, from := range []string{"the file alone", "a FULL"} {
		small, large := took[from+" of 10 MB"], took[from+" of 200 MB"]
		if large > 3*small {
			t.Errorf(
				"recover from %s took %v for 200 MB and %v for 10 MB: want 3 times that at most", from, large,
				small,
			)
		}
	}
}

// grow adds 100 KB to a transcript, the same whatever its size, and the newest wish.
func grow(t *testing.T, path, session string, megabytes int) {
	t.Helper()
	more := filepath.Join(t.TempDir(), "more")
	fill(t, more, session, 1)
	data, err := os.ReadFile(more)
	if err != nil {
		t.Fatal(err)
	}

	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	text := strings.ReplaceAll(string(data[:100<<10]), `"uuid":"u`, `"uuid":"new`)
	text = text[:strings.LastIndex(text, "\n")+1]
	text += fmt.Sprintf(
		`{"type":"user","uuid":"last%d","sessionId":%q,"cwd":"/proj","message":{"role":"user","content":"the newest wish"}}`+"\n",
		megabytes, session,
	)

	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
