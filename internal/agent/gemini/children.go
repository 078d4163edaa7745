package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay/checkpoint"
)

// A sub-agent's conversation is a file of its own, in a folder beside its session's file that has the session's id for
// a name: chats/<session>/<sub-agent>.jsonl. No hook tells of it: its tools come with the session's id and file, and
// that file names a sub-agent only when the call that it worked for has ended. So the folder is looked into: what is
// there and began after the answer that still waits for its calls is at work.

const (
	agentTool   = "invoke_agent" // the call that a sub-agent works for; sub-agents have none of their own
	kindChild   = "subagent"
	maxChildren = 200 // of one session, the newest
)

// child is a sub-agent's file.
type child struct {
	id, path string
	began    time.Time
}

// childFiles lists the files that may be sub-agents' of a session, those that changed last first.
func childFiles(path, session string) []liveEntry {
	chats := filepath.Dir(path)
	if !filepath.IsAbs(path) || filepath.Base(chats) != "chats" || session != filepath.Base(session) ||
		strings.HasPrefix(session, ".") {
		return nil
	}

	dir := filepath.Join(chats, session)
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil // there is none, or it is not for us
	}

	var files []liveEntry
	for _, n := range names {
		if info, err := n.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(n.Name(), ".jsonl") {
			files = append(files, liveEntry{filepath.Join(dir, n.Name()), info.ModTime()})
		}
	}

	newestFirst(files)
	return files[:min(len(files), maxChildren)]
}

// childOf reads what a file says of itself. Ok is false for one that is no sub-agent's, or has no header yet.
func childOf(path string) (c child, ok bool) {
	h, ok := headerOf(path)
	if !ok || h.Kind != kindChild {
		return child{}, false
	}
	return child{ident(h.SessionID), path, stamp(h.StartTime)}, true
}

// worksFor says whether a sub-agent is at work for an answer of its session's: one whose calls have not ended.
func (c child) worksFor(asker message) bool {
	return asker.ID != "" && len(asker.ToolCalls) == 0 && !c.began.Before(stamp(asker.Timestamp))
}

// begunFor lists the sub-agents that began after an answer, in the order in which they did.
func begunFor(path, session string, asker message) []child {
	if asker.ID == "" {
		return nil
	}

	var list []child
	for _, f := range childFiles(path, session) {
		if f.changed.Add(time.Second).Before(stamp(asker.Timestamp)) {
			break // this one and all others are older than the answer
		}
		if c, ok := childOf(f.path); ok && !c.began.Before(stamp(asker.Timestamp)) {
			list = append(list, c)
		}
	}

	slices.SortStableFunc(list, func(a, b child) int { return cmp.Compare(a.began.UnixMilli(), b.began.UnixMilli()) })
	return list
}

// asked says whether an answer may have asked for a call: it says so, or its calls have not ended and are not told yet.
func (m message) asked(base string) bool {
	return m.ID != "" && (len(m.ToolCalls) == 0 ||
		slices.ContainsFunc(m.ToolCalls, func(t toolCall) bool { return callBase(t.Name, t.Args) == base }))
}

// toolOf makes a tool's event that of the sub-agent whose tool it is, when there is one: its newest answer waits for
// its calls. Of several that wait it is the one whose answer is the newest; the file says later what was whose. Before
// the first event of a sub-agent's come those that tell of it.
func (a *Agent) toolOf(
	session, base string, at time.Time, e *checkpoint.Event,
) (before []checkpoint.Event, msg string) {
	asker := newestAnswer(e.Transcript, at)
	if e.Name == agentTool || len(asker.ToolCalls) > 0 && asker.asked(base) {
		return nil, asker.ID
	}

	var who child
	var waits message
	index := 0
	for i, c := range begunFor(e.Transcript, e.Key.Session, asker) {
		m := newestAnswer(c.path, at)
		if m.asked(base) && (waits.ID == "" || stamp(m.Timestamp).After(stamp(waits.Timestamp))) {
			who, waits, index = c, m, i
		}
	}

	if waits.ID == "" {
		return nil, asker.ID
	}

	start := *e
	e.Key.Child, e.Transcript = who.id, who.path
	if a.pairs.knows(childSession(session, who.id)) {
		return nil, waits.ID
	}

	start.Kind, start.Name, start.Input = checkpoint.EventChildStart, "", ""
	start.Child, start.ChildName = who.id, a.pairs.agentOf(session, asker.ID, index)
	began := start
	began.Kind, began.Key, began.Child = checkpoint.EventStart, e.Key, ""
	began.Parent, began.Transcript = e.Key.Session, who.path
	return []checkpoint.Event{start, began}, waits.ID
}

// childSession names a sub-agent in what is remembered of calls.
func childSession(session, id string) string { return session + "\x00" + id }

// agentName is the name of the sub-agent that a call asks for.
func agentName(args json.RawMessage) string {
	var in struct {
		Name string `json:"agent_name"`
	}
	if !bytes.HasPrefix(args, []byte("{")) || json.Unmarshal(args, &in) != nil {
		return ""
	}
	return words(in.Name, maxName)
}

// told is what a reader has told of a sub-agent's file.
type told struct {
	child
	none, over bool // it is no sub-agent's; it has ended
}

// children tells of the sub-agents that a batch knows nothing of: those whose files are new, and those that have ended.
// The cursor says which were told of before; that they have ended may be told again.
func (r *reader) children(s *state, b *checkpoint.Batch) {
	session := r.src.Session
	if session == "" {
		h, _ := headerOf(r.src.Path)
		session = h.SessionID
	}

	files := childFiles(r.src.Path, session)
	if r.src.Child != "" || len(files) == 0 {
		return
	}
	if r.told == nil {
		r.told = map[string]told{}
	}

	asker := newestAnswer(r.src.Path, time.Time{})
	newest := s.Child
	for _, f := range slices.Backward(files) {
		t, known := r.told[f.path]
		if !known {
			c, ok := childOf(f.path)
			if t = (told{child: c, none: !ok}); !ok && time.Since(f.changed) < time.Minute {
				continue // its header may still be written
			}
		}

		if at := t.began.UnixMilli(); !known && !t.none && at > s.Child {
			newest = max(newest, at)
			b.Entries = append(b.Entries,
				checkpoint.Entry{Kind: checkpoint.EntryChildStart, ID: "child:" + t.id, At: t.began, Child: t.id,
					Transcript: t.path, Session: r.foreign})
		}

		if !t.none && !t.over && !t.worksFor(asker) {
			t.over = true
			ended := func(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryChildEnd && e.Child == t.id }
			if !slices.ContainsFunc(b.Entries, ended) {
				b.Entries = append(b.Entries,
					checkpoint.Entry{Kind: checkpoint.EntryChildEnd, ID: "child-end:" + t.id, Child: t.id,
						Session: r.foreign})
			}
		}

		r.told[f.path] = t
	}

	s.Child = newest
}
