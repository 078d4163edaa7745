package query

import (
	"belay/internal/agent"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/all"
	"belay/internal/state"
	"belay/recovery"
)

const (
	one   = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
	other = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
)

// folder has a session with three checkpoints, one round before each, and one round after the last.
func folder(t *testing.T) Folder {
	t.Helper()
	f := Open(t.TempDir(), all.All(agent.Host{}))
	store, err := f.Dir.OpenStore()
	if err != nil {
		t.Fatal(err)
	}

	key := checkpoint.NewKey("claude-code", "", one, "")
	s := checkpoint.NewState(key)
	at := time.Now().UTC().Add(-4 * time.Hour)
	for i := 1; i <= 4; i++ {
		s.Apply(
			checkpoint.Event{
				Key:       key,
				Kind:      checkpoint.EventPrompt,
				Text:      fmt.Sprintf("wish %d", i),
				At:        at,
				Workspace: "/w",
			},
		)

		s.Apply(checkpoint.Event{Key: key, Kind: checkpoint.EventStop, Text: fmt.Sprintf("answer %d", i), At: at})
		if i < 4 {
			c := checkpoint.New(
				s.Clone(), uint64(i),
				checkpoint.Decision{Level: checkpoint.Full, Cause: checkpoint.CauseManual}, at,
			)

			data, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Put(t.Context(), key, c.Meta(), data); err != nil {
				t.Fatal(err)
			}

			taken := c.Taken()
			s.Apply(checkpoint.Event{Key: key, Kind: checkpoint.EventCheckpoint, Taken: &taken, At: at})
			name := filepath.Join(f.Dir.Session(key), "checkpoints", fmt.Sprintf("%06d-full.md", i))
			if err := os.Chtimes(name, at, at); err != nil {
				t.Fatal(err)
			}
		}

		at = at.Add(time.Hour)
	}

	if err := f.Dir.SaveState(s); err != nil {
		t.Fatal(err)
	}

	return f
}

func TestRecoverByID(t *testing.T) {
	f := folder(t)
	res, err := f.Recover(
		t.Context(),
		Question{Name: state.Name{Session: one}, Options: recovery.Options{Start: recovery.StartManual}},
	)

	if err != nil || res.Session != one || res.Checkpoint == nil || res.Checkpoint.Number != 3 ||
		!strings.Contains(res.Text, "answer 4") {
		t.Errorf("recover = %+v, %v", res.Checkpoint, err)
	}
}

func TestN02AnUnknownIDIsAnErrorAndNoText(t *testing.T) {
	f := folder(t)
	res, err := f.Recover(t.Context(), Question{Name: state.Name{Session: other, Workspace: "/w"}})
	if !errors.Is(err, ErrNotFound) || res.Text != "" {
		t.Errorf("recover of an unknown id = %q, %v; want ErrNotFound", res.Text, err)
	}
}

// Where the state file is lost the checkpoints alone are enough.
func TestRecoverFromCheckpointsAlone(t *testing.T) {
	f := folder(t)
	if err := os.Remove(
		filepath.Join(f.Dir.Session(checkpoint.NewKey("claude-code", "", one, "")), "state.json"),
	); err != nil {
		t.Fatal(err)
	}

	res, err := f.Recover(
		t.Context(),
		Question{Name: state.Name{Session: one}, Options: recovery.Options{Start: recovery.StartManual}},
	)

	if err != nil || !strings.Contains(res.Text, "answer 3") {
		t.Errorf("recover = %q, %v", res.Text, err)
	}
}

