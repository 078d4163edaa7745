package opencode

import (
	"context"
	"encoding/json"
	"strings"

	"belay/checkpoint"
)

// store answers what one event leaves open: of which message a part is, and what else the message holds.
type store interface {
	message(ctx context.Context, id string) (messageInfo, bool)
	parts(ctx context.Context, message string) []part
	removed(ctx context.Context, message string) []string // ids of the parts that a message had
}

// mapper turns opencode's records into entries.
type mapper struct {
	store
	model     string // what the newest Meta entry said
	mode      string
	directory string
}

// event maps one row of the event table. A false means that the row is no record.
func (m *mapper) event(ctx context.Context, typ string, data []byte) ([]checkpoint.Entry, bool) {
	typ = strings.TrimSuffix(typ, ".1") // the number is the version of the form; another one is another type
	var e envelope
	if err := decode(data, &e); err != nil {
		return nil, false
	}

	switch typ {
	case "session.created", "session.updated":
		var s sessionInfo
		if decode(e.Info, &s) != nil {
			return nil, false
		}
		return m.session(s), true

	case "message.updated":
		var info messageInfo
		if decode(e.Info, &info) != nil || info.ID == "" {
			return nil, false
		}
		return m.messageEntries(info), true

	case "message.part.updated":
		var p part
		if decode(e.Part, &p) != nil || p.ID == "" {
			return nil, false
		}
		return m.part(ctx, p), true

	case "message.removed":
		return m.retract(ctx, e.MessageID), true
	case "message.part.removed":
		return []checkpoint.Entry{{Op: checkpoint.Retract, ID: ident(e.PartID)}}, true
	}

	return nil, true
}

// session maps what a session says of itself, when it is new.
func (m *mapper) session(s sessionInfo) []checkpoint.Entry {
	dir := cleanPath(s.Directory)
	if dir == m.directory && (s.Model.ID == "" || s.Model.ID == m.model) {
		return nil
	}

	m.directory = dir
	if s.Model.ID != "" {
		m.model = s.Model.ID
	}

	return []checkpoint.Entry{{ID: ident(s.ID), Kind: checkpoint.EntryMeta, At: stamp(s.Time.Created),
		Workspace: realPath(dir), Model: ident(s.Model.ID)}}
}

// messageEntries maps what a message says beside its parts: who answers, and how the turn ended.
func (m *mapper) messageEntries(info messageInfo) []checkpoint.Entry {
	if info.Role != "assistant" {
		return nil // its parts tell
	}

	at := stamp(info.Time.Completed)
	var list []checkpoint.Entry
	if info.ModelID != m.model || info.Mode != m.mode {
		m.model, m.mode = info.ModelID, info.Mode
		list = append(list, checkpoint.Entry{ID: ident(info.ID), Kind: checkpoint.EntryMeta,
			At: stamp(info.Time.Created), Model: ident(info.ModelID), Mode: ident(info.Mode)})
	}

	end := checkpoint.Entry{ID: ident(info.ID) + "/end", Kind: checkpoint.EntryTurnEnd, At: at,
		Turn: ident(info.ParentID)}
	switch {
	case at.IsZero() || info.summarises() && info.Error == nil:
	case info.Error == nil && (info.Finish == "" || info.Finish == "tool-calls"): // goes on with another message
	case info.Error == nil:
		list = append(list, end)
	case info.Error.Name == aborted:
		end.Kind = checkpoint.EntryInterrupt
		list = append(list, end)
	default:
		end.Failed = true
		list = append(list, checkpoint.Entry{ID: ident(info.ID) + "/error", Kind: checkpoint.EntryAssistant, At: at,
			Text: failure(info.Error), Aside: true, Failed: true}, end)
	}

	return list
}

