// Package chatsession knows the chat files of a Java program that keeps one indented JSON file for each session, in a
// folder for each type of agent: <root>/<agent type>/<session id>.json. They are only read; the program has no hooks,
// so that a session is known when its file is named, or lies below the workspace that is asked for or below
// $CHATSESSION_DIR.
//
// It promises what package wholefile does. The program rewrites a file after each answer, in place: a half-written
// one tells nothing until it is whole. Its times have no zone and are taken for local ones.
package chatsession

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/kit/tools"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// name is the agent's word on the command line, in keys and in folder names.
const name = "chat-session"

// Agent is the program as the rest of belay sees it.
type Agent struct {
	root string // $CHATSESSION_DIR; empty when nothing names one
}

var (
	_ agent.Agent      = (*Agent)(nil)
	_ agent.Recogniser = (*Agent)(nil)
	_ agent.Watched    = (*Agent)(nil)
)

// New gives the agent as it is on a machine.
func New(h agent.Host) *Agent { return &Agent{root: h.Dir("CHATSESSION_DIR")} }

// Name is "chat-session".
func (a *Agent) Name() string { return name }

// Events is empty: the program has no hooks.
func (a *Agent) Events() []agent.EventSpec { return nil }

// Limits of a brief that a person asks for.
func (a *Agent) Limits() agent.Limits { return agent.Limits{BriefBytes: 9000} }

// Tools are those of any program: a program brings its own.
func (a *Agent) Tools() tools.Table { return tools.Generic }

// Decode knows no payloads: other programs send op event.
func (a *Agent) Decode(context.Context, agent.Hook) (agent.Incoming, error) {
	return agent.Incoming{}, agent.ErrNotOurs
}

// Reply is the text itself.
func (a *Agent) Reply(_, text string) []byte { return []byte(text) }

// Open gives the reader of a session's file.
func (a *Agent) Open(src agent.Source) checkpoint.Transcript {
	return wholefile.Open(src.Path, walk(src.Session))
}

// Watch names the file itself: it is no file of lines, and no mirror is kept of it.
func (a *Agent) Watch(path string) []string { return []string{path} }

// ResumeCommand says how a person goes on: sessions are chosen in the program's own page.
func (a *Agent) ResumeCommand(session string) string {
	return "open the chat " + session + " in the program's page"
}

// head is what a file says before its messages.
type head struct{ session, kind, mode string }

// message is one element of messages.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Time    string `json:"timestamp"`
}

// walk reads a session's file: wholefile.Walk.
func walk(session string) wholefile.Walk {
	return func(ctx context.Context, in io.Reader, give func(wholefile.Item) error) (wholefile.About, error) {
		var about wholefile.About
		var h head
		names := wholefile.NewNames()
		j := wholefile.NewJSON(in)
		err := j.Object(func(key string) error {
			if key != "messages" {
				return h.member(j, key)
			}
			return j.Array(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}

				raw, over, err := j.Value(wholefile.MaxItem)
				var m message
				switch {
				case err != nil:
					return err
				case over:
					about.Losses.Oversized++
					return nil
				case lines.Decode(raw, &m) != nil:
					about.Losses.BadLines++
					return nil
				}

				about.Losses.Replaced += lines.Broken(raw)
				return give(
					item(
						m, names.Of(m.Role, m.Time, m.Content), len(raw),
						func() string { return foreign(h.session, session) },
					),
				)
			})
		})

		if id := foreign(h.session, session); id != "" || h.mode != "" {
			about.Head = []checkpoint.Entry{{Kind: checkpoint.EntryMeta, Session: id, Mode: h.mode}}
		}

		return about, err
	}
}

// foreign is what entries say of their session: the file's own id, when that is not the one it was opened for.
func foreign(own, asked string) string {
	if own == asked {
		return ""
	}
	return own
}

func (h *head) member(j *wholefile.JSON, key string) error {
	var to *string
	switch key {
	case "sessionId":
		to = &h.session
	case "agentType":
		to = &h.kind
	case "mode":
		to = &h.mode
	default:
		return nil
	}

	raw, over, err := j.Value(4 << 10)
	var s string
	if err == nil && !over && json.Unmarshal(raw, &s) == nil {
		*to = wholefile.Ident(s)
	}

	return err
}

