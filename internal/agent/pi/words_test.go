package pi

import (
	"slices"
	"strings"
	"testing"
)

// Each case is what comes after a header; records need no ids here. (One table: long, but flat.)
func TestWhatRecordsMean(t *testing.T) {
	user := func(text string) string {
		return `{"type":"message","message":{"role":"user","content":"` + text + `"}}`
	}
	answer := func(text string) string {
		return `{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"` + text + `"}],"stopReason":"stop"}}`
	}
	stopped := func(stop, text string) string {
		return `{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"` + text + `"}],"stopReason":"` + stop + `","errorMessage":"why"}}`
	}
	result := func(rest string) string {
		return `{"type":"message","message":{"role":"toolResult","toolCallId":"c","toolName":"exec",` + rest + `}}`
	}
	const heartbeat = "Read HEARTBEAT.md if it exists (workspace context). Follow it strictly."
	for _, c := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"heartbeat by its prompt", []string{user(heartbeat), answer("Looking."), answer("HEARTBEAT_OK"), user("hi"), answer("Hello.")},
			[]string{`user,aside "` + heartbeat + `"`, `assistant,aside "Looking."`, "turn-end,aside", `assistant,aside "HEARTBEAT_OK"`, "turn-end,aside", `user "hi"`, `assistant "Hello."`, "turn-end"}},
		{"heartbeat by its answer", []string{user("anything to do?"), answer("HEARTBEAT_OK")},
			[]string{
				`user "anything to do?"`, `user,aside "anything to do?"`, `assistant,aside "HEARTBEAT_OK"`,
				"turn-end,aside",
			}},
		{"no reply to a heartbeat of another wording", []string{user("Heartbeat check, say NO_REPLY if idle"), answer("NO_REPLY")},
			[]string{
				`user "Heartbeat check, say NO_REPLY if idle"`, `user,aside "Heartbeat check, say NO_REPLY if idle"`,
				`assistant,aside "NO_REPLY"`, "turn-end,aside",
			}},
		{"no reply in a group", []string{user("we use Postgres"), answer("NO_REPLY")},
			[]string{`user "we use Postgres"`, `assistant,aside "NO_REPLY"`, "turn-end"}},
		{"restart", []string{user("do it"), user("[System] Your previous turn was interrupted by a gateway restart"), answer("Done.")},
			[]string{
				`user "do it"`, `user,aside "[System] Your previous turn was interrupted by a gateway restart"`,
				`assistant "Done."`, "turn-end",
			}},
		{"cron", []string{user("[cron:1 nightly] sum up"), answer("Summed.")},
			[]string{`user,aside "[cron:1 nightly] sum up"`, `assistant,aside "Summed."`, "turn-end,aside"}},
		{"failover", []string{user("go"), stopped("error", ""), user("go"), answer("Done."), user("go")},
			[]string{`user "go"`, `assistant,aside,failed "why"`, `assistant "Done."`, "turn-end", `user "go"`}},
		{"aborted", []string{user("go"), stopped("aborted", "half"), user("on")},
			[]string{`user "go"`, `assistant,failed "half"`, "interrupt", `user "on"`}},
		{"mirror", []string{
			`{"type":"message","message":{"role":"assistant","provider":"openclaw","model":"delivery-mirror","content":[{"type":"text","text":"copy"}],"stopReason":"stop"}}`,
		},
			[]string{`assistant,aside "copy"`}},
		{"calls though the stop reason says stop", []string{
			`{"type":"message","message":{"role":"assistant","content":[{"type":"toolCall","id":"c","name":"exec","arguments":{}}],"stopReason":"stop"}}`,
		},
			[]string{`call "c" "exec" "{}"`}},
		{"failed though isError is false", []string{result(`"content":"no","isError":false,"details":{"status":"error"}`)},
			[]string{`result,failed "c" "exec" "no"`}},
		{"background", []string{result(`"content":[{"type":"text","text":"Warning.\n\nCommand still running (session x, pid 1)."}],"details":{"status":"running"}`)},
			[]string{`result,background "c" "exec" "Warning.\n\nCommand still running (session x, pid 1)."`}},
		{"made up by pi", []string{result(`"content":"No result provided","isError":true`)},
			[]string{`result,failed,madeup "c" "exec" "No result provided"`}},
		{"made up, as the details say", []string{result(`"content":"lost","isError":true,"details":{"openclawSyntheticMissingToolResult":true}`)},
			[]string{`result,failed,madeup "c" "exec" "lost"`}},
		{"shell command", []string{
			`{"type":"message","id":"b","message":{"role":"bashExecution","command":"false","output":"x","exitCode":1}}`,
		},
			[]string{`call "b" "bash" "{\"command\":\"false\"}"`, `result,failed "b" "bash" "x"`}},
		{"own block", []string{`{"type":"custom_message","customType":"belay","content":"<belay-record k=\"abc\">\nold words\n</belay-record k=\"abc\">"}`, user(`<belay-record k=\"def\">\nold\n</belay-record k=\"def\">\nnew words`)},
			[]string{"own", "own", `user "new words"`}},
		{"OpenClaw's own words", []string{`{"type":"custom_message","customType":"openclaw.runtime-context","content":"x"}`, user(`hello\n\n<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nx\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>`), user(`Sender (untrusted metadata):\n` + "```" + `json\n{}\n` + "```" + `\n\nreal words`)},
			[]string{`user "hello"`, `user "real words"`}},
		{"wrong types", []string{
			`{"type":"message","id":5,"parentId":{},"timestamp":[],"message":{"role":"user","content":{"a":1},"timestamp":"x"}}`,
			`{"type":"message","message":{"role":"user","content":["plain",7,null,{"type":"text","text":9},{"type":"text","text":"ok"}]}}`,
			`{"type":"message","message":"none"}`, `{"type":"message"}`, `{"type":"compaction","summary":7}`,
			`{"type":"model_change","modelId":7}`,
			`{"type":"message","message":{"role":"assistant","content":[{"type":"toolCall","id":1,"name":2,"arguments":"text"}],"stopReason":{},"usage":0}}`},
			[]string{"user \"plain\\n\\nok\"", "compaction", "meta", `call "\"text\""`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := whole(t, write(t, append([]string{headLine}, c.lines...)...), false)
			if got := show(b.Entries[1:]); !slices.Equal(got, c.want) || b.Losses.BadLines != 0 {
				t.Errorf(
					"got %d bad lines and\n%s\nwant\n%s", b.Losses.BadLines, strings.Join(got, "\n"),
					strings.Join(c.want, "\n"),
				)
			}
		})
	}
}

// The answer that shows a prompt to be a heartbeat may come in another run than the prompt.
func TestHeartbeatAcrossRuns(t *testing.T) {
	path := write(t, headLine, said("a", "", "user", "anything to do?"))
	first := whole(t, path, false)
	add(t, path, said("b", "a", "assistant", "HEARTBEAT_OK")+"\n")
	b := once(t, path, first.Cursor, readOptions)
	if len(b.Entries) != 3 || !b.Entries[0].Aside || b.Entries[0].ID != first.Entries[1].ID {
		t.Errorf("got %v, want the prompt again as an aside", show(b.Entries))
	}
}