// part maps a part of a message.
func (m *mapper) part(ctx context.Context, p part) []checkpoint.Entry {
	switch p.Type {
	case "tool":
		return toolEntries(p)
	case "text", "file", "subtask":
	default:
		return nil // thinking, steps, snapshots
	}

	info, known := m.message(ctx, p.MessageID)
	switch {
	case !known:
		return nil // removed meanwhile
	case info.Role == "user":
		return m.prompt(ctx, info, p)
	case p.Type != "text":
		return nil
	}

	said, own := words(p.Text)
	list := ownEntries(own, p)
	if said == "" { // it is still streaming
		return list
	}

	e := checkpoint.Entry{ID: ident(p.ID), Kind: checkpoint.EntryAssistant, At: stamp(p.Time.Start),
		Group: ident(p.MessageID), Text: said, Aside: p.Synthetic || p.Ignored}
	if info.summarises() {
		e.Kind, e.Group = checkpoint.EntryCompaction, ""
	}

	return append(list, e)
}

// prompt maps a person's message, of which this part is news. The message is told of as a whole, under its own id.
func (m *mapper) prompt(ctx context.Context, info messageInfo, p part) []checkpoint.Entry {
	parts := m.parts(ctx, info.ID)
	if len(parts) == 0 {
		parts = []part{p}
	}

	said, own := promptText(parts)
	list := ownEntries(own, p)
	if said == "" {
		return list // the program's own words: a compaction's, a file's contents
	}

	return append(list, checkpoint.Entry{ID: ident(info.ID), Kind: checkpoint.EntryUser, At: stamp(info.Time.Created),
		Turn: ident(info.ID), Text: said})
}

func ownEntries(markers []string, p part) (list []checkpoint.Entry) {
	for _, k := range markers {
		list = append(list, checkpoint.Entry{ID: ident(k), Kind: checkpoint.EntryOwn, At: stamp(p.Time.Start)})
	}
	return list
}

// toolEntries maps a call in the state in which it is. The same call comes again with each change.
func toolEntries(p part) []checkpoint.Entry {
	s := p.State
	call := checkpoint.Entry{ID: ident(p.ID) + "/call", Kind: checkpoint.EntryCall, At: stamp(s.Time.Start),
		Call: ident(p.ID), Name: ident(p.Tool), Input: arguments(s.Input)}
	end, ended := s.end()
	if !ended {
		return []checkpoint.Entry{call}
	}

	return []checkpoint.Entry{call, {ID: ident(p.ID), Kind: checkpoint.EntryResult, At: stamp(s.Time.End),
		Call: call.Call, Name: call.Name,
		Output: end.output, Failed: end.failed, MadeUp: end.madeUp, Background: end.background}}
}

type ending struct {
	output                     string
	failed, madeUp, background bool
}

// end says how a call ended, if it did. A command that says by its exit code that it failed, or that was killed (by the
// person's Esc, or as its time was over), has failed, although opencode calls such a call completed.
func (s toolState) end() (ending, bool) {
	switch s.Status {
	case "completed":
		return ending{output: output(s.Output), failed: s.failed(), background: s.Metadata.Background}, true
	case "error":
		return ending{output: output(s.Error), failed: true, madeUp: strings.Contains(s.Error, interrupted)}, true
	}
	return ending{}, false
}

func (s toolState) failed() bool {
	if s.Metadata.Background {
		return false // it goes on
	}
	code := string(s.Metadata.Exit)
	return code != "" && code != "0"
}

// retract takes a message back.
func (m *mapper) retract(ctx context.Context, message string) []checkpoint.Entry {
	if message == "" {
		return nil
	}

	list := []checkpoint.Entry{{Op: checkpoint.Retract, ID: ident(message)}}
	for _, id := range m.removed(ctx, message) {
		list = append(list, checkpoint.Entry{Op: checkpoint.Retract, ID: ident(id)})
	}

	return list
}

// row completes the data column of the message and part tables, which leave out what stands in other columns.
func row[T any](data []byte, fill func(*T)) (T, bool) {
	var v T
	if len(data) == 0 || !json.Valid(data) || decode(data, &v) != nil {
		return v, false
	}
	fill(&v)
	return v, true
}
