package opencode

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/sqlite"
)

// TestRows: what each kind of record means, by the log of events and by the tables alone.
func TestRows(t *testing.T) {
	secret := "sk-ant-" + strings.Repeat("q7Rt2LxZ", 12)
	prompt := func(w *writer) {
		w.message(ses, "msg_1", "user", "")
		w.text(ses, "msg_1", "prt_1", "do it")
		w.message(ses, "msg_2", "assistant", `,"modelID":"m","mode":"build"`)
	}

	const head = "meta\nuser do it\nmeta\n"
	for _, c := range []struct {
		name  string
		write func(w *writer)
		want  string
	}{
		{"a running call is open", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "bash", "running", `,"input":{"command":"sleep 9"}`)
		},
			head + `call bash in={"command":"sleep 9"}`},
		{"a call whose arguments were still streaming", func(w *writer) { prompt(w); w.tool(ses, "msg_2", "prt_2", "bash", "pending", `,"input":{}`) }, head + `call bash`},
		{"opencode's own word for a lost call is made up", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "bash", "error", `,"input":{},"error":"[Tool execution was interrupted]"`)
		}, head + "call bash\nresult bash out=[Tool execution was interrupted] !failed !madeup"},
		{"a call that the person stopped has failed", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "bash", "error", `,"input":{},"error":"Tool execution aborted"`)
		}, head + "call bash\nresult bash out=Tool execution aborted !failed"},
		{"a command with an exit code has failed", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "bash", "completed", `,"input":{},"output":"no","metadata":{"exit":1}`)
		}, head + "call bash\nresult bash out=no !failed"},
		{"a helper in the background", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "task", "completed", `,"input":{},"output":"started","metadata":{"background":true}`)
		}, head + "call task\nresult task out=started !background"},
		{"an interrupted turn", func(w *writer) {
			prompt(w)
			w.message(ses, "msg_2", "assistant", `,"modelID":"m","mode":"build","error":{"name":"MessageAbortedError","data":{"message":"x"}},"time":{"created":1796062787000,"completed":1796062788000}`)
		}, head + "interrupt"},
		{"a turn that failed", func(w *writer) {
			prompt(w)
			w.message(ses, "msg_2", "assistant", `,"modelID":"m","mode":"build","error":{"name":"APIError","data":{"message":"Bad Request"}},"time":{"created":1796062787000,"completed":1796062788000}`)
		}, head + "assistant APIError: Bad Request !failed !aside\nturn-end !failed"},
		{"more calls follow", func(w *writer) { prompt(w); w.done(ses, "msg_2", "msg_1", "tool-calls") }, strings.TrimSpace(head)},
		{"the program's own words in a prompt", func(w *writer) {
			w.message(ses, "msg_1", "user", "")
			w.text(ses, "msg_1", "prt_1", "read it")
			w.part(ses, "msg_1", "prt_2", `{"type":"text","synthetic":true,"text":"Called the Read tool"}`)
			w.part(ses, "msg_1", "prt_3", `{"type":"file","filename":"a.png","mime":"image/png"}`)
		}, "user read it\n[file a.png]"},
		{"a brief in a prompt", func(w *writer) {
			w.message(ses, "msg_1", "user", "")
			w.text(ses, "msg_1", "prt_1", "go on")
			w.part(ses, "msg_1", "prt_2", `{"type":"text","synthetic":true,"text":`+quote(checkpoint.Frame("mark", "what was"))+`}`)
		}, "own\nuser go on"},
		{"a compaction", func(w *writer) {
			prompt(w)
			w.message(ses, "msg_3", "user", "")
			w.part(ses, "msg_3", "prt_3", `{"type":"compaction","auto":true}`)
			w.message(ses, "msg_4", "assistant", `,"modelID":"m","mode":"compaction","summary":true`)
			w.text(ses, "msg_4", "prt_4", "all so far")
		}, head + "compaction all so far"},
		{"a secret", func(w *writer) {
			prompt(w)
			w.tool(ses, "msg_2", "prt_2", "bash", "running", `,"input":{"command":"curl -H 'Authorization: Bearer `+secret+`'"}`)
		}, ""},
		{"members of another type", func(w *writer) { prompt(w); w.part(ses, "msg_2", "prt_2", `{"type":"tool","tool":7,"state":"none"}`) }, head + "call"},
	} {
		for _, log := range []bool{true, false} {
			w := newWriter(t, log)
			w.session(ses, "", folder)
			c.write(w)
			got := show(readFrom(t, w.source(), "", checkpoint.ReadOptions{Whole: true}).Entries)
			if c.want == "" {
				if strings.Contains(got, secret[10:]) || !strings.Contains(got, "curl") {
					t.Errorf("%s, events %v: got\n%s", c.name, log, got)
				}
				continue
			}

			// models are told at other places
			lines := func(s string) string { return strings.ReplaceAll("\n"+s+"\n", "\nmeta\n", "\n") }
			if want := c.want; !strings.Contains(lines(got), strings.TrimSpace(lines(lines(want)))) {
				t.Errorf("%s, events %v: got\n%s\nwant\n%s", c.name, log, got, want)
			}
		}
	}
}

