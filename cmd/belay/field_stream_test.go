package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"belay/internal/state/query"
)

// resident is how many bytes of memory a process holds now.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}

	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return pages * int64(os.Getpagesize())
}

// M04: the daemon's memory does not grow with the transcript that it follows. BELAY_RECORDS=1000000 is the row's own
// number.
func TestM04MemoryDoesNotGrowWithTheTranscript(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a process's memory is read from /proc")
	}

	records, warm := 60_000, 20_000
	if n, err := strconv.Atoi(os.Getenv("BELAY_RECORDS")); err == nil {
		records = n
	}

	h := newHome(t)
	pid, _ := h.daemon(t)
	const session = "55555555-5555-4555-8555-555555555555"
	path := filepath.Join(string(h), ".claude", "projects", "-proj", session+".jsonl")
	put(t, path, nil)
	h.ok(
		t, "event", "--agent", "claude-code", "--session", session, "--workspace", "/proj",
		fmt.Sprintf(`{"kind":"start","transcript":%q}`, path),
	)

	written := 0
	stream := func(n int) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}

		w := bufio.NewWriter(f)
		for range n {
			written++
			who, content := "user", fmt.Sprintf("%q", fmt.Sprintf("this is the wish number %d of them", written))
			if written%2 == 0 {
				who, content = "assistant", fmt.Sprintf(`[{"type":"text","text":"the answer number %d"}]`, written)
			}

			fmt.Fprintf(
				w,
				`{"type":%q,"uuid":"00000000-0000-4000-8000-%012d","sessionId":%q,"cwd":"/proj","timestamp":"2026-01-05T10:00:07.000Z","message":{"role":%q,"content":%s}}`+"\n",
				who, written, session, who, content,
			)
		}

		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}

		last := fmt.Sprintf("wish number %d of", written-1)
		var st query.SessionStatus
		if !waitLong(func() bool {
			out := h.ok(t, "status", "--agent", "claude-code", "--session", session, "--json")
			return json.Unmarshal([]byte(out), &st) == nil && strings.Contains(st.CurrentTask, last) &&
				st.AtRisk.Bytes == 0
		}) {
			t.Fatalf(
				"after %d records the task is %q with %d bytes at risk, want the last wish and none", written,
				st.CurrentTask, st.AtRisk.Bytes,
			)
		}
	}

	stream(warm)
	before := resident(t, pid)
	stream(records)
	after := int64(0)
	if !wait(func() bool { after = resident(t, pid); return after <= before+20<<20 }) {
		t.Errorf(
			"after %d more records the daemon holds %d MB, %d before: want 20 MB more at most", records,
			after>>20, before>>20,
		)
	}

	t.Logf("%d MB after %d records, %d MB after %d more", before>>20, warm, after>>20, records)
}

// waitLong is wait for what takes a slow machine minutes.
func waitLong(done func() bool) bool {
	for range 30 {
		if wait(done) {
			return true
		}
	}
	return false
}