func TestSeveralSessionsAreNotGuessed(t *testing.T) {
	f := folder(t)
	for _, agent := range []string{"claude-code", "pi"} {
		if err := f.Dir.SaveState(checkpoint.NewState(checkpoint.NewKey(agent, "", other, ""))); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := f.Recover(t.Context(), Question{Name: state.Name{Session: other}}); !errors.Is(err, ErrSeveral) {
		t.Errorf("recover = %v, want ErrSeveral", err)
	}
}

func TestSince(t *testing.T) {
	f := folder(t)
	for _, c := range []struct {
		since string
		has   []string
		not   []string
		err   error
	}{
		{"2", []string{"answer 3", "answer 4"}, []string{"answer 2"}, nil},
		{"150m", []string{"answer 3", "answer 4"}, []string{"answer 2"}, nil},
		{"2000-01-01", []string{"answer 1", "answer 4"}, nil, nil},
		{"", []string{"answer 4"}, []string{"answer 3"}, nil},
		{"9", nil, nil, checkpoint.ErrNotFound},
		{"yesterday", nil, nil, ErrBadSince},
	} {
		res, err := f.Recover(t.Context(), Question{
			Name:  state.Name{Session: one},
			Since: c.since,
			Options: recovery.Options{
				Start:  recovery.StartManual,
				Format: recovery.Delta,
				Roles:  []checkpoint.Role{checkpoint.RoleAssistant},
			},
		})

		if !errors.Is(err, c.err) {
			t.Errorf("since %q: %v, want %v", c.since, err, c.err)
		}

		for _, words := range c.has {
			if !strings.Contains(res.Text, words) {
				t.Errorf("since %q: no %q in %q", c.since, words, res.Text)
			}
		}

		for _, words := range c.not {
			if strings.Contains(res.Text, words) {
				t.Errorf("since %q: %q in %q", c.since, words, res.Text)
			}
		}
	}
}

func TestShowPassesADamagedCheckpoint(t *testing.T) {
	f := folder(t)
	name := filepath.Join(f.Dir.Session(checkpoint.NewKey("claude-code", "", one, "")), "checkpoints", "000003-full.md")
	if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}

	shown, err := f.Show(t.Context(), state.Name{Session: one}, 0)
	if err != nil || shown.Number != 2 || len(shown.Damaged) != 1 || len(shown.Checkpoints) != 3 {
		t.Errorf("shown %d, damaged %v, %v; want 2 and one", shown.Number, shown.Damaged, err)
	}
	if _, err := f.Show(t.Context(), state.Name{Session: one}, 99); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("show 99 = %v, want ErrNotFound", err)
	}
}

func TestATranscriptThatNobodyHeardOf(t *testing.T) {
	f := folder(t)
	path := filepath.Join(t.TempDir(), other+".jsonl")
	line := `{"type":"user","uuid":"u1","sessionId":"` + other + `","cwd":"/w","message":{"role":"user","content":"only in the file"}}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}

	res, err := f.Recover(
		t.Context(), Question{Transcript: path, Options: recovery.Options{Start: recovery.StartManual}},
	)

	if err != nil || res.Session != other || !strings.Contains(res.Text, "only in the file") {
		t.Errorf("recover = %s %q, %v", res.Session, res.Text, err)
	}
	if err := os.WriteFile(path, []byte("just notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Recover(t.Context(), Question{Transcript: path}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file of nobody's: %v, want ErrNotFound", err)
	}
}

func TestStatusTellsWhatIsAtRisk(t *testing.T) {
	f := folder(t)
	list, err := f.Sessions(t.Context(), state.Name{}, 0)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d sessions, %v", len(list), err)
	}

	st := list[0]
	if st.MessageCount != 4 || st.AtRisk.Rounds != 1 || st.AtRisk.Seconds < 3600 || st.Checkpoint != 3 ||
		st.State != "idle" {
		t.Errorf("status %+v", st)
	}
}

// S07: a transcript that was never written is silent since the session began, once hooks told of more for over a
// minute.
func TestS07StatusSaysThatATranscriptIsSilent(t *testing.T) {
	began := time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name       string
		file, hook time.Duration // after the beginning; no file: never
		want       time.Time
	}{
		{"never written", 0, 10 * time.Minute, began},
		{"never written, just begun", 0, 30 * time.Second, time.Time{}},
		{"silent", 5 * time.Minute, 10 * time.Minute, began.Add(5 * time.Minute)},
		{"well", 10 * time.Minute, 10 * time.Minute, time.Time{}},
	} {
		s := checkpoint.NewState(checkpoint.NewKey("claude-code", "", "s", "/w"))
		s.Transcript, s.Began, s.LastHook = "/t.jsonl", began, began.Add(c.hook)
		if c.file > 0 {
			s.LastFile = began.Add(c.file)
		}
		if got := StatusOf(s, began.Add(time.Hour)).Transcript.SilentSince; !got.Equal(c.want) {
			t.Errorf("%s: silent since %v, want %v", c.name, got, c.want)
		}
	}
}
