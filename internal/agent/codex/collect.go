package codex

import (
	"encoding/json"
	"slices"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

// collector turns lines into entries and keeps the account of one Read.
type collector struct {
	foreign string // the file's own thread, when it is not the one that is asked for
	cur     cursor
	seen    *lines.Seen
	known   *lines.Seen

	// before gives the lines that end at or before an offset, newest first; nil where nothing can be taken back.
	before func(end int64, fn func(lines.Line) bool) error
	at     int64 // where the present line begins

	entries []checkpoint.Entry
	losses  checkpoint.Losses
	decoded int
}

func isPrompt(e checkpoint.Entry) bool {
	return e.Kind == checkpoint.EntryUser && e.Op == checkpoint.Upsert
}

func isAnswer(e checkpoint.Entry) bool {
	return e.Kind == checkpoint.EntryAssistant && e.Op == checkpoint.Upsert
}

func isCompaction(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }

func (c *collector) has(what func(checkpoint.Entry) bool) bool {
	return slices.ContainsFunc(c.entries, what)
}

// line takes one line of the file.
func (c *collector) line(l lines.Line) {
	if !matters(l.Data) {
		return
	}
	c.decoded += len(l.Data)
	c.at = l.Off
	if rec, err := decodeLine(l.Data); err == nil {
		c.record(rec, l.Data, l.Rest)
		return
	}
	found, lost := lines.Rescue(l.Data, "payload")
	for _, data := range found {
		if rec, err := decodeLine(data); err == nil {
			c.losses.Rescued++
			c.record(rec, data, l.Rest)
		}
	}
	switch {
	case len(found) == 0:
		lines.CountBad(&c.losses, l, "no record")
	case lost:
		lines.CountBad(&c.losses, l, "a stub beside a record")
	}
}

// record takes one record. Equal bytes are one record.
func (c *collector) record(rec line, data []byte, rest bool) {
	key := keyOf(data)
	switch {
	case c.known != nil && c.known.Has(key):
		c.seen.Add(key)
		return // given before the file was rewritten
	case rest && c.seen.Has(key):
		return
	case !rest && !c.seen.Add(key): // a rest comes again, when its newline is there
		c.losses.Repeats++
		return
	}
	c.losses.Replaced += lines.Broken(data)
	p := rec.Payload
	base := checkpoint.Entry{ID: key, At: rec.at(), Turn: c.turnOf(p), Session: c.foreign}
	switch rec.Type {
	case "session_meta", "turn_context":
		c.place(rec, base)
	case "response_item", "bare_item":
		if hasOwn(data) {
			for _, marker := range payload.Markers(string(data)) {
				c.add(checkpoint.Entry{ID: marker, Kind: checkpoint.EntryOwn, At: base.At, Session: c.foreign})
			}
		}
		c.item(rec, base)
	case "event_msg":
		c.event(p, base)
	case "compacted":
		c.compacted(p, base)
	}
}

func (c *collector) add(e checkpoint.Entry) { c.entries = append(c.entries, e) }

// turnOf is the turn that a record belongs to: as it says itself, else the last one that began.
func (c *collector) turnOf(p body) string {
	for _, id := range []string{p.About.TurnID, p.TurnID, c.cur.Turn} {
		if id != "" && len(id) <= maxID {
			return lines.Clean(id)
		}
	}
	return ""
}

// place tells workspace and model where they change. A fork copies its parent's records, session_meta too: only the first
// one is the file's own.
func (c *collector) place(rec line, base checkpoint.Entry) {
	p := rec.Payload
	if rec.Type == "session_meta" && c.cur.Place != 0 {
		return
	}
	if rec.Type == "turn_context" {
		c.cur.Turn = base.Turn
	}
	e := checkpoint.Entry{Kind: checkpoint.EntryMeta, Session: base.Session}
	if h := shortSum(p.Cwd); h != 0 && h != c.cur.Place {
		c.cur.Place, e.Workspace = h, workspaceOf(p.Cwd)
	}
	if h := shortSum(p.Model); h != 0 && h != c.cur.Model {
		c.cur.Model, e.Model = h, words(p.Model, maxName)
	}
	if e.Workspace != "" || e.Model != "" {
		c.add(e)
	}
}

// item is one piece of the model's history.
func (c *collector) item(rec line, base checkpoint.Entry) {
	p := rec.Payload
	c.cur.Said = lastSaid{}
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
func (c *collector) user(p body, base checkpoint.Entry) {
	kinds := slices.DeleteFunc(slices.Clone(p.About.Kinds), func(k string) bool { return k == "" || k == "unknown" })
	if c.cur.Kinds = len(kinds) > 0; !c.cur.Kinds {
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

func (c *collector) prompt(text string, base checkpoint.Entry) {
	if base.Text = said(text); base.Text == "" {
		return // nothing but a block of our own
	}
	base.Kind = checkpoint.EntryUser
	c.add(base)
}

// programs says that a message in the user's role is Codex's own, in files that do not say so.
func programs(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range []string{"<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<subagent_notification>"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return text == ""
}

func (c *collector) assistant(p body, base checkpoint.Entry) {
	raw := strings.TrimSpace(p.Content.text())
	if base.Text = said(raw); base.Text == "" {
		return
	}
	base.Kind = checkpoint.EntryAssistant
	c.add(base)
	c.cur.Said = lastSaid{ID: base.ID, Len: len(raw), Sum: shortSum(raw)}
}

func (c *collector) call(p body, base checkpoint.Entry, input string) {
	if p.CallID == "" || len(p.CallID) > maxID {
		return
	}
	base.Kind, base.Call = checkpoint.EntryCall, lines.Clean(p.CallID)
	base.Name, base.Input = toolName(p.Name), input
	c.add(base)
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

// result takes a tool's result. "aborted" alone is what Codex makes up for a call without one; of 0.171 it is known only
// in requests, never in a file. A command that a person broke off goes on in the background until the end of it is told;
// whether another tool had done its work by then, nobody says.
func (c *collector) result(p body, base checkpoint.Entry) {
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
	c.add(base)
}

// event takes what the program shows to the person. It repeats what the items say: only the turns' edges, the end of a
// command, and in old files the person's words, come from here.
func (c *collector) event(p body, base checkpoint.Entry) {
	switch p.Type {
	case "task_started", "turn_started":
		c.cur.Turn, c.cur.Said = base.Turn, lastSaid{}
	case "task_complete", "turn_complete":
		base.Kind, base.Failed = checkpoint.EntryTurnEnd, len(p.Error) > 0 && string(p.Error) != "null"
		c.add(base)
		c.cur.Said = lastSaid{}
	case "turn_aborted":
		base.Kind = checkpoint.EntryInterrupt
		c.add(base)
	case "thread_rolled_back":
		c.rolledBack(p.NumTurns)
	case "user_message":
		if !c.cur.Kinds {
			c.prompt(p.Message, base)
		}
	case "item_completed":
		switch it := p.Item; {
		case it.Type == "UserMessage" && !c.cur.Kinds:
			c.prompt(it.Content.text(), base)
		case it.Type == "CommandExecution" && it.ID != "" && len(it.ID) <= maxID:
			base.Kind, base.Call = checkpoint.EntryResult, lines.Clean(it.ID)
			base.Output = words(it.Output, checkpoint.CutTool)
			base.Failed = it.failed()
			c.add(base)
		}
	}
}

// lastSaid is the assistant's last message while nothing but notes came after it.
type lastSaid struct {
	ID  string `json:"i,omitempty"`
	Len int    `json:"n,omitempty"`
	Sum uint32 `json:"s,omitempty"`
}

// compacted takes a compaction. When the model wrote the summary, it stands as an assistant's message right before, and at
// the end of the message here: that one is no answer, and is taken back.
func (c *collector) compacted(p body, base checkpoint.Entry) {
	text := strings.TrimSpace(p.Message)
	if was := c.cur.Said; was.ID != "" && was.Len <= len(text) && shortSum(text[len(text)-was.Len:]) == was.Sum {
		text = text[len(text)-was.Len:]
		c.add(checkpoint.Entry{Op: checkpoint.Retract, ID: was.ID, Session: base.Session})
	}
	c.cur.Said = lastSaid{}
	base.Kind, base.Text = checkpoint.EntryCompaction, said(text)
	c.add(base)
}

// rolledBack takes back the words of the last n turns, which lie before this place.
func (c *collector) rolledBack(n int) {
	if c.before == nil || n <= 0 {
		return
	}
	n = min(n, maxRolled)
	err := c.before(c.at, func(l lines.Line) bool {
		turns, again := c.retract(l)
		n = min(n+again, maxRolled) - turns // those of another roll back were taken back before
		return n > 0
	})
	if err != nil {
		c.losses.BadLines++ // the words stay: told too much is better than read no further
	}
}

// retract takes back what is said in one line. It gives how many turns begin there, and how many are rolled back there.
func (c *collector) retract(l lines.Line) (turns, again int) {
	if !matters(l.Data) {
		return 0, 0
	}
	rec, err := decodeLine(l.Data)
	if err != nil {
		return 0, 0
	}
	if rec.Type == "event_msg" && rec.Payload.Type == "thread_rolled_back" {
		return 0, max(rec.Payload.NumTurns, 0)
	}
	one := collector{cur: c.cur, seen: lines.NewSeen(2), foreign: c.foreign}
	one.record(rec, l.Data, false)
	for _, e := range one.entries {
		if isPrompt(e) || isAnswer(e) {
			c.add(checkpoint.Entry{Op: checkpoint.Retract, ID: e.ID, Session: c.foreign})
		}
		if isPrompt(e) {
			turns++
		}
	}
	return turns, 0
}

// maxRolled bounds how many turns are looked for when some are rolled back.
const maxRolled = 1000
