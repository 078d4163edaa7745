package codex

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

// entries turns records into entries.
type entries struct{ *lines.Page[state] }

// record takes one record. Ids are missing in old files, and ordinals start over where another version wrote: equal
// bytes are one record.
func (c entries) record(ctx context.Context, data []byte) error {
	rec, err := decodeLine(data)
	if err != nil {
		return err
	}

	key := lines.ContentID(data)
	if !c.Once(key) {
		return nil
	}

	p := rec.Payload
	base := checkpoint.Entry{ID: key, At: lines.Time(rec.Timestamp), Turn: c.turnOf(p)}
	switch rec.Type {
	case "session_meta", "turn_context":
		c.place(rec, base)
	case "response_item", "bare_item":
		if hasOwn(data) {
			for _, marker := range payload.Markers(string(data)) {
				c.Add(checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: base.At})
			}
		}
		c.item(rec, base)

	case "event_msg":
		c.event(ctx, p, base)
	case "compacted":
		c.compacted(p, base)
	}

	return nil
}

// turnOf is the turn that a record belongs to: as it says itself, else the last one that began.
func (c entries) turnOf(p body) string {
	for _, id := range []string{p.About.TurnID, p.TurnID, c.State.Turn} {
		if id != "" && len(id) <= maxID {
			return lines.Clean(id)
		}
	}
	return ""
}

// place tells workspace and model where they change. A fork copies its parent's records, session_meta too: only the
// first one is the file's own.
func (c entries) place(rec line, base checkpoint.Entry) {
	p := rec.Payload
	if rec.Type == "session_meta" && c.State.Place != 0 {
		return
	}
	if rec.Type == "turn_context" {
		c.State.Turn = base.Turn
	}

	e := checkpoint.Entry{Kind: checkpoint.EntryMeta}
	if h := lines.ShortHash(p.Cwd); h != 0 && h != c.State.Place {
		c.State.Place, e.Workspace = h, workspaceOf(p.Cwd)
	}
	if h := lines.ShortHash(p.Model); h != 0 && h != c.State.Model {
		c.State.Model, e.Model = h, words(p.Model, maxName)
	}
	if e.Workspace != "" || e.Model != "" {
		c.Add(e)
	}
}

// item is one piece of the model's history.
func (c entries) item(rec line, base checkpoint.Entry) {
	p := rec.Payload
	c.State.Said = lastSaid{}
	switch p.Type {
	case "message":
		if p.ID != "" && len(p.ID) <= maxID {
			base.ID = lines.Clean(p.ID)
		}
		switch {
		case p.Role == "assistant":
			c.assistant(p, base)
		case p.Role == "user" && rec.Type == "bare_item":
			if text := p.Content.text(); !programs(text) {
				c.prompt(text, base)
			}

		case p.Role == "user":
			c.user(p, base)
		}

	case "function_call":
		c.call(p, base, toolInput(p.Name, []byte(p.Arguments)))
	case "custom_tool_call":
		if p.Name == "apply_patch" {
			c.call(p, base, patchInput(p.Input))
			return
		}
		args, _ := json.Marshal(map[string]string{"input": p.Input}) // strings always encode
		c.call(p, base, words(string(args), checkpoint.CutTool))

	case "local_shell_call":
		var action struct {
			Command []string `json:"command"`
		}
		if lines.Decode(p.Action, &action) != nil {
			return
		}

		args, _ := json.Marshal(action) // strings always encode
		p.Name = "local_shell"
		c.call(p, base, words(string(args), checkpoint.CutTool))

	case "function_call_output", "custom_tool_call_output":
		c.result(p, base)
	}
}

