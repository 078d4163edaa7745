package gemini

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/wholefile"
)

// Up to 0.38 a session was one JSON document, written as a whole with each message (package wholefile). It is read as a
// stream, one message at a time.

// walkDocument gives the messages of a document as items.
func walkDocument(src agent.Source) wholefile.Walk {
	return func(ctx context.Context, in io.Reader, give func(wholefile.Item) error) (wholefile.About, error) {
		var doc wholefile.About
		foreign, _ := foreignSession(src)
		if e, ok := about(src, foreign); ok {
			doc.Head = []checkpoint.Entry{e}
		}

		c := entries{Page: &lines.Page[state]{State: state{h: newHistory(true)}}}
		err := messages(wholefile.NewJSON(in), &header{}, func(m message, size int) error {
			if _, twice := c.State.h.told[m.ID]; twice || m.ID == "" {
				return ctx.Err()
			}

			c.Entries = nil
			c.message(m)
			list := c.Entries
			for i := range list {
				list[i].Session = foreign
			}

			said := func(kind checkpoint.EntryKind) bool {
				return slices.ContainsFunc(list, func(e checkpoint.Entry) bool { return e.Kind == kind && !e.Aside })
			}
			return errors.Join(ctx.Err(), give(wholefile.Item{
				ID: ident(m.ID), Hash: m.hash(), Size: size,
				Prompt:  said(checkpoint.EntryUser),
				Past:    said(checkpoint.EntryCompaction),
				Entries: func() []checkpoint.Entry { return list },
			}))
		})

		return doc, err
	}
}

// hash is of all that belay reads of a message.
func (m message) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s", m.ID, m.Type, m.text())
	for _, t := range m.ToolCalls {
		fmt.Fprintf(h, "\x00%s\x00%s", t.ID, t.Status)
	}
	return h.Sum64()
}

// messages goes through the one object of a document: its header, and its messages with their size.
func messages(j *wholefile.JSON, h *header, fn func(m message, size int) error) error {
	return j.Object(func(key string) error {
		switch key {
		case "sessionId":
			return word(j, &h.SessionID)
		case "projectHash":
			return word(j, &h.ProjectHash)
		case "messages":
			return j.Array(func() error {
				var m message
				raw, over, err := j.Value(wholefile.MaxItem)
				if err != nil || over {
					return err
				}
				if lines.Decode(raw, &m) != nil {
					return wholefile.ErrBroken
				}

				return fn(m, len(raw))
			})
		}
		return nil
	})
}

// word reads a short text. One of another type is as if absent.
func word(j *wholefile.JSON, to *string) error {
	raw, over, err := j.Value(64 << 10)
	if err == nil && !over {
		_ = json.Unmarshal(raw, to)
	}
	return err
}

// docEnd is what was found at a document's end.
type docEnd struct {
	torn   int64 // bytes after the last whole message of a document that has no end (yet)
	header header
}

// eachMessage gives the messages of a document to fn, one after the other, with the offset behind each. What is behind
// a break is not read: the document is being written, or was cut short.
func eachMessage(path string, fn func(m message, off int64) error) (end docEnd, err error) {
	file, info, err := lines.OpenRegular(path)
	if err != nil {
		return end, err
	}

	defer file.Close() // read only
	j, last := wholefile.NewJSON(file), int64(0)
	err = messages(j, &end.header, func(m message, _ int) error {
		last = j.Off()
		return fn(m, last)
	})

	if errors.Is(err, wholefile.ErrBroken) {
		end.torn, err = info.Size()-last, nil // an empty file is a session of which nothing is written yet
	}

	return end, err
}
