package codex

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

// TestWhatRecordsMean: one line each, and what it tells.
func TestWhatRecordsMean(t *testing.T) {
	call := func(name, args string) string {
		return rec(
			"response_item",
			fmt.Sprintf(`{"type":"function_call","call_id":"c","name":%q,"arguments":%q}`, name, args),
		)
	}

	result := func(output string) string {
		return rec("response_item", `{"type":"function_call_output","call_id":"c","output":`+output+`}`)
	}
	for _, tt := range []struct{ name, line, want string }{
		{"a person's words", says("m", "user", "user.text", "do it"), "user do it"},
		{"the program's words in the user's role", says("m", "user", "environments.environment_context", "<environment_context>"), ""},
		{"a notice of a sub-agent", says("m", "user", "multi_agent.subagent_notification", "{}"), ""},
		{"an answer", says("m", "assistant", "unknown", " done \n"), "assistant done"},
		{"the developer's words", says("m", "developer", "permissions.instructions", "be good"), ""},
		{"our own brief", says("m", "developer", "hooks.additional_context", checkpoint.Frame("mark1", "old words")), "own mark1"},
		{"our brief in a tool's output", result(`"{\"x\":\"<belay-record k=\\\"mark2\\\">secret</belay-record k=\\\"mark2\\\">\"}"`), "own mark2\nresult c {\"x\":\"\"}"},
		{"words of old versions", event(`{"type":"user_message","message":"list files"}`), "user list files"},
		{"a shell", call("exec_command", `{"cmd":"ls"}`), `call Bash c {"cmd":"ls"}`},
		{"an older shell", call("shell", `{"command":["ls","-l"]}`), `call Bash c {"command":["ls","-l"]}`},
		{"a local shell", rec("response_item", `{"type":"local_shell_call","call_id":"c","action":{"type":"exec","command":["ls"]}}`), `call Bash c {"command":["ls"]}`},
		{"another tool", call("spawn_agent", `{"message":"go"}`), `call spawn_agent c {"message":"go"}`},
		{"a patch", rec("response_item", `{"type":"custom_tool_call","call_id":"c","name":"apply_patch","input":"*** Begin Patch\n*** Update File: a b.go\n+x"}`),
			`call apply_patch c {"command":"*** Begin Patch\n*** Update File: a b.go\n+x","path":"a b.go"}`},
		{"a patch as a function", call("apply_patch", `{"input":"*** Add File: x.go"}`), `call apply_patch c {"command":"*** Add File: x.go","path":"x.go"}`},
		{"a custom tool", rec("response_item", `{"type":"custom_tool_call","call_id":"c","name":"t","input":"text"}`), `call t c {"input":"text"}`},
		{"a call without an id", rec("response_item", `{"type":"function_call","name":"t"}`), ""},
		{"a result", result(`"Chunk ID: 1\nWall time: 0 seconds\nProcess exited with code 0\nOutput:\nhello"`), "result c Chunk ID: 1\nWall time: 0 seconds\nProcess exited with code 0\nOutput:\nhello"},
		{"a failure", result(`"Exit code: 3\nWall time: 1 seconds\nOutput:\n"`), "result c Exit code: 3\nWall time: 1 seconds\nOutput:\n failed"},
		{"output that talks of exit codes", result(`"Process exited with code 0\nOutput:\nProcess exited with code 7\n"`), "result c Process exited with code 0\nOutput:\nProcess exited with code 7\n"},
		{"a command that goes on", result(`"Wall time: 10 seconds\nProcess running with session ID 7\nOutput:\n"`), "result c Wall time: 10 seconds\nProcess running with session ID 7\nOutput:\n background"},
		{"no such tool", result(`"unsupported call: x"`), "result c unsupported call: x failed"},
		{"a command broken off", result(`"Wall time: 1.5 seconds\naborted by user"`), "result c Wall time: 1.5 seconds\naborted by user background"},
		{"a command that talks of it", result(`"Process exited with code 1\nOutput:\nWall time: 1.5 seconds\naborted by user"`),
			"result c Process exited with code 1\nOutput:\nWall time: 1.5 seconds\naborted by user failed"},
		{"another tool broken off", result(`"aborted by user after 1.5s"`), "result c aborted by user after 1.5s made up"},
		{"made up after a crash", result(`"aborted"`), "result c aborted made up"},
		{"items as output", result(`[{"type":"input_text","text":"a"},{"type":"input_image"}]`), "result c a\n[input_image]"},
		{"output of old versions", result(`"{\"output\":\"no\",\"metadata\":{\"exit_code\":1}}"`), "result c no failed"},
		{"the end of a command", event(`{"type":"item_completed","item":{"type":"CommandExecution","id":"c","status":"failed","aggregated_output":"x","exit_code":3}}`), "result c x failed"},
		{"a turn's end", event(`{"type":"task_complete","turn_id":"t","last_agent_message":"x"}`), "turn-end"},
		{"a turn's end in Rust's words", event(`{"type":"turn_complete"}`), "turn-end"},
		{"a failed turn", event(`{"type":"task_complete","error":{"message":"overloaded"}}`), "turn-end failed"},
		{"an interrupt", event(`{"type":"turn_aborted","reason":"interrupted"}`), "interrupt"},
		{"answers shown", event(`{"type":"agent_message","message":"x"}`), ""},
		{"a compaction", rec("compacted", `{"message":"sum","replacement_history":[]}`), "compaction sum"},
		{"a new kind", rec("brand_new", `{"type":"x"}`), ""},
		{"other types", rec("response_item", `{"type":"message","role":"assistant","id":7,"content":{"a":1}}`), ""},
		{"content as a string", rec("response_item", `{"type":"message","role":"assistant","content":"plain"}`), "assistant plain"},
		{"a bare item of 2025", `{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}` + "\n", "user hello"},
		{"bare context of 2025", `{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>x"}]}` + "\n", ""},
	} {
		r, _ := rolloutOf(t, meta(threadOne, "/p")+tt.line)
		b := all(t, r, "", whole)
		if got := brief(b.Entries); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if b.Losses.BadLines > 0 {
			t.Errorf("%s: losses %+v", tt.name, b.Losses)
		}
	}
}

