package gemini

import (
	"slices"
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/foreign"
	"belay/internal/jsonl"
)

// Bounds of what a reader remembers of a conversation.
const (
	maxMessages = 200_000
	seenCalls   = 64 << 10
)

// history is the conversation as the file has it at a place: which messages are in it, in order, and what of each was told.
type history struct {
	order []string
	told  map[string]uint64 // message to the hash of its words
	asker map[string]string // message that holds another one's calls to that other one
	calls *jsonl.Seen       // calls that were told, with their state
	said  *jsonl.Seen       // hashes of all words that were told
	// whole is set when nothing before the place is missing in it. A rewrite of the conversation means something only then.
	whole bool
}

func newHistory(whole bool) *history {
	return &history{told: map[string]uint64{}, asker: map[string]string{}, calls: jsonl.NewSeen(seenCalls), said: jsonl.NewSeen(seenCalls), whole: whole}
}

// add puts a message at the end, unless it is there.
func (h *history) add(id string) {
	if _, ok := h.told[id]; ok {
		return
	}
	if len(h.order) >= maxMessages { // no such conversation is real: what comes again will be told again
		h.order, h.told, h.asker, h.whole = nil, map[string]uint64{}, map[string]string{}, false
	}
	h.order = append(h.order, id)
	h.told[id] = 0
}

// rewind takes back a message and all after it, all when it is not known, and gives them, the newest first.
func (h *history) rewind(id string) []string {
	at := max(slices.Index(h.order, id), 0)
	gone := slices.Clone(h.order[at:])
	slices.Reverse(gone)
	h.order = h.order[:at:at]
	for _, g := range gone {
		delete(h.told, g)
	}
	return gone
}

// collector turns records into entries and keeps the account of one Read.
type collector struct {
	session string // that the entries belong to, when it is not the file's own
	summary string // the message that stands for all before it in the list that is read
	cur     cursor
	h       *history

	entries []checkpoint.Entry
	losses  checkpoint.Losses
	decoded int
}

func isPrompt(e checkpoint.Entry) bool {
	return e.Op == checkpoint.Upsert && e.Kind == checkpoint.EntryUser && !e.Aside
}

func isAnswer(e checkpoint.Entry) bool {
	return e.Op == checkpoint.Upsert && e.Kind == checkpoint.EntryAssistant && !e.Aside
}

func isCompaction(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }

func (c *collector) has(what func(checkpoint.Entry) bool) bool {
	return slices.ContainsFunc(c.entries, what)
}

func (c *collector) emit(e checkpoint.Entry) {
	e.Session = c.session
	c.entries = append(c.entries, e)
}

// line takes one line of the file. Missing is called when a record means something only for one who knows all before it.
func (c *collector) line(line jsonl.Line, missing func() error) error {
	c.decoded += len(line.Data)
	var rec record
	if line.Data[0] == '{' && jsonl.Decode(line.Data, &rec) == nil {
		return c.record(rec, line.Data, missing)
	}
	found, lost := jsonl.Rescue(line.Data, "id", "$set", "$rewindTo", "projectHash")
	rescued := false
	for _, data := range found {
		var rec record
		if jsonl.Decode(data, &rec) != nil || rec.RewindTo == "" && rec.Set == nil && rec.ProjectHash == "" && !rec.talks() {
			continue // a piece of a record: a call, for example, has an id too
		}
		rescued = true
		c.losses.Rescued++
		if err := c.record(rec, data, missing); err != nil {
			return err
		}
	}
	switch {
	case !rescued:
		jsonl.CountBad(&c.losses, line, "no record")
	case lost:
		jsonl.CountBad(&c.losses, line, "a stub beside a record")
	}
	return nil
}

// record takes one record.
func (c *collector) record(rec record, data []byte, missing func() error) error {
	first := len(c.entries)
	list := rec.Messages
	rewrites := rec.RewindTo != "" || rec.ID == "" && rec.Set != nil && rec.Set.Messages != nil
	if rewrites && !c.h.whole {
		if err := missing(); err != nil {
			return err
		}
	}
	switch {
	case rec.RewindTo != "":
		for _, id := range c.h.rewind(rec.RewindTo) {
			c.emit(checkpoint.Entry{Op: checkpoint.Retract, ID: ident(id)})
		}
	case rec.ID != "":
		c.message(rec.message)
	case rewrites:
		list = *rec.Set.Messages
		c.cur.Copying = false
		c.h.order = nil
		fallthrough
	default:
		c.batch(list)
	}
	if len(c.entries) > first {
		c.losses.Replaced += jsonl.Broken(data)
	}
	return nil
}

// batch takes the messages of a list. It is the whole conversation from now on; what is left out of it (the program leaves
// out prompts that begin with a hook's text, and all that a summary stands for) was said nevertheless.
func (c *collector) batch(list []message) {
	there := map[string]bool{}
	for i, m := range list {
		if m.ID == "" {
			continue
		}
		if m.Type == typeUser && i+1 < len(list) && list[i+1].thanks() {
			c.summary = m.ID
		}
		if _, known := c.h.told[m.ID]; known && !there[m.ID] {
			c.h.order = append(c.h.order, m.ID)
		}
		there[m.ID] = true
		c.message(m)
	}
	if len(list) > 0 {
		c.cur.Copying = false
	}
}

