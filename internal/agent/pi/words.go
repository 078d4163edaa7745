package pi

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"

	"belay/checkpoint"
	"belay/internal/redact"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

// OpenClaw puts blocks of its own around a person's words.
const (
	contextOpen  = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"
	contextClose = "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
	metaLine     = " (untrusted metadata):\n```json\n"
	metaClose    = "\n```"
)

// Answers that mean "nothing to do", and the bound up to which one may carry a remark.
const (
	heartbeatOK = "HEARTBEAT_OK"
	noReply     = "NO_REPLY"
	silentBytes = 300
)

const maxIdent = 1024

// ident makes a name that the file gives (ids, tools, models, paths) safe to keep, and of a bounded length.
func ident(s string) string {
	s = lines.Clean(s)
	if len(s) <= maxIdent {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "#" + strconv.FormatUint(hash(s), 16)
}

// words makes a text of the conversation safe to keep.
func words(s string) string { return redact.Cut(lines.Clean(s), checkpoint.CutText) }

// output makes a tool's output safe to keep.
func output(s string) string { return redact.Cut(lines.Clean(s), checkpoint.CutTool) }

// short makes an error's text safe to keep.
func short(s string) string { return redact.Cut(lines.Clean(s), maxFailure) }

// arguments makes a call's arguments safe to keep. A call that was cut while it was streamed has none yet but the part
// that had come.
func arguments(c call) string {
	if len(c.args) == 0 || string(c.args) == "{}" || string(c.args) == "null" {
		if c.partial != "" {
			return output(c.partial)
		}
	}
	return redact.Cut(lines.Clean(cleanJSON(c.args)), checkpoint.CutTool)
}

// cleanJSON takes escaped control characters and half surrogates out of a JSON text, which stays JSON.
func cleanJSON(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}

	var b strings.Builder
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 == len(raw) {
			b.WriteByte(raw[i])
			i++
			continue
		}

		unit, ok := escaped(raw[i:])
		switch {
		case !ok:
			if c := raw[i+1]; c != 'b' && c != 'f' && c != 'r' {
				b.Write(raw[i : i+2])
			}
			i += 2
			continue

		case isHigh(unit):
			if low, ok := escaped(raw[i+6:]); ok && isLow(low) {
				b.Write(raw[i : i+12])
				i += 12
				continue
			}
			b.WriteString("\uFFFD")

		case isLow(unit):
			b.WriteString("\uFFFD")
		case unit == '\n' || unit == '\t' || !unicode.IsControl(rune(unit)):
			b.Write(raw[i : i+6])
		}

		i += 6
	}

	return b.String()
}

// personal takes OpenClaw's own blocks off a user message.
func personal(s string) string {
	var kept strings.Builder
	for {
		before, rest, found := strings.Cut(s, contextOpen)
		kept.WriteString(before)
		if !found {
			break
		}
		if _, s, found = strings.Cut(rest, contextClose); !found {
			break // cut by the agent: the block goes to the end
		}
	}

	s = kept.String()
	for {
		t := strings.TrimLeft(s, " \n")
		line := strings.Index(t, metaLine)
		if line < 0 || strings.Contains(t[:line], "\n") {
			break
		}

		end := strings.Index(t[line+len(metaLine)-1:], metaClose)
		if end < 0 {
			break
		}

		s = t[line+len(metaLine)-1+end+len(metaClose):]
	}

	return strings.TrimSpace(s)
}

// machinePrompt says whether a user message was written by the agent itself, and whether the whole turn is none of the
// user's (a heartbeat, a cron job, a memory flush). The turn that goes on after a restart is the user's.
func machinePrompt(s, origin string) (aside, turn bool) {
	switch {
	case strings.HasPrefix(s, "[System] Your previous turn"):
		return true, false
	case strings.HasPrefix(s, "Read HEARTBEAT.md"),
		strings.HasPrefix(s, "[cron:"),
		strings.HasPrefix(s, "Pre-compaction memory flush"),
		strings.Contains(s, "reply "+heartbeatOK),
		origin == "internal_system":
		return true, true
	}
	return false, false
}

// silent says whether an answer means "nothing to do", and whether that alone proves the turn a heartbeat: NO_REPLY is
// also how the agent keeps quiet in a group, so it proves that only for a prompt that speaks of such things.
func silent(answer, prompt string) (quiet, heartbeat bool) {
	a := strings.Trim(answer, " \n\t*_`.")
	if a == noReply {
		p := strings.ToLower(prompt)
		return true, strings.Contains(p, "heartbeat") || strings.Contains(p, "no_reply") ||
			strings.Contains(p, "memory flush")
	}

	if len(a) <= silentBytes && (strings.HasPrefix(a, heartbeatOK) || strings.HasSuffix(a, heartbeatOK)) {
		return true, true
	}

	return false, false
}

// madeUp says whether a result was invented by the agent for a call whose result it never had.
func madeUp(m message) bool {
	s := strings.TrimSpace(m.text)
	return m.synthetic || strings.HasPrefix(s, "[openclaw] missing tool result in session history") ||
		s == "No result provided" ||
		repair.MadeUp(s)
}

// goesOn says whether a result only tells that the call runs on in the background.
func goesOn(m message) bool {
	const line = "Command still running"
	if strings.HasPrefix(m.text, line) {
		return true
	}
	return m.status == "running" && strings.Contains(m.text[:min(len(m.text), 1024)], line+" (session ")
}
