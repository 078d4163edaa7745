package pi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

// readAll reads on from a cursor until nothing is left, and gives everything as one batch.
func readAll(
	t testing.TB,
	tr checkpoint.Transcript,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) checkpoint.Batch {
	t.Helper()
	var all checkpoint.Batch
	for first := true; ; first = false {
		b, err := tr.Read(context.Background(), from, opt)
		if err != nil {
			t.Fatalf("read from %q: %v", from, err)
		}

		all.Entries = append(all.Entries, b.Entries...)
		all.Losses.Add(b.Losses)
		all.Cursor = b.Cursor
		if first {
			all.First, all.Skipped = b.First, b.Skipped
		}
		if len(b.Cursor) > 300 {
			t.Errorf("cursor has %d bytes, want 300 at most: %s", len(b.Cursor), b.Cursor)
		}
		if !b.More {
			return all
		}

		from = b.Cursor
	}
}

func open(t testing.TB, path string) checkpoint.Transcript {
	tr := OpenTranscript(agent.Source{Path: path})
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return tr
}

// whole reads a file from its beginning with a new reader.
func whole(t testing.TB, path string, final bool) checkpoint.Batch {
	t.Helper()
	return once(t, path, "", checkpoint.ReadOptions{Whole: true, Final: final})
}

// once reads on from a cursor as a later run does: with a new reader.
func once(t testing.TB, path string, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	tr := OpenTranscript(sourceOf(path))
	defer func() {
		if err := tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()

	return readAll(t, tr, from, opt)
}

func write(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	put(t, path, strings.Join(lines, "\n")+"\n")
	return path
}

func put(t testing.TB, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func add(t testing.TB, path, data string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	defer f.Close()
	if _, err := f.WriteString(data); err != nil {
		t.Fatal(err)
	}
}

const headLine = `{"type":"session","version":3,"id":"11111111-1111-4111-8111-111111111111","timestamp":"2026-01-05T10:00:00.000Z","cwd":"/proj/demo"}`

// said makes a message record; parent "" is null. The stamp is made from the id's number.
func said(id, parent, role, text string) string {
	up := "null"
	if parent != "" {
		up = `"` + parent + `"`
	}

	stop := ""
	if role == "assistant" {
		stop = `,"stopReason":"stop"`
	}

	n := 0
	for _, c := range id {
		n = n*31 + int(c)
	}

	return fmt.Sprintf(
		`{"type":"message","id":%q,"parentId":%s,"timestamp":"2026-01-05T10:00:07.000Z","message":{"role":%q,"content":[{"type":"text","text":%q}],"timestamp":%d%s}}`,
		id, up, role, text, 1767607200000+n%1000000, stop,
	)
}

// show writes entries as one line each: what a reader of a failure wants to see.
func show(entries []checkpoint.Entry) []string {
	var list []string
	for _, e := range entries {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = string(e.Op) + " " + s
		}

		for _, f := range []struct {
			on   bool
			name string
		}{{e.Aside, "aside"}, {e.Failed, "failed"}, {e.MadeUp, "madeup"}, {e.Background, "background"}} {
			if f.on {
				s += "," + f.name
			}
		}

		for _, v := range []string{e.Call, e.Name, e.Input, e.Text, e.Output, e.Workspace, e.Session, e.Model} {
			if len(v) > 100 {
				v = v[:100]
			}
			if v != "" {
				s += " " + fmt.Sprintf("%q", v)
			}
		}

		list = append(list, strings.TrimSpace(s))
	}

	return list
}

// standing gives the texts that stand after all entries were folded: upserts in order, less what was taken back.
func standing(entries []checkpoint.Entry, kinds ...checkpoint.EntryKind) []string {
	var ids []string
	texts := map[string]checkpoint.Entry{}
	for _, e := range entries {
		switch e.Op {
		case checkpoint.Retract:
			delete(texts, e.ID)
		case checkpoint.Upsert:
			if _, ok := texts[e.ID]; !ok {
				ids = append(ids, e.ID)
			}
			texts[e.ID] = e
		}
	}

	var list []string
	seen := map[string]bool{}
	for i := len(ids) - 1; i >= 0; i-- {
		e, ok := texts[ids[i]]
		if !ok || seen[ids[i]] {
			continue
		}

		seen[ids[i]] = true
		for _, k := range kinds {
			if e.Kind == k {
				list = append(list, e.Text)
			}
		}
	}

	slices.Reverse(list)
	return list
}

func sourceOf(path string) agent.Source { return agent.Source{Path: path} }

var readOptions checkpoint.ReadOptions