// TestRemovedMessages: what an undo took away is taken back with everything in it.
func TestRemovedMessages(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.turn(ses, 1)
	w.turn(ses, 2)
	b := readFrom(t, w.source(), "", checkpoint.ReadOptions{})
	w.remove(ses, "msg_0002a")
	w.remove(ses, "msg_0002c")
	b = readFrom(t, w.source(), b.Cursor, checkpoint.ReadOptions{})
	if got, want := show(
		b.Entries,
	), "retract msg_0002a\nretract prt_0002a\nretract msg_0002c\nretract prt_0002c"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	s := show(readFrom(t, w.source(), "", checkpoint.ReadOptions{Whole: true}).Entries)
	if strings.Contains(s, "user prompt 2") {
		t.Errorf("read later: got\n%s\nwant nothing of the removed prompt", s)
	}
}

// TestFirstSight: a session that was never read is known by its first prompt and its newest part.
func TestFirstSight(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	for i := range 60 {
		w.turn(ses, i)
	}

	var b checkpoint.Batch
	var got string
	for range 20 { // the database is held for 40 ms at most: a machine that is busy then gives less, and is asked again
		b = readFrom(t, w.source(), "", checkpoint.ReadOptions{})
		if got = show(b.Entries); strings.Contains(got, "user prompt 40\n") {
			break
		}
	}

	for text, want := range map[string]bool{
		"user prompt 0\n": true, "user prompt 39\n": false, "user prompt 40\n": true, "answer 39": false,
		"user prompt 59\n": true, "answer 59": true,
	} {
		if strings.Contains(got+"\n", text) != want {
			t.Errorf("%q is there: %v, want %v", text, !want, want)
		}
	}

	if !b.First || b.Skipped == 0 {
		t.Errorf("got first %v, skipped %d bytes, want true and some", b.First, b.Skipped)
	}

	all := readFrom(t, w.source(), "", checkpoint.ReadOptions{Whole: true})
	if n := strings.Count(show(all.Entries), "user prompt"); n != 60 || all.Skipped != 0 {
		t.Errorf("whole: got %d prompts, skipped %d, want 60 and 0", n, all.Skipped)
	}
	if all.Cursor != b.Cursor {
		t.Errorf("the two end at %s and %s, want one place", all.Cursor, b.Cursor)
	}
}

