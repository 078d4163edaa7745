package gemini

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

// Hooks name no id for a tool call, and the file holds a call only when it has ended. What both know is the model's
// message that asked for it: it is in the file before the tool starts, and gets the calls under the same id when all of
// them are done. So a call's id is made of that message's id and of a hash of name and input, with a number for equal
// calls of one message. Hooks and reader come to the same one, each alone, also after a restart of the daemon between
// start and end.

// callBase is the hash of a call's name and input. The order of keys says nothing; wait_for_previous is for the
// scheduler and no part of the work.
func callBase(tool string, input json.RawMessage) string {
	var args map[string]any
	text := string(input)
	if json.Unmarshal(input, &args) == nil && args != nil {
		delete(args, "wait_for_previous")
		if sorted, err := json.Marshal(args); err == nil {
			text = string(sorted)
		}
	}

	return strconv.FormatUint(checkpoint.Hash(tool+"\x00"+text), 16)
}

// callID names the n-th of the equal calls of a message.
func callID(msg, base string, n int) string {
	id := ident(msg) + ":" + base
	if n > 0 {
		id += ":" + strconv.Itoa(n+1)
	}
	return id
}

// Bounds of what is remembered of calls that hooks told of.
const (
	maxSessions = 256
	maxCalls    = 256 // of one session's turn
)

// seenCall is one call that a hook told of.
type seenCall struct {
	id, msg, base string
	start, end    string // stamps of the hooks, which tell a hook that came twice from another call
	agent         string // the sub-agent that it asks for
}

// pairing finds for each end of a call its start: equal name and input, the first open one.
type pairing struct {
	mu struct {
		sync.Mutex
		calls map[string][]seenCall // by session
		order []string              // sessions, the oldest first
	}
}

// knows says whether anything is remembered of a session or sub-agent.
func (p *pairing) knows(session string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.mu.calls[session]
	return ok
}

// asks notes which sub-agent a call asks for.
func (p *pairing) asks(session, call, agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.mu.calls[session] {
		if c.id == call {
			p.mu.calls[session][i].agent = agent
		}
	}
}

// agentOf is the name of the n-th sub-agent that an answer asked for: they begin in the order of their calls.
func (p *pairing) agentOf(session, msg string, n int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.calls[session] {
		if c.msg != msg || c.agent == "" {
			continue
		}
		if n == 0 {
			return c.agent
		}
		n--
	}

	return ""
}

// turn forgets the calls of a session: a new turn begins, and no call goes on beyond its own.
func (p *pairing) turn(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.calls, session)
	p.mu.order = slices.DeleteFunc(p.mu.order, func(s string) bool { return s == session })
}

// started gives the id of a call that starts. Msg is the model's message that asked for it, empty when not known.
func (p *pairing) started(session, base, at, msg string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.mu.calls[session]
	for _, c := range list {
		if c.base == base && c.start == at {
			return c.id // the hook came twice
		}
	}

	c := seenCall{id: p.name(list, base, at, msg), msg: msg, base: base, start: at}
	p.keep(session, append(list, c))
	return c.id
}

// ended gives the id of a call that ends.
func (p *pairing) ended(session, base, at, msg string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.mu.calls[session]
	for _, c := range list {
		if c.base == base && c.end == at {
			return c.id
		}
	}

	for i, c := range list {
		if c.base == base && c.end == "" {
			list[i].end = at
			return c.id
		}
	}

	c := seenCall{id: p.name(list, base, at, msg), msg: msg, base: base, end: at}
	p.keep(session, append(list, c))
	return c.id
}

func (p *pairing) name(list []seenCall, base, at, msg string) string {
	if msg == "" { // a file that cannot be read, or an old version: a name of our own
		return "hook:" + base + ":" + strconv.FormatUint(checkpoint.Hash(at), 16)
	}

	n := 0
	for _, c := range list {
		if c.msg == msg && c.base == base {
			n++
		}
	}

	return callID(msg, base, n)
}

func (p *pairing) keep(session string, list []seenCall) {
	if p.mu.calls == nil {
		p.mu.calls = map[string][]seenCall{}
	}
	if _, ok := p.mu.calls[session]; !ok {
		p.mu.order = append(p.mu.order, session)
	}
	if n := len(list) - maxCalls; n > 0 {
		list = slices.Clone(list[n:])
	}

	p.mu.calls[session] = list
	if len(p.mu.order) > maxSessions {
		delete(p.mu.calls, p.mu.order[0])
		p.mu.order = slices.Clone(p.mu.order[1:])
	}
}

// tailBytes is how far from its end a transcript is looked through for the newest answer.
const tailBytes = 4 << 20

// newestAnswer gives the model's newest message that was in the file at a time; empty when there is none. A hook may
// come late, when the file has gone on. The file is looked at and nothing of it is kept.
func newestAnswer(path string, at time.Time) message {
	if !filepath.IsAbs(path) {
		return message{}
	}

	later := func(m message) bool {
		t := stamp(m.Timestamp)
		return !at.IsZero() && !t.IsZero() && t.After(at)
	}

	if isDocument(path) {
		return newestInDocument(path, later)
	}

	file := lines.Open(path)
	defer file.Close() // read only
	size, err := file.Size()
	if err != nil {
		return message{}
	}

	var found message

	// What cannot be read has no answer: the caller does without.
	_ = file.Backward(size, tailBytes, func(line lines.Line) bool {
		if bytes.HasPrefix(line.Data, []byte(`{"$set"`)) {
			return true
		}

		var m message
		if lines.Decode(line.Data, &m) != nil || !m.talks() || later(m) {
			return true
		}
		if m.Type == typeGemini {
			found = m
		}

		// after a user message, results or prompt, no answer is there yet
		return m.Type != typeGemini && m.Type != typeUser
	})

	return found
}

// newestInDocument is newestAnswer for a whole-file transcript.
func newestInDocument(path string, later func(message) bool) (found message) {
	info, err := os.Stat(path)
	if err != nil || info.Size() > tailBytes {
		return message{}
	}

	_, err = eachMessage(path, func(m message, _ int64) error {
		if m.Type == typeGemini && !later(m) {
			found = m
		}
		return nil
	})

	if err != nil {
		return message{} // as above
	}

	return found
}
