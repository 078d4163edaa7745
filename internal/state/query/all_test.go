package query_test

import (
	"belay/internal/agent"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/internal/state/index"
	"belay/internal/state/query"
	"belay/internal/vfs"
	"belay/recovery"
)

// opening counts the state files that are opened.
type opening struct {
	vfs.FS
	states *int
}

func (o opening) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if filepath.Base(name) == "state.json" {
		*o.states++
	}
	return o.FS.OpenFile(name, flag, perm)
}

// many saves sessions of a few folders, in each the newest of which ended cleanly, a while ago.
func many(t testing.TB, f query.Folder, n, words int) {
	t.Helper()
	for i := range n {
		key := checkpoint.NewKey("claude-code", "", fmt.Sprintf("%08d-aaaa-4aaa-8aaa-aaaaaaaaaaaa", i), "")
		s := checkpoint.NewState(key)
		at := time.Now().UTC().Add(-time.Hour).Add(time.Duration(i) * time.Second)
		for j := range words {
			s.Apply(
				checkpoint.Event{
					Key:       key,
					Kind:      checkpoint.EventPrompt,
					Text:      fmt.Sprintf("wish %d of session %d", j, i),
					At:        at,
					Workspace: fmt.Sprintf("/w/%d", i%4),
				},
			)
			s.Apply(
				checkpoint.Event{
					Key:  key,
					Kind: checkpoint.EventStop,
					Text: fmt.Sprintf("answer %d of session %d", j, i),
					At:   at,
				},
			)
		}

		if i >= n-4 {
			s.Apply(checkpoint.Event{Key: key, Kind: checkpoint.EventEnd, Reason: "exit", At: at})
		}
		if err := f.Dir.SaveState(s); err != nil {
			t.Fatal(err)
		}

		name := filepath.Join(f.Dir.Session(key), "state.json")
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// Where only a folder says which session is meant, the index gives the same answer as reading all, and one state is
// read.
func TestRecoverWithoutAnID(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	read := query.Open(t.TempDir(), all.All(agent.Host{}))
	many(t, read, 40, 2)
	opened := 0
	indexed := read
	indexed.Dir.FS = opening{read.Dir.FS, &opened}
	indexed.All = index.Of(indexed.Dir).States
	for _, workspace := range []string{"/w/0", "/w/3", "/w/1/below/it", "/w", "/elsewhere", ""} {
		q := query.Question{
			Name:       state.Name{Workspace: workspace},
			NoWorkTree: true,
			Options:    recovery.Options{Start: recovery.StartManual, Marker: "m"},
		}

		want, werr := read.Recover(t.Context(), q)
		opened = 0
		got, err := indexed.Recover(t.Context(), q)
		if got.Session != want.Session || got.Text != want.Text || fmt.Sprint(err) != fmt.Sprint(werr) {
			t.Errorf(
				"%q: with an index %s %q %v, without %s %q %v", workspace, got.Session, got.Text, err,
				want.Session, want.Text, werr,
			)
		}

		if opened > 1 && workspace != "/w/0" { // the first question makes the index
			t.Errorf("%q: %d state files were opened, want one", workspace, opened)
		}
	}
}

// BenchmarkRecoverWithoutAnID has 2,000 sessions of 20 prompts and answers.
func BenchmarkRecoverWithoutAnID(b *testing.B) {
	b.Setenv("HOME", b.TempDir())
	f := query.Open(b.TempDir(), all.All(agent.Host{}))
	many(b, f, 2000, 20)
	q := query.Question{
		Name:       state.Name{Workspace: "/w/1"},
		NoWorkTree: true,
		Options:    recovery.Options{Start: recovery.StartManual},
	}

	for name, all := range map[string]bool{"all": false, "index": true} {
		if f.All = nil; all {
			f.All = index.Of(f.Dir).States
			_, _ = f.All(b.Context()) // made once
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := f.Recover(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