// summaryOf is the summary in a message that stands for all before it. The model may have thought aloud first: the program
// asks it to.
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
func (c *collector) message(m message) {
	old, known := c.h.told[m.ID]
	c.h.add(m.ID)
	base := checkpoint.Entry{ID: ident(m.ID), At: stamp(m.Timestamp)}
	raw := m.text()
	c.follows(m, raw == "" && !known)
	hash := max(checkpoint.Hash(m.Type+raw), 1)
	fresh := !known || hash != old
	c.h.told[m.ID] = hash
	if c.cur.Copying && !known && c.h.said.Has(strconv.FormatUint(hash, 16)) {
		// The program writes what a compaction keeps under new ids, and then the list of all. It is no news.
		return
	}
	if raw != "" {
		c.h.said.Add(strconv.FormatUint(hash, 16))
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

// follows keeps in mind which of the model's messages asked for calls. When the person broke the turn off, the program notes
// that and then has to write the calls into a message of their own.
func (c *collector) follows(m message, bare bool) {
	switch m.Type {
	case typeUser:
		c.cur.Noted = false
	case typeGemini:
		if bare && c.cur.Noted && c.cur.Answer != "" && len(m.ToolCalls) > 0 {
			c.h.asker[m.ID] = c.cur.Answer
		} else {
			c.cur.Answer = m.ID
		}
		c.cur.Noted = false
	default:
		c.cur.Noted = true
	}
}

// user maps a user message. Those that hold only results of calls say nothing that the calls do not.
func (c *collector) user(raw string, base checkpoint.Entry) {
	if text, ok := summaryOf(raw); ok || c.summary != "" && base.ID == ident(c.summary) {
		base.Kind, base.Text = checkpoint.EntryCompaction, words(text, checkpoint.CutText)
		c.emit(base)
		c.cur.Copying = true
		return
	}
	for _, marker := range foreign.Markers(raw) {
		c.emit(checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: base.At})
	}
	base.Kind = checkpoint.EntryUser
	if base.Text, base.Aside = personal(raw); base.Text != "" {
		c.cur.Copying = false
		c.emit(base)
	}
}

// words maps what the model said.
func (c *collector) words(m message, raw string, base checkpoint.Entry) {
	text := strings.TrimSpace(words(raw, checkpoint.CutText))
	if text == "" || text == interruptedReply || c.cur.Copying && text == thanksForSummary {
		return
	}
	base.Kind, base.Text = checkpoint.EntryAssistant, text
	c.model(m, &base)
	c.emit(base)
}

// model tells the model's name with the first entry after it changed.
func (c *collector) model(m message, e *checkpoint.Entry) {
	if m.Model == "" {
		return
	}
	if h := max(uint32(checkpoint.Hash(m.Model)), 1); h != c.cur.Model {
		c.cur.Model, e.Model = h, words(m.Model, maxName)
	}
}

// toolCalls maps the calls of a message. They stand in the file when they have ended; of one in another state only the
// call is told.
func (c *collector) toolCalls(m message, base checkpoint.Entry) {
	asker := m.ID
	if other, ok := c.h.asker[m.ID]; ok {
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
		if !c.h.calls.Add(id + " " + strconv.FormatBool(over)) {
			continue
		}
		news = true
		call := base
		call.ID, call.Kind, call.Call = "call:"+id, checkpoint.EntryCall, id
		call.Name, call.Input = words(t.Name, maxName), toolText(t.Args)
		c.model(m, &call)
		c.emit(call)
		if !over {
			continue
		}
		result := base
		result.ID, result.Kind, result.Call = "end:"+id, checkpoint.EntryResult, id
		result.Name, result.Output, result.Failed = call.Name, t.output(), failed
		result.Background = commandGoesOn(t.Name, result.Output)
		c.emit(result)
		if id := ident(t.AgentID); id != "" {
			c.emit(checkpoint.Entry{Kind: checkpoint.EntryChildEnd, ID: "child-end:" + id, At: base.At, Child: id, Name: agentName(t.Args)})
		}
	}
	if news && cancelled == len(m.ToolCalls) { // then nothing is sent to the model: the person broke the turn off
		base.ID, base.Kind = "cut:"+base.ID, checkpoint.EntryInterrupt
		c.emit(base)
	}
}

// notice maps what the program itself noted: a turn that the user broke off, or that failed.
func (c *collector) notice(m message, raw string, base checkpoint.Entry) {
	switch {
	case strings.HasPrefix(raw, "Request cancelled"):
		base.Kind = checkpoint.EntryInterrupt
	case m.Type == "error":
		base.Kind, base.Failed = checkpoint.EntryTurnEnd, true
	default:
		return
	}
	c.emit(base)
}
