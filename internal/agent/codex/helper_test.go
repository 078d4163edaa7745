package codex

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"belay/checkpoint"
	"belay/internal/agent"
)

const (
	threadOne = "01999999-0000-7000-8000-000000000001"
	threadTwo = "01999999-0000-7000-8000-000000000002"
)

var whole = checkpoint.ReadOptions{Whole: true}

// nameOf is a rollout's place below a home.
func nameOf(thread string) string {
	return filepath.Join("sessions", "2026", "11", "30", "rollout-2026-11-30T15-00-00-"+thread+".jsonl")
}

func write(t testing.TB, path, content string) {
	t.Helper()
	writeMode(t, path, content, 0o600)
}

func writeMode(t testing.TB, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pack puts a compressed file in place of a plain one, as Codex does after a week.
func pack(t testing.TB, path string) {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}

	write(t, path+packed, string(z.EncodeAll([]byte(read(t, path)), nil)))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// meta is a first record; rec is one of another type.
func meta(thread, cwd string) string {
	return rec("session_meta", fmt.Sprintf(`{"id":%q,"session_id":%q,"cwd":%q,"source":"exec"}`, thread, thread, cwd))
}

func rec(kind, payload string) string {
	return fmt.Sprintf(`{"timestamp":"2026-11-30T15:00:00.000Z","type":%q,"payload":%s}`, kind, payload) + "\n"
}

func says(id, role, kind, text string) string {
	return rec(
		"response_item",
		fmt.Sprintf(
			`{"type":"message","id":%q,"role":%q,"content":[{"type":"text","text":%q}],"internal_chat_message_metadata_passthrough":{"turn_id":"t","content_item_kinds":[%q]}}`,
			id, role, text, kind,
		),
	)
}

func event(payload string) string { return rec("event_msg", payload) }

// rolloutOf makes a rollout of threadOne and a reader for it.
func rolloutOf(t testing.TB, content string) (checkpoint.Transcript, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), nameOf(threadOne))
	write(t, path, content)
	return open(t, path), path
}

func open(t testing.TB, path string) checkpoint.Transcript {
	t.Helper()
	r := openTranscript(agent.Source{Path: path, Session: threadOne})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})

	return r
}

// all reads on from a cursor until there is nothing more.
func all(t testing.TB, r checkpoint.Transcript, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	var sum checkpoint.Batch
	for n := 0; ; n++ {
		b, err := r.Read(context.Background(), from, opt)
		if err != nil {
			t.Fatalf("read from %q: %v", from, err)
		}
		if n == 0 {
			sum.First, sum.Skipped = b.First, b.Skipped
		}

		sum.Entries = append(sum.Entries, b.Entries...)
		sum.Losses.Add(b.Losses)
		if len(b.Cursor) > 1000 {
			t.Errorf("cursor of %d bytes: %s", len(b.Cursor), b.Cursor)
		}

		from, sum.Cursor = b.Cursor, b.Cursor
		if !b.More {
			return sum
		}
	}
}

// brief is one entry as a word or two, for tables; what only tells workspace and model is left out.
func brief(entries []checkpoint.Entry) string {
	var list []string
	for _, e := range entries {
		if e.Kind == checkpoint.EntryMeta {
			continue
		}

		s := string(e.Op) + string(e.Kind)
		if e.Op == checkpoint.Retract || e.Kind == checkpoint.EntryOwn {
			s += " " + e.ID
		}

		for _, v := range []string{e.Text, e.Name, e.Call, e.Input, e.Output} {
			if v != "" {
				s += " " + v
			}
		}

		for word, on := range map[string]bool{" failed": e.Failed, " made up": e.MadeUp, " background": e.Background, " of " + e.Session: e.Session != ""} {
			if on {
				s += word
			}
		}

		list = append(list, s)
	}

	return strings.Join(list, "\n")
}

func marshal(v any) string {
	b, _ := json.Marshal(v) // plain structs always encode
	return string(b)
}

// stamps are a folder's files with their content, mode and time: what reading must not change.
func stamps(t testing.TB, dir string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}

		list = append(
			list,
			fmt.Sprintf("%s %v %v x%x", path, info.Mode(), info.ModTime().Format(time.RFC3339Nano), read(t, path)),
		)

		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	slices.Sort(list)
	return strings.Join(list, "\n")
}