// user takes a message in the user's role. Versions that say of each piece what it is are believed; before, the event
// that follows tells which messages are a person's.
func (c entries) user(p body, base checkpoint.Entry) {
	kinds := slices.DeleteFunc(slices.Clone(p.About.Kinds), func(k string) bool { return k == "" || k == "unknown" })
	if c.State.Kinds = len(kinds) > 0; !c.State.Kinds {
		return
	}

	var own content
	for i, it := range p.Content {
		if kind := p.About.Kinds[min(i, len(p.About.Kinds)-1)]; !strings.HasPrefix(kind, "user.") {
			continue
		}
		if it.Text == "" && it.Type != "" {
			it.Text = "[" + it.Type + "]"
		}
		own = append(own, it)
	}

	if len(own) > 0 {
		c.prompt(own.text(), base)
	}
}

func (c entries) prompt(text string, base checkpoint.Entry) {
	if base.Text = said(text); base.Text == "" {
		return // nothing but a block of our own
	}
	base.Kind = checkpoint.EntryUser
	c.Add(base)
}

// programs says that a message in the user's role is Codex's own, in files that do not say so.
func programs(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range []string{"<environment_context>", "<user_instructions>", "# AGENTS.md instructions",
		"<turn_aborted>", "<subagent_notification>"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}

	return text == ""
}

func (c entries) assistant(p body, base checkpoint.Entry) {
	raw := strings.TrimSpace(p.Content.text())
	if base.Text = said(raw); base.Text == "" {
		return
	}
	base.Kind = checkpoint.EntryAssistant
	c.Add(base)
	c.State.Said = lastSaid{ID: base.ID, Len: len(raw), Sum: lines.ShortHash(raw)}
}

func (c entries) call(p body, base checkpoint.Entry, input string) {
	if p.CallID == "" || len(p.CallID) > maxID {
		return
	}
	base.Kind, base.Call = checkpoint.EntryCall, lines.Clean(p.CallID)
	base.Name, base.Input = toolName(p.Name), input
	c.Add(base)
}

var (
	exitCode = lazyre.New(`(?m)^(?:Process exited with code|Exit code:) (-?\d+)$`)
	goesOn   = lazyre.New(`(?m)^Process running with session ID \d+$`)

	// What Codex writes for a call of a turn that a person broke off: of a command, and of any other tool.
	leftAlone = lazyre.New(`^Wall time: [\d.]+ seconds\naborted by user$`)
	brokenOff = lazyre.New(`^aborted by user(?: after [\d.]+s)?$`)
)

// resultHead is how far into a result Codex's own lines about it stand.
const resultHead = 300

// result takes a tool's result. "aborted" alone is what Codex makes up for a call without one; of 0.171 it is known
// only in requests, never in a file. A command that a person broke off goes on in the background until the end of it is
// told; whether another tool had done its work by then, nobody says.
func (c entries) result(p body, base checkpoint.Entry) {
	if p.CallID == "" || len(p.CallID) > maxID {
		return
	}

	base.Kind, base.Call, base.Output = checkpoint.EntryResult, lines.Clean(p.CallID), toolOutput(p.Output)
	head, _, _ := strings.Cut(base.Output, "\nOutput:\n")
	head = head[:min(len(head), resultHead)]
	code := exitCode().FindStringSubmatch(head)
	var old struct {
		Output   string `json:"output"`
		Metadata struct {
			Exit *int `json:"exit_code"`
		} `json:"metadata"`
	}

	switch {
	case base.Output == "aborted", brokenOff().MatchString(base.Output), repair.MadeUp(base.Output):
		base.MadeUp = true
	case code != nil:
		base.Failed = code[1] != "0"
	case goesOn().MatchString(head), leftAlone().MatchString(base.Output):
		base.Background = true
	case strings.HasPrefix(head, "unsupported "):
		base.Failed = true
	case strings.HasPrefix(head, "{") && json.Unmarshal([]byte(base.Output), &old) == nil && old.Metadata.Exit != nil:
		base.Output, base.Failed = old.Output, *old.Metadata.Exit != 0
	}

	c.Add(base)
}

