package claude

import (
	"encoding/json"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/lines"
)

// entries turns records into entries.
type entries struct {
	*lines.Page[state]
	session string // of the file
	child   string // set for a sub-agent's own file
}

// record takes one record. Each counts once, by its id.
func (c entries) record(data []byte) error {
	rec, err := decodeRecord(data)
	own := hasOwn(data)
	if err != nil || !rec.talks() && !own {
		return err
	}

	id := rec.UUID
	if id == "" {
		id = lines.ContentID(data)
	}
	if !c.Once(id) {
		return nil
	}

	if own {
		for _, marker := range payload.Markers(string(data)) {
			c.Add(checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: lines.Time(rec.Timestamp)})
		}
	}

	base := checkpoint.Entry{ID: id, At: lines.Time(rec.Timestamp), Turn: rec.PromptID}
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
		return nil // another agent's talk in this file
	}

	first := len(c.Entries)
	switch rec.Type {
	case "user":
		c.user(rec, base)
	case "assistant":
		c.assistant(rec, base)
	case "system":
		c.system(rec, base)
	}

	if len(c.Entries) > first {
		c.about(rec, &c.Entries[first])
	}

	return nil
}

// about tells workspace, model and mode with the first entry that comes after they changed.
func (c entries) about(rec lineRecord, e *checkpoint.Entry) {
	switch {
	case e.Child != "":
		return // a sub-agent's may differ for a while
	case e.Session != "":
		e.Workspace = workspaceOf(rec.Cwd)
		return
	}

	if h := lines.ShortHash(rec.Cwd); h != 0 && h != c.State.Place {
		c.State.Place, e.Workspace = h, workspaceOf(rec.Cwd)
	}
	if h := lines.ShortHash(rec.Message.Model); h != 0 && h != c.State.Model && rec.Message.Model != syntheticModel {
		c.State.Model, e.Model = h, words(rec.Message.Model, maxName)
	}
	if h := lines.ShortHash(rec.PermissionMode); h != 0 && h != c.State.Mode {
		c.State.Mode, e.Mode = h, words(rec.PermissionMode, maxName)
	}
}

// workspaceOf is the real path of a working directory; empty for what cannot be one.
func workspaceOf(cwd string) string {
	if len(cwd) > maxPath || strings.IndexByte(cwd, 0) >= 0 {
		return ""
	}
	return strings.ToValidUTF8(payload.RealPath(cwd), "\uFFFD")
}

func (c entries) user(rec lineRecord, base checkpoint.Entry) {
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
		c.Add(base)
		return
	}

	text := persons(texts)
	switch {
	case text == "":
		return
	case strings.HasPrefix(text, "[Request interrupted by user"):
		base.Kind = checkpoint.EntryInterrupt
		c.Add(base)
		c.turn(base, true)
		return
	}

	base.Aside = rec.notice(text)
	if base.Text = strings.TrimSpace(words(text, checkpoint.CutText)); base.Text == "" {
		return // nothing but a block of our own
	}

	base.Kind = checkpoint.EntryUser
	c.Add(base)
	c.turn(base, false)
	if call, failed := taskEnd(base.Text); base.Aside && call != "" {
		end := base
		end.ID, end.Kind, end.Call, end.Failed = base.ID+"#"+call, checkpoint.EntryResult, call, failed
		end.Text, end.Aside = "", false
		c.Add(end)
	}
}

func (c entries) assistant(rec lineRecord, base checkpoint.Entry) {
	base.Group = rec.Message.ID
	if rec.Message.Model == syntheticModel || rec.IsAPIError {
		if rec.IsAPIError && !c.State.Ended && base.Child == "" && base.Session == "" {
			c.Add(checkpoint.Entry{ID: base.ID, Kind: checkpoint.EntryTurnEnd, At: base.At, Failed: true})
			c.turn(base, true)
		}
		return // not the model's words
	}

	at := len(c.Entries)
	text := strings.TrimSpace(words(strings.Join(c.blocks(rec, base), "\n"), checkpoint.CutText))
	if text == "" {
		return
	}

	said := base
	said.Kind, said.Text = checkpoint.EntryAssistant, text
	c.Entries = slices.Insert(c.Entries, at, said) // words come before the calls of the same record
	switch rec.Message.StopReason {
	case "end_turn", "stop_sequence", "refusal":
		if base.Child == "" {
			// One message may end in several records: the id makes their ends one.
			end := checkpoint.Entry{ID: "end:" + base.ID, Kind: checkpoint.EntryTurnEnd, At: base.At,
				Session: base.Session}
			if base.Group != "" {
				end.ID = "end:" + base.Group
			}

			c.Add(end)
			c.turn(base, true)
		}
	}
}

func (c entries) system(rec lineRecord, base checkpoint.Entry) {
	switch {
	case rec.Subtype == "compact_boundary":
		base.Kind = checkpoint.EntryCompaction
		c.Add(base)
	case rec.Subtype == "turn_duration" && !c.State.Ended && base.Child == "" && base.Session == "":
		base.Kind = checkpoint.EntryTurnEnd
		c.Add(base)
		c.turn(base, true)
	}
}

// turn remembers whether the conversation's turn has ended, so that two signs of one end are told once.
func (c entries) turn(e checkpoint.Entry, ended bool) {
	if e.Child == "" && e.Session == "" {
		c.State.Ended = ended
	}
}

// blocks adds the calls and results of a message and returns its texts.
func (c entries) blocks(rec lineRecord, base checkpoint.Entry) (texts []string) {
	for _, b := range rec.Message.Content {
		switch {
		case b.Type == "text" || b.Type == "" && b.Text != "":
			texts = append(texts, b.Text)
		case strings.HasSuffix(b.Type, "tool_use") && b.ID != "":
			e := base
			e.ID, e.Kind, e.Call = base.ID+"#"+b.ID, checkpoint.EntryCall, b.ID
			e.Name, e.Input = words(b.Name, maxName), toolText(b.Input)
			c.Add(e)

		case strings.HasSuffix(b.Type, "tool_result") && b.ToolUseID != "":
			e := base
			e.ID, e.Kind, e.Call = base.ID+"#"+b.ToolUseID, checkpoint.EntryResult, b.ToolUseID
			e.Output, e.Failed = resultText(b.Content), b.IsError
			e.MadeUp = rec.ToolDenialKind == "interrupted" || strings.HasPrefix(e.Output, madeUpResult)
			e.Background = rec.ToolUseResult.goesOn()
			c.Add(e)
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
