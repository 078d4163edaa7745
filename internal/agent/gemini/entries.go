package gemini

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

var errNoRecord = errors.New("not a record")

// entries turns records into entries.
type entries struct {
	*lines.Page[state]
	summary string // the message that stands for all before it in the list that is read
}

// record takes one record. Replay gives the conversation before it, which it needs to know when it rewrites that.
func (c *entries) record(ctx context.Context, r lines.Record,
	replay func(ctx context.Context, end int64) *history) error {
	var rec record
	if err := lines.Decode(r.Data, &rec); err != nil {
		return err
	}
	if r.Glued && rec.RewindTo == "" && rec.Set == nil && rec.ProjectHash == "" && !rec.talks() {
		return errNoRecord // a piece of a record: a call, for example, has an id too
	}
	if c.State.h == nil {
		c.State.h = newHistory(c.Complete())
	}

	rewrites := rec.RewindTo != "" || rec.ID == "" && rec.Set != nil && rec.Set.Messages != nil
	if rewrites && !c.State.h.whole {
		c.State.h.whole = true // asked once
		if h := replay(ctx, r.Off); h != nil {
			c.State.h = h
		}
	}

	list := rec.Messages
	switch {
	case rec.RewindTo != "":
		for _, id := range c.State.h.rewind(rec.RewindTo) {
			c.Add(checkpoint.Entry{Op: checkpoint.Retract, ID: ident(id)})
		}

	case rec.ID != "":
		c.message(rec.message)
	case rewrites:
		list = *rec.Set.Messages
		c.State.Copying = false
		c.State.h.order = nil
		fallthrough

	default:
		c.batch(list)
	}

	return nil
}

// batch takes the messages of a list. It is the whole conversation from now on; what is left out of it (the program
// leaves out prompts that begin with a hook's text, and all that a summary stands for) was said nevertheless.
func (c *entries) batch(list []message) {
	there := map[string]bool{}
	for i, m := range list {
		if m.ID == "" {
			continue
		}
		if m.Type == typeUser && i+1 < len(list) && list[i+1].thanks() {
			c.summary = m.ID
		}
		if _, known := c.State.h.told[m.ID]; known && !there[m.ID] {
			c.State.h.order = append(c.State.h.order, m.ID)
		}

		there[m.ID] = true
		c.message(m)
	}

	if len(list) > 0 {
		c.State.Copying = false
	}
}

// summaryOf is the summary in a message that stands for all before it. The model may have thought aloud first: the
// program asks it to.
func summaryOf(text string) (summary string, ok bool) {
	text = strings.TrimSpace(text)
	at := strings.Index(text, snapshotOpen)
	if at > 0 && !strings.HasPrefix(text, scratchOpen) || at < 0 {
		return text, false
	}
	return text[at:], true
}

func isSummary(text string) bool {
	_, ok := summaryOf(text)
	return ok
}

// thanks says whether a message is what the program makes the model say to a summary.
func (m message) thanks() bool {
	return m.Type == typeGemini && strings.TrimSpace(m.text()) == thanksForSummary
}

// message takes one message: new, or there before and perhaps richer now.
func (c *entries) message(m message) {
	old, known := c.State.h.told[m.ID]
	c.State.h.add(m.ID)
	base := checkpoint.Entry{ID: ident(m.ID), At: stamp(m.Timestamp)}
	raw := m.text()
	c.follows(m, raw == "" && !known)
	hash := max(checkpoint.Hash(m.Type+raw), 1)
	fresh := !known || hash != old
	c.State.h.told[m.ID] = hash
	if c.State.Copying && !known && c.State.h.said.Has(strconv.FormatUint(hash, 16)) {
		// The program writes what a compaction keeps under new ids, and then the list of all. It is no news.
		return
	}
	if raw != "" {
		c.State.h.said.Add(strconv.FormatUint(hash, 16))
	}

	switch m.Type {
	case typeUser:
		if fresh && m.ID != environmentID {
			c.user(raw, base)
		}

	case typeGemini:
		if fresh {
			c.words(m, raw, base)
		}
		c.toolCalls(m, base)

	case "info", "error", "warning":
		if fresh {
			c.notice(m, raw, base)
		}
	}
}

