package claude

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

// collector turns lines into entries and keeps the account of one Read.
type collector struct {
	session string // of the file
	child   string // set for a sub-agent's own file
	cur     cursor
	seen    *lines.Seen
	known   *lines.Seen

	entries []checkpoint.Entry
	losses  checkpoint.Losses
	decoded int
}

func isPrompt(e checkpoint.Entry) bool {
	return e.Kind == checkpoint.EntryUser && !e.Aside && e.Child == "" && e.Session == ""
}

func isAnswer(e checkpoint.Entry) bool {
	return e.Kind == checkpoint.EntryAssistant && !e.Aside && e.Text != "" && e.Child == "" && e.Session == ""
}

func isCompaction(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }

func (c *collector) has(what func(checkpoint.Entry) bool) bool {
	return slices.ContainsFunc(c.entries, what)
}

// line takes one line of the file.
func (c *collector) line(line lines.Line) {
	if !matters(line.Data) {
		return
	}
	c.decoded += len(line.Data)
	rec, err := decodeRecord(line.Data)
	if err == nil {
		c.record(rec, line.Data, line.Rest)
		return
	}
	// Of the objects in a record only records themselves have a uuid.
	found, lost := lines.Rescue(line.Data, "uuid")
	for _, data := range found {
		if rec, err := decodeRecord(data); err == nil {
			c.losses.Rescued++
			c.record(rec, data, line.Rest)
		}
	}
	switch {
	case len(found) == 0:
		lines.CountBad(&c.losses, line, "no record")
	case lost:
		lines.CountBad(&c.losses, line, "a stub beside a record")
	}
}

// record takes one record. Each counts once, by its id.
func (c *collector) record(rec lineRecord, data []byte, rest bool) {
	own := hasOwn(data)
	if !rec.talks() && !own {
		return
	}
	id := rec.UUID
	if id == "" {
		id = contentID(data)
	}
	switch {
	case c.known != nil && c.known.Has(id):
		c.seen.Add(id)
		return // given before the file was rewritten
	case rest && c.seen.Has(id):
		return
	case !rest && !c.seen.Add(id): // a rest comes again, when its newline is there
		c.losses.Repeats++
		return
	}
	c.losses.Replaced += lines.Broken(data)
	if own {
		for _, marker := range payload.Markers(string(data)) {
			c.entries = append(c.entries, checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: rec.at()})
		}
	}
	base := checkpoint.Entry{ID: id, At: rec.at(), Turn: rec.PromptID}
	if rec.SessionID != "" && c.session != "" && rec.SessionID != c.session {
		base.Session = words(rec.SessionID, maxID)
	}
	if rec.IsSidechain && c.child == "" {
		base.Child = "sidechain" // the oldest versions did not name it
		if rec.AgentID != "" {
			base.Child = strings.TrimPrefix(rec.AgentID, "agent-")
		}
	}
	if rec.TeamName != "" {
		return // another agent's talk in this file
	}
	first := len(c.entries)
	switch rec.Type {
	case "user":
		c.user(rec, base)
	case "assistant":
		c.assistant(rec, base)
	case "system":
		c.system(rec, base)
	}
	if len(c.entries) > first {
		c.about(rec, &c.entries[first])
	}
}

// about tells workspace, model and mode with the first entry that comes after they changed.
func (c *collector) about(rec lineRecord, e *checkpoint.Entry) {
	switch {
	case e.Child != "":
		return // a sub-agent's may differ for a while
	case e.Session != "":
		e.Workspace = workspaceOf(rec.Cwd)
		return
	}
	if h := shortSum(rec.Cwd); h != 0 && h != c.cur.Place {
		c.cur.Place, e.Workspace = h, workspaceOf(rec.Cwd)
	}
	if h := shortSum(rec.Message.Model); h != 0 && h != c.cur.Model && rec.Message.Model != syntheticModel {
		c.cur.Model, e.Model = h, words(rec.Message.Model, maxName)
	}
	if h := shortSum(rec.PermissionMode); h != 0 && h != c.cur.Mode {
		c.cur.Mode, e.Mode = h, words(rec.PermissionMode, maxName)
	}
}

// workspaceOf is the real path of a working directory; empty for what cannot be one.
func workspaceOf(cwd string) string {
	if len(cwd) > maxPath || strings.IndexByte(cwd, 0) >= 0 {
		return ""
	}
	return strings.ToValidUTF8(payload.RealPath(cwd), "\uFFFD")
}

