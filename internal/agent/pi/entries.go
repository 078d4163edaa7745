package pi

import (
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
)

// turn is what the mapping of one record needs to know of those before it. It is part of the cursor, but for the
// prompt.
type turn struct {
	Asked    uint64 `json:"q,omitempty"` // hash of the newest prompt; 0 when there is none
	Answered bool   `json:"a,omitempty"` // it has an answer
	Aside    bool   `json:"s,omitempty"` // the turn is a heartbeat's, a cron job's, a memory flush
	prompt   checkpoint.Entry
}

// mapper turns records into entries.
type mapper struct {
	session string // of the source, when known
	turn    turn
	doubles int // prompts that the agent wrote again after a failure
}

// entries maps one record, whose line must be valid JSON. For a message, key is the name under which it is known.
func (m *mapper) entries(r record, msg message, key string) []checkpoint.Entry {
	switch r.typ {
	case typeHeader:
		e := checkpoint.Entry{ID: "header", Kind: checkpoint.EntryMeta, At: r.at(), Workspace: ident(text(r.cwd)),
			Model: ident(text(r.model))}
		if r.id != m.session {
			e.Session = ident(r.id)
		}
		return []checkpoint.Entry{e}

	case typeModel:
		return []checkpoint.Entry{{ID: r.name(), Kind: checkpoint.EntryMeta, At: r.at(), Model: ident(text(r.model))}}
	case typeCompaction:
		return []checkpoint.Entry{{ID: r.name(), Kind: checkpoint.EntryCompaction, At: r.at(),
			Text: words(text(r.summary))}}
	case typeReset:
		m.turn = turn{}
		return []checkpoint.Entry{{ID: r.name(), Kind: checkpoint.EntryClear, At: r.at()}}
	case typeBranch:
		return m.notice(r, r.name(), text(r.summary))
	case typeCustom:
		said, _ := parseContent(r.content)
		return m.injected(r, r.name(), text(r.customType), said)
	case typeMessage:
		return m.message(r, msg, key)
	}
	return nil
}

func (m *mapper) message(r record, msg message, key string) []checkpoint.Entry {
	switch msg.role {
	case "user":
		return m.user(r, msg, key)
	case "assistant":
		return m.assistant(r, msg, key)
	case "toolResult":
		return []checkpoint.Entry{{ID: key, Kind: checkpoint.EntryResult, At: msgTime(r, msg), Call: ident(msg.callID),
			Name: ident(msg.tool), Output: output(msg.text),
			Failed: msg.isError || msg.status == "error" ||
				msg.status == "failed", MadeUp: madeUp(msg), Background: goesOn(msg)}}

	case "bashExecution":
		return shell(r, msg, key)
	case "custom", "hookMessage":
		return m.injected(r, key, msg.customType, msg.text)
	}
	return nil
}

// user maps a person's words, and what the agent says in a person's name.
func (m *mapper) user(r record, msg message, key string) []checkpoint.Entry {
	rest, own := ownBlocks(r, msg.text)
	said := personal(rest)
	if said == "" {
		return own
	}

	aside, whole := machinePrompt(said, msg.origin)
	e := checkpoint.Entry{ID: key, Kind: checkpoint.EntryUser, At: msgTime(r, msg), Text: words(said), Aside: aside ||
		r.side}
	if e.Aside && !whole {
		return append(own, e) // the turn that was there goes on
	}

	h := hash(said)
	if h == m.turn.Asked && !m.turn.Answered && !whole {
		m.doubles++ // the agent's own second try: still the one prompt
		return own
	}

	m.turn = turn{Asked: h, Aside: whole, prompt: e}
	return append(own, e)
}

// assistant maps the model's words and calls, and how the turn ended when the record says so.
func (m *mapper) assistant(r record, msg message, key string) []checkpoint.Entry {
	rest, list := ownBlocks(r, msg.text)
	at := msgTime(r, msg)
	copied := r.side || msg.provider == "openclaw" &&
		(msg.model == "gateway-injected" || msg.model == "delivery-mirror")
	quiet, heartbeat := silent(rest, m.turn.prompt.Text)
	if heartbeat && !copied && len(msg.calls) == 0 && !m.turn.Aside {
		m.turn.Aside = true
		if p := m.turn.prompt; p.ID != "" {
			p.Aside = true
			list = append(list, p)
		}
	}

	aside := copied || quiet || m.turn.Aside
	bad := msg.stop == "error" || msg.stop == "aborted"
	switch {
	case strings.TrimSpace(rest) != "":
		list = append(list, checkpoint.Entry{ID: key, Kind: checkpoint.EntryAssistant, At: at, Text: words(rest),
			Aside: aside, Failed: bad})
	case msg.stop == "error" && msg.fail != "":
		list = append(list, checkpoint.Entry{ID: key, Kind: checkpoint.EntryAssistant, At: at, Text: words(msg.fail),
			Aside: true, Failed: true})
	}

	for i, c := range msg.calls {
		list = append(list, checkpoint.Entry{ID: key + "/" + strconv.Itoa(i), Kind: checkpoint.EntryCall, At: at,
			Call: ident(c.id), Name: ident(c.name), Input: arguments(c), Aside: m.turn.Aside})
	}

	if copied {
		return list
	}

	switch {
	case msg.stop == "aborted":
		list = append(list, checkpoint.Entry{ID: key + "/end", Kind: checkpoint.EntryInterrupt, At: at,
			Aside: m.turn.Aside})
	case !bad && len(msg.calls) == 0:
		m.turn.Answered = true
		if msg.stop == "stop" || msg.stop == "length" {
			list = append(list, checkpoint.Entry{ID: key + "/end", Kind: checkpoint.EntryTurnEnd, At: at,
				Aside: m.turn.Aside})
		}
	}

	return list
}

// shell maps a command that the user typed at the agent's prompt: a call and its result at once.
func shell(r record, msg message, key string) []checkpoint.Entry {
	at := msgTime(r, msg)
	input := arguments(call{args: jsonObject("command", msg.command)})
	return []checkpoint.Entry{
		{ID: key + "/0", Kind: checkpoint.EntryCall, At: at, Call: key, Name: "bash", Input: input},
		{ID: key, Kind: checkpoint.EntryResult, At: at, Call: key, Name: "bash", Output: output(msg.output),
			Failed: msg.exitCode != 0 || msg.cancelled},
	}
}

// injected maps what an extension put in. OpenClaw's own are of no use to anyone else.
func (m *mapper) injected(r record, id, kind, said string) []checkpoint.Entry {
	if strings.HasPrefix(kind, "openclaw.") || strings.HasPrefix(kind, "openclaw:") {
		_, own := ownBlocks(r, said)
		return own
	}
	return m.notice(r, id, said)
}

// notice is text in the conversation that is neither the person's nor the model's.
func (m *mapper) notice(r record, id, said string) []checkpoint.Entry {
	rest, list := ownBlocks(r, said)
	if strings.TrimSpace(rest) == "" {
		return list
	}
	return append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, At: r.at(), Text: words(rest),
		Aside: true})
}

// ownBlocks takes belay's own blocks out of a text.
func ownBlocks(r record, said string) (rest string, own []checkpoint.Entry) {
	rest, markers := payload.StripOwn(said)
	for _, k := range markers {
		own = append(own, checkpoint.Entry{ID: ident(k), Kind: checkpoint.EntryOwn, At: r.at()})
	}
	return rest, own
}
