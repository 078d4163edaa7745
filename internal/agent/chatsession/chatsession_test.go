package chatsession

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/agenttest"
	"belay/internal/transcript/wholefile"
)

const (
	handmade = "testdata/0f1e2d3c4b5a69788796a5b4c3d2e1f0.handmade.json"
	session  = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
)

func read(t testing.TB, src agent.Source, from checkpoint.Cursor, opt checkpoint.ReadOptions) checkpoint.Batch {
	t.Helper()
	b, err := New(agent.Host{}).Open(src).Read(context.Background(), from, opt)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// show writes entries as words.
func show(list []checkpoint.Entry) []string {
	var out []string
	for _, e := range list {
		s := string(e.Kind)
		if e.Op != checkpoint.Upsert {
			s = string(e.Op)
		}

		for _, v := range []string{e.Text, e.Mode, e.Session} {
			if v != "" {
				s += " " + v
			}
		}

		out = append(out, s)
	}

	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestGolden(t *testing.T) {
	b := read(t, agent.Source{Path: handmade, Session: session}, "", checkpoint.ReadOptions{Whole: true})
	same(
		t,
		handmade,
		show(b.Entries),
		[]string{
			"meta plan",
			"user Please find me a train to Graz on Friday.",
			"assistant There is one at 9:25 and one at 11:25.",
			"turn-end",
			"user And back? \"Sunday\" – für zwei.",
			"assistant At 16:35, two seats.",
			"turn-end",
		},
	)

	last := b.Entries[len(b.Entries)-2]
	if got := fmt.Sprintf("%.4x", sha256.Sum256([]byte(last.Text))); got != "87c56c48" {
		t.Errorf("hash of the last words: %s", got)
	}
	if want := time.Date(2026, 4, 3, 10, 2, 9, 123e6, time.Local); !last.At.Equal(want) {
		t.Errorf("the last answer is of %v, want %v", last.At, want)
	}

	named := read(t, agent.Source{Path: handmade}, "", checkpoint.ReadOptions{})
	if named.Entries[0].Session != session || named.Entries[3].Session != session {
		t.Errorf("without a session's name: %v", show(named.Entries))
	}
}

func TestRewrites(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	whole := string(data)
	cut := strings.Index(whole, `  }, {
    "role" : "user",
    "content" : "And`)
	path := filepath.Join(t.TempDir(), session+".json")
	cur := checkpoint.Cursor("")
	for i, s := range []struct {
		file string
		want []string
	}{
		{whole[:cut] + "  } ]\n}\n", []string{
			"meta plan", "user Please find me a train to Graz on Friday.",
			"assistant There is one at 9:25 and one at 11:25.", "turn-end",
		}},
		{whole[:cut+40], nil},
		{"", nil},
		{strings.Replace(whole, "Please find me a train to Graz...", "another title", 1), []string{
			"user And back? \"Sunday\" – für zwei.", "assistant At 16:35, two seats.", "turn-end",
		}},
		{whole, nil},
	} {
		old := time.Now().Add(-time.Hour)
		if err := errors.Join(os.WriteFile(path, []byte(s.file), 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
		b := read(t, agent.Source{Path: path, Session: session}, cur, checkpoint.ReadOptions{})
		same(t, fmt.Sprint("step ", i), show(b.Entries), s.want)
		cur = b.Cursor
	}
}

// The turn that ends in a file that was written just now is no history: its end is told behind first sight.
func TestFirstRoundCounts(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(t.TempDir(), session+".json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	state := checkpoint.NewState(checkpoint.NewKey(name, "", session, ""))
	r := New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	for more, n := true, 0; more && n < 5; n++ {
		b, err := r.Read(context.Background(), state.Cursor, checkpoint.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}

		state.Apply(
			checkpoint.Event{
				Seq:     uint64(n + 1),
				At:      time.Now(),
				Key:     state.Key,
				Kind:    checkpoint.EventEntries,
				Entries: b.Entries,
				Cursor:  b.Cursor,
				Losses:  &b.Losses,
				First:   b.First,
				Skipped: b.Skipped,
			},
		)

		more = b.More
	}

	if state.Rounds != 1 || len(state.Messages) != 4 {
		t.Errorf(
			"%d rounds and %d messages, want the last turn alone to count, and 4", state.Rounds,
			len(state.Messages),
		)
	}
}

func TestLocate(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	top := t.TempDir()
	path := filepath.Join(top, "chat[1]", "travel", session+".json")
	for file, text := range map[string]string{path: string(data), filepath.Join(top, "chat[1]", "travel", "package.json"): `{"name":"x"}`, filepath.Join(top, "node", "a", "b", "c.json"): string(data)} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}

	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}

	for _, q := range []agent.Query{{Workspace: top}, {Workspace: filepath.Join(top, "chat[1]")}, {Workspace: top, Session: session}} {
		found, err := New(agent.Host{}).Locate(context.Background(), q)
		if err != nil || len(found) != 1 || found[0].Path != path || found[0].Session != session {
			t.Errorf("%+v: %v %v", q, found, err)
		}
	}

	named := New(agenttest.Host("", "CHATSESSION_DIR="+filepath.Join(top, "chat[1]")))
	if found, err := named.Locate(context.Background(), agent.Query{Session: session}); err != nil || len(found) != 1 {
		t.Errorf("below its own folder: %v %v", found, err)
	}
	if found, err := named.Locate(context.Background(), agent.Query{Session: "absent"}); err != nil || len(found) != 0 {
		t.Errorf("an unknown session: %v %v", found, err)
	}

	read(t, agent.Source{Path: path}, "", checkpoint.ReadOptions{})
	after, err := os.Stat(path)
	now, rerr := os.ReadFile(path)
	if err != nil || rerr != nil || !bytes.Equal(now, data) || before.Mode() != after.Mode() ||
		!before.ModTime().Equal(after.ModTime()) {
		t.Errorf("reading changed the file: %v %v", err, rerr)
	}

	_, err = New(
		agent.Host{},
	).Open(
		agent.Source{Path: top + "/absent.json"},
	).Read(
		context.Background(), "", checkpoint.ReadOptions{},
	)

	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v, want fs.ErrNotExist", err)
	}
}

func TestRecognise(t *testing.T) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		t.Fatal(err)
	}

	for head, want := range map[string]bool{
		string(data):       true,
		string(data[:300]): true, // a part of the file, from its beginning
		`{"sessionId":"x","projectHash":"y","messages":[]}`: false,
		`{"agentType":"x"}`: false,
		"":                  false,
		"[META]":            false,
	} {
		if got := New(agent.Host{}).Recognise([]byte(head)) == agent.Mine; got != want {
			t.Errorf("%.80q: %v, want %v", head, got, want)
		}
	}
}

func FuzzChat(f *testing.F) {
	data, err := os.ReadFile(handmade)
	if err != nil {
		f.Fatal(err)
	}

	f.Add(data)
	f.Add([]byte(`{"messages":[{"role":1},null,"x"],"sessionId":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = walk("s")(context.Background(), bytes.NewReader(data), func(it wholefile.Item) error {
			for _, e := range it.Entries() {
				if len(e.Text) > checkpoint.CutText || len(e.ID) > 300 {
					t.Errorf("an entry over its bounds: %+v", e)
				}
			}
			return nil
		})
		New(agent.Host{}).Recognise(data)
	})
}