func (c *collector) user(rec lineRecord, base checkpoint.Entry) {
	texts := c.blocks(rec, base)
	if rec.IsMeta {
		return // the program's words in the user's role
	}
	if rec.IsCompactSummary {
		// The boundary before it is the same compaction: its parent.
		if rec.ParentUUID != "" {
			base.ID = rec.ParentUUID
		}
		base.Kind, base.Text = checkpoint.EntryCompaction, words(strings.Join(texts, "\n"), checkpoint.CutText)
		c.entries = append(c.entries, base)
		return
	}
	text := persons(texts)
	switch {
	case text == "":
		return
	case strings.HasPrefix(text, "[Request interrupted by user"):
		base.Kind = checkpoint.EntryInterrupt
		c.entries = append(c.entries, base)
		c.turn(base, true)
		return
	}
	base.Aside = rec.notice(text)
	if base.Text = strings.TrimSpace(words(text, checkpoint.CutText)); base.Text == "" {
		return // nothing but a block of our own
	}
	base.Kind = checkpoint.EntryUser
	c.entries = append(c.entries, base)
	c.turn(base, false)
	if call, failed := taskEnd(base.Text); base.Aside && call != "" {
		end := base
		end.ID, end.Kind, end.Call, end.Failed, end.Text, end.Aside = base.ID+"#"+call, checkpoint.EntryResult, call, failed, "", false
		c.entries = append(c.entries, end)
	}
}

func (c *collector) assistant(rec lineRecord, base checkpoint.Entry) {
	base.Group = rec.Message.ID
	if rec.Message.Model == syntheticModel || rec.IsAPIError {
		if rec.IsAPIError && !c.cur.Ended && base.Child == "" && base.Session == "" {
			c.entries = append(c.entries, checkpoint.Entry{ID: base.ID, Kind: checkpoint.EntryTurnEnd, At: base.At, Failed: true})
			c.turn(base, true)
		}
		return // not the model's words
	}
	at := len(c.entries)
	text := strings.TrimSpace(words(strings.Join(c.blocks(rec, base), "\n"), checkpoint.CutText))
	if text == "" {
		return
	}
	said := base
	said.Kind, said.Text = checkpoint.EntryAssistant, text
	c.entries = append(c.entries, checkpoint.Entry{})
	copy(c.entries[at+1:], c.entries[at:]) // words come before the calls of the same record
	c.entries[at] = said
	switch rec.Message.StopReason {
	case "end_turn", "stop_sequence", "refusal":
		if base.Child == "" {
			// One message may end in several records: the id makes their ends one.
			end := checkpoint.Entry{ID: "end:" + base.ID, Kind: checkpoint.EntryTurnEnd, At: base.At, Session: base.Session}
			if base.Group != "" {
				end.ID = "end:" + base.Group
			}
			c.entries = append(c.entries, end)
			c.turn(base, true)
		}
	}
}

func (c *collector) system(rec lineRecord, base checkpoint.Entry) {
	switch {
	case rec.Subtype == "compact_boundary":
		base.Kind = checkpoint.EntryCompaction
		c.entries = append(c.entries, base)
	case rec.Subtype == "turn_duration" && !c.cur.Ended && base.Child == "" && base.Session == "":
		base.Kind = checkpoint.EntryTurnEnd
		c.entries = append(c.entries, base)
		c.turn(base, true)
	}
}

// turn remembers whether the conversation's turn has ended, so that two signs of one end are told once.
func (c *collector) turn(e checkpoint.Entry, ended bool) {
	if e.Child == "" && e.Session == "" {
		c.cur.Ended = ended
	}
}

// blocks adds the calls and results of a message and returns its texts.
func (c *collector) blocks(rec lineRecord, base checkpoint.Entry) (texts []string) {
	for _, b := range rec.Message.Content {
		switch {
		case b.Type == "text" || b.Type == "" && b.Text != "":
			texts = append(texts, b.Text)
		case strings.HasSuffix(b.Type, "tool_use") && b.ID != "":
			e := base
			e.ID, e.Kind, e.Call = base.ID+"#"+b.ID, checkpoint.EntryCall, b.ID
			e.Name, e.Input = words(b.Name, maxName), toolText(b.Input)
			c.entries = append(c.entries, e)
		case strings.HasSuffix(b.Type, "tool_result") && b.ToolUseID != "":
			e := base
			e.ID, e.Kind, e.Call = base.ID+"#"+b.ToolUseID, checkpoint.EntryResult, b.ToolUseID
			e.Output, e.Failed = resultText(b.Content), b.IsError
			e.MadeUp = rec.ToolDenialKind == "interrupted" || strings.HasPrefix(e.Output, madeUpResult)
			e.Background = rec.ToolUseResult.goesOn()
			c.entries = append(c.entries, e)
		}
	}
	return texts
}

// resultText is the text of a tool's result: its words when it is a string or a list of text blocks, else JSON.
func resultText(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '[' {
		return toolText(raw)
	}
	var list content
	if err := lines.Decode(raw, &list); err != nil {
		return toolText(raw)
	}
	var parts []string
	for _, b := range list {
		switch {
		case b.Text != "":
			parts = append(parts, b.Text)
		case b.Type != "" && b.Type != "text":
			parts = append(parts, "["+b.Type+"]")
		}
	}
	return words(strings.Join(parts, "\n"), checkpoint.CutTool)
}

// contentID identifies a record that has no usable id of its own. Equal bytes are the same record.
func contentID(data []byte) string {
	h := fnv.New64a()
	h.Write(data) // cannot fail
	return fmt.Sprintf("x%016x", h.Sum64())
}

// at is the record's stamp, or zero. It is for display only.
func (r lineRecord) at() time.Time {
	t, err := time.Parse(time.RFC3339, r.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
