package gemini

import (
	"context"
	"crypto/sha256"
	"encoding/json"
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
)

var update = flag.Bool("update", false, "rewrite the golden files")

// put writes a file of a test.
func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// more appends to a file of a test.
func more(t testing.TB, path, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, string(data)+text)
}

// readAll reads a transcript to its end and joins what it gave.
func readAll(
	t testing.TB,
	tr checkpoint.Transcript,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) checkpoint.Batch {
	t.Helper()
	var all checkpoint.Batch
	for n := 0; ; n++ {
		b, err := tr.Read(context.Background(), from, opt)
		if err != nil {
			t.Fatal(err)
		}

		all.Entries = append(all.Entries, b.Entries...)
		all.Losses.Add(b.Losses)
		all.First, all.Skipped = all.First || b.First, all.Skipped+b.Skipped
		all.Cursor, from = b.Cursor, b.Cursor
		if !b.More {
			return all
		}
		if n > 10_000 {
			t.Fatal("the reader says for ever that there is more")
		}
	}
}

func open(path string) checkpoint.Transcript { return openTranscript(agent.Source{Path: path}) }

// tell writes entries as one line each.
func tell(entries []checkpoint.Entry) string {
	var lines []string
	for _, e := range entries {
		s := string(e.Op) + string(e.Kind)
		for _, f := range []struct {
			on   bool
			name string
		}{{e.Aside, "aside"}, {e.Failed, "failed"}} {
			if f.on {
				s += "," + f.name
			}
		}

		id := e.ID
		if e.Kind == checkpoint.EntryCall || e.Kind == checkpoint.EntryResult || e.Kind == checkpoint.EntryMeta {
			id = ""
		}

		for _, v := range []string{id, e.Name, e.Text, e.Input, e.Output} {
			if v != "" {
				s += " " + v
			}
		}

		lines = append(lines, s)
	}

	return strings.Join(lines, "\n")
}

// digest tells what a file came to, in one line.
func digest(b checkpoint.Batch) string {
	kinds := map[string]int{}
	turns, calls, failed, words := 0, 0, 0, ""
	open := map[string]bool{}
	for _, e := range b.Entries {
		if e.Op != checkpoint.Upsert {
			kinds[string(e.Op)]++
			continue
		}

		kinds[string(e.Kind)]++
		switch {
		case e.Kind == checkpoint.EntryUser && !e.Aside:
			turns++
			words = e.Text
		case e.Kind == checkpoint.EntryAssistant:
			words = e.Text
		case e.Kind == checkpoint.EntryCall:
			calls++
			open[e.Call] = true
		case e.Kind == checkpoint.EntryResult:
			delete(open, e.Call)
			if e.Failed {
				failed++
			}
		}
	}

	var parts []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s=%d", k, kinds[k]))
	}

	l := b.Losses
	return fmt.Sprintf("%s turns=%d calls=%d failed=%d open=%d bad=%d torn=%d last=%.8x",
		strings.Join(parts, " "), turns, calls, failed, len(open), l.BadLines, l.Torn, sha256.Sum256([]byte(words)))
}

func transcriptFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.json*")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d transcripts in testdata (%v), want 20 or more", len(files), err)
	}
	return files
}

// looks is what can be seen of all files of a folder.
func looks(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}

		info, err := e.Info()
		if err != nil {
			return err
		}

		data, err := os.ReadFile(path)
		files[path] = fmt.Sprintf("%x %v %v", sha256.Sum256(data), info.Mode(), info.ModTime())
		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return files
}

// standing is what stands after all entries were folded: upserts by id, less what was taken back.
func standing(entries []checkpoint.Entry) string {
	byID := map[string]checkpoint.Entry{}
	var ids []string
	for _, e := range entries {
		if e.Op == checkpoint.Retract {
			delete(byID, e.ID)
			continue
		}
		if _, ok := byID[e.ID]; !ok {
			ids = append(ids, e.ID)
		}

		byID[e.ID] = e
	}

	var list []checkpoint.Entry
	done := map[string]bool{}
	for _, id := range slices.Backward(ids) { // one that was taken back and came again stands where it came again
		if e, ok := byID[id]; ok && !done[id] {
			done[id] = true
			list = append(list, e)
		}
	}

	slices.Reverse(list)
	return tell(list)
}

const head = `{"sessionId":"11111111-1111-4111-8111-111111111111","projectHash":"ab","startTime":"2026-01-05T10:00:00.000Z","kind":"main"}` + "\n"

// said is a message as the program writes it.
func said(id, typ, text string) string {
	data, _ := json.Marshal(
		map[string]any{
			"id":        id,
			"timestamp": "2026-01-05T10:00:07.000Z",
			"type":      typ,
			"content":   []any{map[string]any{"text": text}},
		},
	)
	return string(data)
}

func batch(messages ...string) string {
	return `{"$set":{"messages":[` + strings.Join(messages, ",") + `]}}`
}