// item is what a message comes to. The program writes a prompt together with its answer: an answer ends the turn.
func item(m message, id string, size int, session func() string) wholefile.Item {
	return wholefile.Item{
		ID:     id,
		Hash:   checkpoint.Hash(m.Content),
		Size:   size,
		Prompt: m.Role == "user" && strings.TrimSpace(m.Content) != "",
		Entries: func() []checkpoint.Entry {
			at := stamp(m.Time)
			var list []checkpoint.Entry
			switch m.Role {
			case "user":
				list = wholefile.Said(id, "", at, m.Content)
			case "assistant":
				if said, _ := wholefile.Words(m.Content); said != "" {
					list = append(list, checkpoint.Entry{ID: id, Kind: checkpoint.EntryAssistant, At: at, Text: said})
				}
				list = append(list, checkpoint.Entry{ID: "end:" + id, Kind: checkpoint.EntryTurnEnd, At: at})
			}

			for i := range list {
				list[i].Session = session()
			}

			return list
		},
	}
}

// stamp is a time of the program's, or zero.
func stamp(s string) time.Time {
	// a fraction of a second is read with all
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.RFC3339} {
		if t, err := time.ParseInLocation(form, s, time.Local); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

const (
	defaultMost = 20 // of Query.Most
	maxFolders  = 500
	maxFiles    = 10_000
)

// Locate finds sessions below the workspace that is asked for, else below $CHATSESSION_DIR, newest first. It reads
// heads only.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	most := q.Most
	if most <= 0 {
		most = defaultMost
	}

	var list []agent.Found
	for _, top := range []string{q.Workspace, a.root} {
		if top != "" && len(list) == 0 {
			list = files(top)
		}
	}

	slices.SortStableFunc(list, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	var found []agent.Found
	for _, f := range list {
		if err := ctx.Err(); err != nil {
			return found, err
		}

		h, ok := headOf(f.Path)
		if !ok || q.Session != "" && h.session != q.Session {
			continue
		}

		f.Session, f.Workspace = h.session, q.Workspace
		if found = append(found, f); len(found) == most {
			break
		}
	}

	return found, nil
}

// files lists what may be a session's file: in a folder of a root that is top, or that lies in it.
func files(top string) []agent.Found {
	var list []agent.Found
	folders := 0
	for _, form := range []string{"*/*.json", "*/*/*.json"} {
		dirs, err := filepath.Glob(filepath.Join(globbed(top), filepath.Dir(form)))
		if err != nil {
			continue // the form is a good one
		}

		for _, dir := range dirs {
			if folders++; folders > maxFolders || len(list) > maxFiles {
				return list
			}

			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // no folder
			}

			for _, e := range entries {
				info, err := e.Info()
				if err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".json") {
					list = append(
						list,
						agent.Found{Source: agent.Source{Path: filepath.Join(dir, e.Name())}, Changed: info.ModTime()},
					)
				}
			}
		}
	}

	return list
}

// globbed takes a path's own signs for what they are.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// headOf reads what a file says before its messages, and whether it is a session's.
func headOf(path string) (h head, ok bool) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return h, false
	}

	defer file.Close() // read only
	data, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil || (&Agent{}).Recognise(data) == agent.NotMine {
		return h, false
	}

	enough := errors.New("the head is read")
	j := wholefile.NewJSON(bytes.NewReader(data))
	_ = j.Object(func(key string) error { // a head that breaks off has said what it has
		if key == "messages" {
			return enough
		}
		return h.member(j, key)
	})

	return h, h.session != ""
}

// Recognise knows a session's file by the keys before its messages.
func (*Agent) Recognise(data []byte) agent.Score {
	keys := map[string]bool{}
	enough := errors.New("the messages begin")
	j := wholefile.NewJSON(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	err := j.Object(func(key string) error {
		if keys[key] = true; key == "messages" {
			return enough
		}
		return nil
	})

	return agent.MineIf(
		(err == nil || errors.Is(err, enough)) && keys["messages"] && keys["sessionId"] && keys["agentType"],
	)
}