// TestPast: the database was put back to an earlier state, or the session is gone.
func TestPast(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.turn(ses, 1)
	b := readFrom(t, w.source(), "", checkpoint.ReadOptions{})
	w.exec(`delete from event where seq > 3`)
	b = readFrom(t, w.source(), b.Cursor, checkpoint.ReadOptions{})
	if len(b.Entries) == 0 || b.Entries[0].Op != checkpoint.Reset ||
		!strings.Contains(show(b.Entries), "user prompt 1") {
		t.Errorf("got\n%s\nwant a reset and what is there", show(b.Entries))
	}

	for _, src := range []agent.Source{
		{Path: w.path, Session: "ses_none"},
		{Path: filepath.Join(t.TempDir(), "opencode.db"), Session: ses},
	} {
		r := openTranscript(src)
		got, err := r.Read(context.Background(), b.Cursor, checkpoint.ReadOptions{})
		if !errors.Is(err, fs.ErrNotExist) || got.Cursor != b.Cursor {
			t.Errorf("%+v: got %v, cursor %q, want not there and the old cursor", src, err, got.Cursor)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBadRows: a row that is no record costs that row.
func TestBadRows(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.event(ses, "message.updated", `{"info":`)
	w.event(ses, "message.part.updated", `{"part":{}}`)
	w.event(ses, "something.new", `{"sessionID":1}`)
	w.turn(ses, 1)
	b := readFrom(t, w.source(), "", checkpoint.ReadOptions{})
	if b.Losses.BadLines != 2 || !strings.Contains(show(b.Entries), "answer 1") {
		t.Errorf("got %d bad rows and\n%s\nwant 2 and the turn", b.Losses.BadLines, show(b.Entries))
	}

	path := filepath.Join(t.TempDir(), "opencode.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}

	r := openTranscript(agent.Source{Path: path, Session: ses})
	defer r.Close()
	if _, err := r.Read(context.Background(), "", checkpoint.ReadOptions{}); err == nil {
		t.Error("a file that is no database: no error")
	}
}

// TestChildAndNewest: a sub-agent's session is read by its own id, and a database alone means its newest session.
func TestChildAndNewest(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.turn(ses, 1)
	w.session("ses_child", ses, folder)
	w.turn("ses_child", 2)
	for src, want := range map[agent.Source]string{
		{Path: w.path, Session: ses, Child: "ses_child"}: "answer 2",
		{Path: w.path, Session: "opencode"}:              "answer 1",
	} {
		if got := show(readFrom(t, src, "", checkpoint.ReadOptions{}).Entries); !strings.Contains(got, want) {
			t.Errorf("%+v: got\n%s\nwant %q", src, got, want)
		}
	}
}

// TestN05ProjectChanged: a session is found by its id and by its folder whatever project it is filed under
// (opencode#8661).
func TestN05ProjectChanged(t *testing.T) {
	w := newWriter(t, true)
	w.session(ses, "", folder)
	w.turn(ses, 1)
	w.exec(`update session set project_id = 'another'`)
	a := &Agent{data: filepath.Dir(w.path)}
	for _, q := range []agent.Query{{Session: ses}, {Workspace: folder}, {}} {
		found, err := a.Locate(context.Background(), q)
		if err != nil || len(found) != 1 || found[0].Session != ses || found[0].Workspace != folder {
			t.Errorf("%+v: got %v, %v, want the session", q, found, err)
		}
	}

	if found, err := a.Locate(
		context.Background(), agent.Query{Workspace: "/elsewhere"},
	); err != nil ||
		len(found) != 0 {
		t.Errorf("another folder: got %v, %v, want none", found, err)
	}
}

func TestRecognise(t *testing.T) {
	head, err := os.ReadFile(captured)
	if err != nil {
		t.Fatal(err)
	}

	a := New(agent.Host{})
	if a.Recognise(head[:64<<10]) != agent.Mine {
		t.Error("the captured database is not recognised")
	}
	if a.Recognise([]byte(sqlite.Header)) != agent.NotMine ||
		a.Recognise([]byte(`{"type":"session","project_id":1,"slug":2}`)) != agent.NotMine {
		t.Error("another program's file is recognised")
	}
}

// FuzzEvent: no row stops the reader, and what comes out is fit to keep.
func FuzzEvent(f *testing.F) {
	f.Add(
		"message.updated.1",
		`{"info":{"id":"m","role":"assistant","finish":"stop","time":{"created":1,"completed":2}}}`,
	)

	f.Add(
		"message.part.updated.1",
		`{"part":{"id":"p","messageID":"m","type":"tool","tool":"bash","state":{"status":"completed","input":{"a":1},"output":"x"}}}`,
	)

	f.Add("message.part.updated.1", `{"part":{"id":"p","messageID":"m","type":"text","text":"<belay-record k=\"a\">"}}`)
	f.Add("session.created.1", `{"info":{"id":"s","directory":"/x"}}`)
	f.Add("message.removed.1", `{"messageID":"m"}`)
	f.Fuzz(func(t *testing.T, typ, data string) {
		for _, role := range []string{"user", "assistant"} {
			m := mapper{store: fakeStore{role}}
			entries, _ := m.event(t.Context(), typ, []byte(data))
			for _, e := range entries {
				if len(e.Text) > checkpoint.CutText || len(e.Output) > checkpoint.CutTool ||
					len(e.Input) > checkpoint.CutTool ||
					len(e.ID) > maxIdent+8 {
					t.Errorf("%+v is over its bound", e)
				}
				if !e.At.IsZero() && e.At.Year() < 1970 {
					t.Errorf("stamp %v", e.At)
				}
			}
		}
	})
}

type fakeStore struct{ role string }

func (s fakeStore) message(_ context.Context, id string) (messageInfo, bool) {
	return messageInfo{ID: id, Role: s.role}, true
}
func (s fakeStore) parts(context.Context, string) []part     { return nil }
func (s fakeStore) removed(context.Context, string) []string { return []string{"p"} }
