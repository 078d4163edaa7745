package claude

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"belay/internal/agent"
)

// project puts a live transcript into a config home.
func project(t *testing.T, home, dir, session, content string, age time.Duration) string {
	t.Helper()
	path := filepath.Join(home, "projects", dir, session+".jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	write(t, path, []byte(content))
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}

	return path
}

func headLine(session, cwd string) string {
	return fmt.Sprintf(
		`{"type":"mode","sessionId":"%s"}`+"\n"+`{"type":"user","uuid":"u","sessionId":"%s","cwd":"%s","message":{"content":"x"}}`+"\n",
		session, session, cwd,
	)
}

func sessions(found []agent.Found) string {
	var ids []string
	for _, f := range found {
		ids = append(ids, f.Session[:2])
	}
	return strings.Join(ids, " ")
}

func TestLocateByContentNewestFirst(t *testing.T) {
	home, work := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(work, link); err != nil {
		t.Skipf("no links here: %v", err)
	}

	id := func(n int) string { return fmt.Sprintf("%02d000000-0000-4000-8000-000000000000", n) }
	project(t, home, "-a", id(1), headLine(id(1), work), 3*time.Hour)
	project(t, home, "-a", id(2), headLine(id(2), "/elsewhere"), 2*time.Hour)        // P01: two projects in one folder
	project(t, home, "-other", id(3), headLine(id(3), link), time.Hour)              // P03: the same place by a link
	project(t, home, "-other", id(4), headLine(id(5), work), 4*time.Hour)            // another session's records only
	project(t, home, "-other", id(6), "", 5*time.Hour)                               // nothing yet
	project(t, home, "-other", id(7), "{torn\n"+headLine(id(7), work), 24*time.Hour) // a broken first line
	for _, c := range []struct {
		q    agent.Query
		want string
	}{
		{agent.Query{}, "03 02 01 05 06 07"},
		{agent.Query{Most: 2}, "03 02"},
		{agent.Query{Workspace: work}, "03 01 05 07"},
		{agent.Query{Workspace: work, Most: 1}, "03"},
		{agent.Query{Session: id(2)}, "02"},
		{agent.Query{Session: id(5)}, "05"},
		{agent.Query{Session: id(4)}, ""},
		{agent.Query{Session: id(6)}, "06"},
		{agent.Query{Session: id(2), Workspace: work}, ""},
	} {
		got, err := locate(t.Context(), home, c.q)
		if err != nil || sessions(got) != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c.q, sessions(got), err, c.want)
		}
	}

	if got, err := locate(t.Context(), filepath.Join(home, "no"), agent.Query{}); err != nil || got != nil {
		t.Errorf("no home: got %v, %v", got, err)
	}
}

func TestF07OnlyLiveNames(t *testing.T) {
	home := t.TempDir()
	names := strings.Fields(string(caseFile(t, "F07-dir-listing.txt")))
	dir := filepath.Join(home, "projects", "-proj-demo")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, n := range names {
		write(t, filepath.Join(dir, n), []byte(headLine(sessionOne, "/proj/demo")))
	}

	files, err := transcripts(home)
	if err != nil || len(files) != 2 {
		t.Errorf("got %d of %d names, %v; want 2: %v", len(files), len(names), err, files)
	}
}

// M01: a list of many large files costs a head each.
func TestM01ManyLargeFiles(t *testing.T) {
	home := t.TempDir()
	line := fmt.Sprintf(
		`{"type":"user","uuid":"u","message":{"role":"user","content":"%s"}}`+"\n", strings.Repeat("x", 900),
	)

	for n := range 122 {
		id := fmt.Sprintf("%08d-0000-4000-8000-000000000000", n)
		path := project(
			t, home, fmt.Sprintf("-p%d", n%7), id, headLine(id, "/proj")+strings.Repeat(line, 100),
			time.Duration(n)*time.Minute,
		)

		if err := os.Truncate(path, 40<<20); err != nil { // sparse: the rest is a hole
			t.Fatal(err)
		}
	}

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	got, err := locate(t.Context(), home, agent.Query{Most: 1000})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != 122 {
		t.Errorf("got %d files, %v; want 122", len(got), err)
	}
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 150 {
		t.Errorf("allocated %d MB in all, want at most 150", mb)
	}
	if took > 10*time.Second { // five times the row's number
		t.Errorf("took %v", took)
	}
}