// TestSecretsAreRemoved: nothing leaves the reader that a redacted text may not hold.
func TestSecretsAreRemoved(t *testing.T) {
	const secret = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
	r, _ := rolloutOf(t, meta(threadOne, "/p")+says("a", "user", "user.text", "my token is "+secret)+
		rec(
			"response_item",
			`{"type":"function_call","call_id":"c","name":"exec_command","arguments":"{\"cmd\":\"curl -H 'Authorization: Bearer `+secret+`'\"}"}`,
		)+
		rec("response_item", `{"type":"function_call_output","call_id":"c","output":"`+secret+`"}`))

	if got := marshal(all(t, r, "", whole).Entries); strings.Contains(got, secret) {
		t.Errorf("the secret is in %s", got)
	}
}

// TestTurns: steering words belong to the turn that runs; each turn has its id, its workspace and model where they
// change.
func TestTurns(t *testing.T) {
	r, _ := rolloutOf(t, meta(threadOne, "/p")+
		event(`{"type":"task_started","turn_id":"t1"}`)+
		rec("turn_context", `{"turn_id":"t1","cwd":"/p","model":"m1"}`)+
		event(`{"type":"user_message","message":"one"}`)+
		event(`{"type":"user_message","message":"and also"}`)+
		event(`{"type":"task_complete","turn_id":"t1"}`)+
		rec("turn_context", `{"turn_id":"t2","cwd":"/q","model":"m1"}`)+
		event(`{"type":"user_message","message":"two"}`))

	var got []string
	for _, e := range all(t, r, "", whole).Entries {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s%s", e.Kind, e.Turn, e.Text, e.Workspace, e.Model)))
	}

	want := []string{
		"meta   /p",
		"meta   m1",
		"user t1 one",
		"user t1 and also",
		"turn-end t1",
		"meta   /q",
		"user t2 two",
	}

	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestCompactionTakesItsSummaryBack: the summary is no answer; a real answer before a compaction is.
func TestCompactionTakesItsSummaryBack(t *testing.T) {
	for _, tt := range []struct{ name, between, message, want string }{
		{"summary", rec("token_usage_record", `{}`), "Lead-in.\\nThe sum.", "assistant The sum.\nretract m\ncompaction The sum."},
		{"real answer", "", "Something else", "assistant The sum.\ncompaction Something else"},
		{"answer of a turn that ended", event(`{"type":"task_complete"}`), "The sum.", "assistant The sum.\nturn-end\ncompaction The sum."},
		{"remote compaction", "", "", "assistant The sum.\ncompaction"},
	} {
		r, _ := rolloutOf(
			t,
			meta(
				threadOne, "/p",
			)+says(
				"m", "assistant", "unknown", "The sum.",
			)+tt.between+rec(
				"compacted", `{"message":"`+tt.message+`"}`,
			),
		)
		if got := brief(all(t, r, "", whole).Entries); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestRolledBackTurns: their words are taken back, in one run and in a later one.
func TestRolledBackTurns(t *testing.T) {
	text := meta(threadOne, "/p")
	for i := 1; i <= 4; i++ {
		text += says(
			fmt.Sprintf("u%d", i), "user", "user.text", "ask",
		) + says(
			fmt.Sprintf("a%d", i), "assistant", "unknown", "answer",
		)
	}

	r, path := rolloutOf(t, text+event(`{"type":"thread_rolled_back","num_turns":1}`))
	b := all(t, r, "", whole)
	if got := brief(b.Entries[len(b.Entries)-2:]); got != "retract a4\nretract u4" {
		t.Errorf("one turn: got %q", got)
	}

	write(t, path, read(t, path)+event(`{"type":"thread_rolled_back","num_turns":2}`))
	later := all(t, open(t, path), b.Cursor, whole)
	if got := brief(later.Entries); !strings.HasSuffix(got, "retract a3\nretract u3\nretract a2\nretract u2") {
		t.Errorf("two more: got %q", got)
	}
}

// TestS04FileOfAnotherThread: what another thread's file tells is marked as that thread's. A sub-agent's file belongs
// to the child.
func TestS04FileOfAnotherThread(t *testing.T) {
	path := filepath.Join(t.TempDir(), nameOf(threadTwo))
	child := fmt.Sprintf(
		`{"id":%q,"session_id":%q,"parent_thread_id":%q,"cwd":"/p","source":{"subagent":{}}}`, threadTwo,
		threadOne, threadOne,
	)

	write(t, path, rec("session_meta", child)+says("m", "user", "user.text", "task"))
	for _, tt := range []struct {
		src  agent.Source
		want string
	}{
		{agent.Source{Session: threadOne}, "user task of " + threadTwo},
		{agent.Source{Session: threadOne, Child: threadTwo}, "user task"},
		{agent.Source{Session: threadTwo}, "user task"},
		{agent.Source{}, "user task"},
		// named by its file alone
		{agent.Source{Session: strings.TrimSuffix(filepath.Base(nameOf(threadTwo)), ".jsonl")}, "user task"},
	} {
		tt.src.Path = path
		r := openTranscript(tt.src)
		if got := brief(all(t, r, "", whole).Entries); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.src, got, tt.want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestF08CompressedAfterAWeek: nothing is new, nothing is an error, nothing is changed; when the plain file is back
// only what was added comes.
func TestF08CompressedAfterAWeek(t *testing.T) {
	text := meta(
		threadOne, "/p",
	) + says(
		"u1", "user", "user.text", "ask",
	) + says(
		"a1", "assistant", "unknown", "answer",
	)

	r, path := rolloutOf(t, text)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := all(t, r, "", whole)
	pack(t, path)
	stamp := stamps(t, filepath.Dir(path))
	for name, r := range map[string]checkpoint.Transcript{"same run": r, "later run": open(t, path), "by the compressed name": open(t, path+packed)} {
		b := all(t, r, before.Cursor, whole)
		if len(b.Entries) > 0 || b.Cursor != before.Cursor || b.Losses.BadLines > 0 {
			t.Errorf("%s: got %q, cursor %s, %+v; want nothing new", name, brief(b.Entries), b.Cursor, b.Losses)
		}
		if got := stamps(t, filepath.Dir(path)); got != stamp {
			t.Errorf("%s: files changed by being read", name)
		}
		if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
			t.Errorf("%s: a copy stays behind while it is read: %v %v", name, left, err)
		}
	}

	if err := os.Remove(path + packed); err != nil {
		t.Fatal(err)
	}

	write(t, path, text+says("u2", "user", "user.text", "more"))
	if got := brief(all(t, r, before.Cursor, whole).Entries); got != "user more" {
		t.Errorf("plain again: got %q, want the new words alone", got)
	}
}

// TestArchivedByThePerson: the file moves, plain or compressed; the hooks' path stays good.
func TestArchivedByThePerson(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		r, path := rolloutOf(t, meta(threadOne, "/p")+says("u1", "user", "user.text", "ask"))
		before := all(t, r, "", whole)
		home := filepath.Join(filepath.Dir(path), "..", "..", "..", "..")
		to := filepath.Join(home, "archived_sessions", filepath.Base(path))
		write(t, to, read(t, path)+says("a1", "assistant", "unknown", "late"))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if compressed {
			pack(t, to)
		}
		if got := brief(all(t, r, before.Cursor, whole).Entries); got != "assistant late" {
			t.Errorf("compressed %v: got %q, want the late answer", compressed, got)
		}
	}
}

func TestMissingAndDamagedFiles(t *testing.T) {
	gone := open(t, filepath.Join(t.TempDir(), nameOf(threadOne)))
	if b, err := gone.Read(context.Background(), "x", whole); !errors.Is(err, fs.ErrNotExist) || b.Cursor != "x" {
		t.Errorf("no file: got %v, cursor %q, want %v and the same cursor", err, b.Cursor, fs.ErrNotExist)
	}

	text := meta(threadOne, "/p")
	for i := range 3000 {
		text += says(fmt.Sprintf("m%d", i), "assistant", "unknown", fmt.Sprintf("answer %d %x", i, i*i*7919))
	}

	r, path := rolloutOf(t, text)
	pack(t, path)
	half := read(t, path+packed)
	write(t, path+packed, half[:len(half)/2])
	b := all(t, r, "", whole)
	if b.Losses.BadLines != 1 || !strings.Contains(b.Losses.Bad[0].Why, "archive is damaged") {
		t.Errorf("half an archive: losses %+v, want one that says so", b.Losses)
	}
}

// TestT13OtherVersionsRecords: a missing ordinal, an unknown type and a wrong one reject nothing; a bad line costs
// itself.
func TestT13OtherVersionsRecords(t *testing.T) {
	r, _ := rolloutOf(t, meta(threadOne, "/p")+
		`{"timestamp":"x","ordinal":1,"type":"event_msg","payload":{"type":"user_message","message":"with ordinal"}}`+"\n"+
		`{"timestamp":7,"ordinal":"2","type":"event_msg","payload":{"type":"user_message","message":"odd ordinal"}}`+"\n"+
		event(`{"type":"user_message","message":"no ordinal"}`)+
		"rubbish\n"+
		`{"timestamp":"y","type":"response_item","payl`+strings.TrimSuffix(says("m", "assistant", "unknown", "glued"), "\n")+"\n"+
		`{"timestamp":"y","type":"world_state"}`+strings.TrimSuffix(says("n", "assistant", "unknown", "also glued"), "\n")+"\n")

	b := all(t, r, "", whole)
	if got, want := brief(
		b.Entries,
	), "user with ordinal\nuser odd ordinal\nuser no ordinal\nassistant glued\nassistant also glued"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	if b.Losses.BadLines != 3 || b.Losses.Rescued != 2 {
		t.Errorf("losses %+v, want 3 bad lines and 2 rescued records", b.Losses)
	}
}

// TestRewrittenFile: what was told is not told again, what is new is.
func TestRewrittenFile(t *testing.T) {
	one := says("u1", "user", "user.text", "ask")
	r, path := rolloutOf(t, meta(threadOne, "/p")+one)
	before := all(t, r, "", whole)
	write(t, path, meta(threadOne, "/q")+one+one+says("u2", "user", "user.text", "other"))
	b := all(t, r, before.Cursor, whole)
	if got, want := brief(b.Entries), "reset\nuser other"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	read1, read2 := all(t, open(t, path), "", whole), all(t, open(t, path), "", whole)
	if marshal(read1) != marshal(read2) || read1.Losses.Repeats != 1 {
		t.Errorf("two readers: %s and %s, want the same and one repeat", marshal(read1), marshal(read2))
	}
}

// TestFirstSight: of a large file the first prompt, the workspace and the newest part come, at the same cost for any
// size.
func TestFirstSight(t *testing.T) {
	var b strings.Builder
	b.WriteString(meta(threadOne, "/p") + says("u0", "user", "user.text", "the first prompt"))
	for i := 1; i < 4000; i++ {
		b.WriteString(rec("world_state", `{"x":"`+strings.Repeat("y", 1000)+`"}`))
		b.WriteString(
			says(
				fmt.Sprintf("u%d", i), "user", "user.text", fmt.Sprintf("prompt %d", i),
			) + says(
				fmt.Sprintf("a%d", i), "assistant", "unknown", "answer",
			),
		)
	}

	for _, compressed := range []bool{false, true} {
		r, path := rolloutOf(t, b.String())
		if compressed {
			pack(t, path)
		}

		got := all(t, r, "", checkpoint.ReadOptions{})
		var prompts []string
		workspace := ""
		for _, e := range got.Entries {
			if e.Kind == checkpoint.EntryUser {
				prompts = append(prompts, e.Text)
			}
			workspace += e.Workspace
		}

		if !got.First || got.Skipped == 0 || workspace != "/p" || len(prompts) != 21 ||
			prompts[0] != "the first prompt" ||
			prompts[20] != "prompt 3999" {
			t.Errorf(
				"compressed %v: first %v, skipped %d, workspace %q, prompts %q; want the first and the newest 20",
				compressed, got.First, got.Skipped, workspace, prompts,
			)
		}
	}
}