// event takes what the program shows to the person. It repeats what the items say: only the turns' edges, the end of a
// command, and in old files the person's words, come from here.
func (c entries) event(ctx context.Context, p body, base checkpoint.Entry) {
	switch p.Type {
	case "task_started", "turn_started":
		c.State.Turn, c.State.Said = base.Turn, lastSaid{}
	case "task_complete", "turn_complete":
		base.Kind, base.Failed = checkpoint.EntryTurnEnd, len(p.Error) > 0 && string(p.Error) != "null"
		c.Add(base)
		c.State.Said = lastSaid{}

	case "turn_aborted":
		base.Kind = checkpoint.EntryInterrupt
		c.Add(base)
	case "thread_rolled_back":
		c.rolledBack(ctx, p.NumTurns)
	case "user_message":
		if !c.State.Kinds {
			c.prompt(p.Message, base)
		}

	case "item_completed":
		switch it := p.Item; {
		case it.Type == "UserMessage" && !c.State.Kinds:
			c.prompt(it.Content.text(), base)
		case it.Type == "CommandExecution" && it.ID != "" && len(it.ID) <= maxID:
			base.Kind, base.Call = checkpoint.EntryResult, lines.Clean(it.ID)
			base.Output = words(it.Output, checkpoint.CutTool)
			base.Failed = it.failed()
			c.Add(base)
		}
	}
}

// lastSaid is the assistant's last message while nothing but notes came after it.
type lastSaid struct {
	ID  string `json:"i,omitempty"`
	Len int    `json:"n,omitempty"`
	Sum uint32 `json:"s,omitempty"`
}

// compacted takes a compaction. When the model wrote the summary, it stands as an assistant's message right before, and
// at the end of the message here: that one is no answer, and is taken back.
func (c entries) compacted(p body, base checkpoint.Entry) {
	text := strings.TrimSpace(p.Message)
	if was := c.State.Said; was.ID != "" && was.Len >= 0 && was.Len <= len(text) &&
		lines.ShortHash(text[len(text)-was.Len:]) == was.Sum {
		text = text[len(text)-was.Len:]
		c.Add(checkpoint.Entry{Op: checkpoint.Retract, ID: was.ID})
	}

	c.State.Said = lastSaid{}
	base.Kind, base.Text = checkpoint.EntryCompaction, said(text)
	c.Add(base)
}

// Bounds of a look for turns that were rolled back.
const (
	maxRolled   = 1000     // turns
	rolledBytes = 64 << 20 // read backward
)

// rolledBack takes back the words of the last n turns, which lie before this place.
func (c entries) rolledBack(ctx context.Context, n int) {
	if n <= 0 {
		return
	}

	n = min(n, maxRolled)
	err := c.Before(ctx, rolledBytes, func(l lines.Line) bool {
		list, turns, again := takenBack(ctx, c.State, l)
		c.Add(list...)
		n = min(n+again, maxRolled) - turns // those of another roll back were taken back before
		return n > 0
	})

	if err != nil {
		c.Losses.BadLines++ // the words stay: told too much is better than read no further
	}
}

// takenBack gives what takes back the words of one line, how many turns begin there, and how many are rolled back
// there.
func takenBack(ctx context.Context, s state, l lines.Line) (list []checkpoint.Entry, turns, again int) {
	if !matters(l.Data) {
		return nil, 0, 0
	}

	rec, err := decodeLine(l.Data)
	if err != nil {
		return nil, 0, 0
	}
	if rec.Type == "event_msg" && rec.Payload.Type == "thread_rolled_back" {
		return nil, 0, max(rec.Payload.NumTurns, 0)
	}

	f := format()
	for _, e := range f.Entries(ctx, s, l) {
		if e.Kind == checkpoint.EntryUser || e.Kind == checkpoint.EntryAssistant {
			list = append(list, checkpoint.Entry{Op: checkpoint.Retract, ID: e.ID})
		}
		if e.Kind == checkpoint.EntryUser {
			turns++
		}
	}

	return list, turns, 0
}
