package pi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// public are transcripts of other projects, which are not ours to copy.
const public = "../../../../shared/transcripts/openclaw/public"

func transcripts(t *testing.T, globs ...string) []string {
	t.Helper()
	var files []string
	for _, g := range globs {
		list, err := filepath.Glob(g)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, list...)
	}

	return files
}

func ourTranscripts(t *testing.T) []string {
	t.Helper()
	files := transcripts(t, "testdata/openclaw/*.jsonl", "testdata/pi/*.jsonl")
	if len(files) < 25 {
		t.Fatalf("%d transcripts in testdata, want 25 or more", len(files))
	}
	return files
}

// digest tells what a file came to, in one line.
func digest(b checkpoint.Batch) string {
	kinds := map[string]int{}
	turns, calls := 0, 0
	open := map[string]bool{}
	words := ""
	for _, e := range b.Entries {
		switch {
		case e.Op != checkpoint.Upsert:
			kinds[string(e.Op)]++
			continue
		case e.Kind == checkpoint.EntryUser && !e.Aside:
			turns++
			words = e.Text
		case e.Kind == checkpoint.EntryAssistant && !e.Aside:
			words = e.Text
		case e.Kind == checkpoint.EntryCall:
			calls++
			open[e.Call] = true
		case e.Kind == checkpoint.EntryResult && !e.MadeUp && !e.Background:
			delete(open, e.Call)
		}
		kinds[string(e.Kind)]++
	}

	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s=%d", k, kinds[k]))
	}

	l := b.Losses
	return fmt.Sprintf(
		"%s turns=%d calls=%d open=%d bad=%d torn=%d rescued=%d repeats=%d replaced=%d last=%.8x",
		strings.Join(
			parts, " ",
		),
		turns,
		calls,
		len(open),
		l.BadLines,
		l.Torn,
		l.Rescued,
		l.Repeats,
		l.Replaced,
		sha256.Sum256([]byte(words)),
	)
}

func golden(t *testing.T, name string, files []string) {
	t.Helper()
	var got bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&got, "%s: %s\n", filepath.Base(f), digest(whole(t, f, true)))
	}

	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	wants, gots := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(wants), len(gots)) {
		var g, w string
		if i < len(gots) {
			g = gots[i]
		}
		if i < len(wants) {
			w = wants[i]
		}
		if g != w {
			t.Errorf("got  %s\nwant %s", g, w)
		}
	}
}

func TestGolden(t *testing.T) { golden(t, "golden.txt", ourTranscripts(t)) }

func TestGoldenPublic(t *testing.T) {
	files := transcripts(t, public+"/*.jsonl")
	if len(files) == 0 {
		t.Skip("the public transcripts are not here")
	}
	golden(t, "golden-public.txt", files)
}

// Every cut of a transcript is read without an error; a reader of a later run goes on from its cursor and gives exactly
// what one reader of the whole file gives after that place.
func TestCutsAndResumes(t *testing.T) {
	for _, file := range append(ourTranscripts(t), transcripts(t, public+"/agent*.jsonl")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		want := whole(t, file, false).Entries
		dir := t.TempDir()
		for i := range 50 {
			n := len(data) * i / 49
			path := filepath.Join(dir, fmt.Sprint(i), filepath.Base(file)) // its name tells the session
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}

			put(t, path, string(data[:n]))
			part := whole(t, path, false)
			c, known := lines.ParseCursor[state](part.Cursor)
			if !known {
				t.Fatalf("%s cut at %d: cursor %q is none", file, n, part.Cursor)
			}
			if off := c.Pos.Off; off > int64(n) || off > 0 && data[off-1] != '\n' {
				t.Fatalf("%s cut at %d: cursor at %d is not after a newline", file, n, off)
			}

			add(t, path, string(data[n:]))
			rest := once(t, path, part.Cursor, checkpoint.ReadOptions{})
			got := append(part.Entries, rest.Entries...)
			if !slices.Equal(got, want) {
				t.Fatalf(
					"%s cut at %d: got\n%s\nwant\n%s", file, n, strings.Join(readable(got), "\n"),
					strings.Join(readable(want), "\n"),
				)
			}
		}
	}
}

func readable(entries []checkpoint.Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%+v", e))
	}
	return list
}

func TestReadingChangesNothing(t *testing.T) {
	data, err := os.ReadFile("testdata/openclaw/unknown-types-and-bad-lines.handmade.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	if err := os.WriteFile(path, data, 0o400); err != nil {
		t.Fatal(err)
	}

	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	whole(t, path, true)
	once(t, path, "", checkpoint.ReadOptions{})
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(now, data) || !before.ModTime().Equal(after.ModTime()) || before.Mode() != after.Mode() ||
		len(names) != 1 {
		t.Errorf(
			"reading changed the file: mode %v to %v, time %v to %v, %d names", before.Mode(), after.Mode(),
			before.ModTime(), after.ModTime(), len(names),
		)
	}
}

func TestMissingFile(t *testing.T) {
	tr := open(t, filepath.Join(t.TempDir(), "none.jsonl"))
	b, err := tr.Read(context.Background(), "", checkpoint.ReadOptions{})
	if !errors.Is(err, fs.ErrNotExist) || b.Cursor != "" {
		t.Errorf("got %v and cursor %q, want fs.ErrNotExist and none", err, b.Cursor)
	}
}

func TestSessionOfHeaderDiffers(t *testing.T) {
	path := write(t, headLine)
	for _, c := range []struct{ source, want string }{
		{"", "11111111-1111-4111-8111-111111111111"},
		{"11111111-1111-4111-8111-111111111111", ""},
		{"another", "11111111-1111-4111-8111-111111111111"},
	} {
		tr := OpenTranscript(agent.Source{Path: path, Session: c.source})
		b := readAll(t, tr, "", checkpoint.ReadOptions{})
		if len(b.Entries) != 1 || b.Entries[0].Session != c.want || b.Entries[0].Workspace != "/proj/demo" {
			t.Errorf("source %q: got %+v, want session %q in /proj/demo", c.source, b.Entries, c.want)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
}
