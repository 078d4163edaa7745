package claude

import (
	"belay/checkpoint"
	"belay/internal/lazyre"
)

// A background task (a command, a helper) ends by a prompt that the program makes itself (seen in 2.1.328):
//
//	<task-notification> ... <tool-use-id>toolu_..</tool-use-id> ... <status>completed</status> ...
//
// It is the one sign of the end of a call whose own result said that it goes on in the background.
var noticeFields = lazyre.New(`<(tool-use-id|status)>\s*([^<\s]{1,200})\s*</`)

// taskEnd gives the call that a notice ends and how it ended; an empty call when the notice names none.
func taskEnd(notice string) (call string, failed bool) {
	status := ""
	for _, m := range noticeFields().FindAllStringSubmatch(notice, 8) {
		if m[1] == "status" {
			status = m[2]
		} else {
			call = m[2]
		}
	}

	switch status {
	case "completed", "success":
		return call, false
	case "failed", "killed", "stopped", "error", "timeout", "timed_out":
		return call, true
	}

	return "", false // still running, or a word that this version does not know
}

// taskEndEvent is the end of the call that a notice names, as an event; ok is false when it names none.
func taskEndEvent(notice checkpoint.Event) (e checkpoint.Event, ok bool) {
	call, failed := taskEnd(notice.Text)
	e = notice
	e.Kind, e.Call, e.Failed, e.Text, e.Turn, e.Aside = checkpoint.EventToolEnd, call, failed, "", "", false
	return e, call != ""
}