// follows keeps in mind which of the model's messages asked for calls. When the person broke the turn off, the program
// notes that and then has to write the calls into a message of their own.
func (c *entries) follows(m message, bare bool) {
	switch m.Type {
	case typeUser:
		c.State.Noted = false
	case typeGemini:
		if bare && c.State.Noted && c.State.Answer != "" && len(m.ToolCalls) > 0 {
			c.State.h.asker[m.ID] = c.State.Answer
		} else {
			c.State.Answer = m.ID
		}
		c.State.Noted = false

	default:
		c.State.Noted = true
	}
}

// user maps a user message. Those that hold only results of calls say nothing that the calls do not.
func (c *entries) user(raw string, base checkpoint.Entry) {
	if text, ok := summaryOf(raw); ok || c.summary != "" && base.ID == ident(c.summary) {
		base.Kind, base.Text = checkpoint.EntryCompaction, words(text, checkpoint.CutText)
		c.Add(base)
		c.State.Copying = true
		return
	}

	for _, marker := range payload.Markers(raw) {
		c.Add(checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: base.At})
	}

	base.Kind = checkpoint.EntryUser
	if base.Text, base.Aside = personal(raw); base.Text != "" {
		c.State.Copying = false
		c.Add(base)
	}
}

// words maps what the model said.
func (c *entries) words(m message, raw string, base checkpoint.Entry) {
	text := strings.TrimSpace(words(raw, checkpoint.CutText))
	if text == "" || text == interruptedReply || c.State.Copying && text == thanksForSummary {
		return
	}
	base.Kind, base.Text = checkpoint.EntryAssistant, text
	c.model(m, &base)
	c.Add(base)
}

// model tells the model's name with the first entry after it changed.
func (c *entries) model(m message, e *checkpoint.Entry) {
	if m.Model == "" {
		return
	}
	if h := max(uint32(checkpoint.Hash(m.Model)), 1); h != c.State.Model {
		c.State.Model, e.Model = h, words(m.Model, maxName)
	}
}

// toolCalls maps the calls of a message. They stand in the file when they have ended; of one in another state only the
// call is told.
func (c *entries) toolCalls(m message, base checkpoint.Entry) {
	asker := m.ID
	if other, ok := c.State.h.asker[m.ID]; ok {
		asker = other
	}

	equal := map[string]int{}
	cancelled, news := 0, false
	for _, t := range m.ToolCalls {
		hash := callBase(t.Name, t.Args)
		id := callID(asker, hash, equal[hash])
		equal[hash]++
		if t.Status == "cancelled" {
			cancelled++
		}

		over, failed := t.ended()
		if !c.State.h.calls.Add(id + " " + strconv.FormatBool(over)) {
			continue
		}

		news = true
		call := base
		call.ID, call.Kind, call.Call = "call:"+id, checkpoint.EntryCall, id
		call.Name, call.Input = words(t.Name, maxName), toolText(t.Args)
		c.model(m, &call)
		c.Add(call)
		if !over {
			continue
		}

		result := base
		result.ID, result.Kind, result.Call = "end:"+id, checkpoint.EntryResult, id
		result.Name, result.Output, result.Failed = call.Name, t.output(), failed
		result.Background = commandGoesOn(t.Name, result.Output)
		c.Add(result)
		if id := ident(t.AgentID); id != "" {
			c.Add(checkpoint.Entry{Kind: checkpoint.EntryChildEnd, ID: "child-end:" + id, At: base.At, Child: id,
				Name: agentName(t.Args)})
		}
	}

	if news && cancelled == len(m.ToolCalls) { // then nothing is sent to the model: the person broke the turn off
		base.ID, base.Kind = "cut:"+base.ID, checkpoint.EntryInterrupt
		c.Add(base)
	}
}

// notice maps what the program itself noted: a turn that the user broke off, or that failed.
func (c *entries) notice(m message, raw string, base checkpoint.Entry) {
	switch {
	case strings.HasPrefix(raw, "Request cancelled"):
		base.Kind = checkpoint.EntryInterrupt
	case m.Type == "error":
		base.Kind, base.Failed = checkpoint.EntryTurnEnd, true
	default:
		return
	}
	c.Add(base)
}
