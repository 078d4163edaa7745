package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// S02: the start of a fork carries its parent's id and path. What the records say is what counts: after the fork's
// first record there are two sessions, and the parent's checkpoint is what it was.
func TestS02ForkIsASessionOfItsOwn(t *testing.T) {
	const parent, fork = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	var row struct {
		Event  payload         `json:"event"`
		Record json.RawMessage `json:"first_record"`
	}

	data, err := os.ReadFile("testdata/S02-fork-event.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &row); err != nil {
		t.Fatal(err)
	}

	var record bytes.Buffer
	if err := json.Compact(&record, row.Record); err != nil {
		t.Fatal(err)
	}

	for name, id := range map[string]string{
		"the next hook names the fork": fork, "the next hook still names the parent": parent,
	} {
		t.Run(name, func(t *testing.T) {
			old := transcriptPath(t, parent)
			now := filepath.Join(filepath.Dir(old), fork+".jsonl")
			r := start(t, tempDir(t))
			r.claude(
				old, startOf(parent, "startup", "/proj/demo"),
				promptOf(parent, "the parent's wish", "/proj/demo"),
				stopOf(parent, "the parent's answer", "/proj/demo"),
			)

			r.do(wire.Request{Op: "checkpoint", Agent: "claude-code", Session: parent}, nil)
			until(t, "the parent's FULL", func() bool { return len(r.checkpoints("claude-code", parent)) > 0 })
			list := r.checkpoints("claude-code", parent)
			before := fileOf(t, r, parent, list[len(list)-1].Number)
			r.claude(old, row.Event)
			appendLines(t, now, record.String())
			r.claude(now, promptOf(id, "hello from the fork", "/proj/demo"))
			until(t, "the fork has its record", func() bool { return r.holds(fork, "hello from the fork") })
			if got := r.recover("claude-code", fork); said(got, "the parent's wish") {
				t.Errorf("the fork holds the parent's words:\n%s", got.Text)
			}

			res := r.recover("claude-code", parent)
			if !said(res, "the parent's wish") || !said(res, "the parent's answer") {
				t.Errorf("the parent lost its words:\n%s", res.Text)
			}
			if got := fileOf(t, r, parent, list[len(list)-1].Number); !bytes.Equal(got, before) {
				t.Error("the parent's checkpoint was written anew")
			}
		})
	}
}

// holds says whether a session is there and holds a message.
func (r *running) holds(id, words string) bool {
	for _, s := range r.l.sessions.Active() {
		if s.Key.Session == id && s.Key.Child == "" {
			found, _ := session.Ask(r.t.Context(), s, func(st *checkpoint.State) bool {
				for _, m := range st.Messages {
					if m.Text == words {
						return true
					}
				}
				return false
			})
			return found
		}
	}
	return false
}

// M06: events that piled up while no daemon ran. BELAY_EVENTS=10000 is the row's own number.
func TestM06ManyEventsAtAStart(t *testing.T) {
	const sessions, batch = 20, 200
	events := 2_000
	if n, err := strconv.Atoi(os.Getenv("BELAY_EVENTS")); err == nil {
		events = n - n%batch
	}

	dir := tempDir(t)

	// a write looks at what lies there: batches are quicker
	at, part := filepath.Join(dir, "spool"), filepath.Join(dir, "part")
	for i := range events {
		if i%batch == 0 {
			if err := errors.Join(os.MkdirAll(at, 0o700), os.MkdirAll(part, 0o700)); err != nil {
				t.Fatal(err)
			}
		}

		req := eventRequest(
			fmt.Sprint("s", i%sessions),
			wire.Event{
				Kind: []string{"prompt", "stop", "compacting", "mark"}[i/sessions%4],
				Text: fmt.Sprint("word ", i),
			},
		)

		req.ID, req.Spooled = fmt.Sprint("e", i), time.Now().UnixMilli()
		if _, err := spool.Write(
			unsynced{vfs.OS{}}, part, spool.DefaultLimits(), mustJSON(t, req), nil, time.Now(),
		); err != nil {
			t.Fatal(err)
		}

		if i%batch == batch-1 {
			names, err := os.ReadDir(part)
			if err != nil {
				t.Fatal(err)
			}

			for _, n := range names {
				if err := os.Rename(filepath.Join(part, n.Name()), filepath.Join(at, n.Name())); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	r := start(t, dir)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("ready after %v, want 2s (10s at most)", took)
	}

	until(t, "all events are taken", func() bool { return r.count("events") == int64(events) })
	until(t, "each session has its FULL", func() bool { return r.count("checkpoints") >= sessions })
	if got := r.count("checkpoints"); got > sessions {
		t.Errorf("%d checkpoints of %d sessions, want one each", got, sessions)
	}
}

// unsynced is a file system whose syncs do nothing: they are not what is measured.
type unsynced struct{ vfs.FS }

func (u unsynced) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }
