package gemini

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

// Up to 0.38 a session was one JSON document, written anew as a whole with each message. Where something stands in it means
// nothing: what is new, the messages' ids tell. It is read as a stream, one message at a time.

// docCursor is the place in a document: the last message that was told.
type docCursor struct {
	Last string `json:"i,omitempty"`
	Hash uint64 `json:"h,omitempty"` // of the last message, which may get richer
}

// document reads one such transcript.
type document struct {
	src  agent.Source
	next checkpoint.Cursor
	h    *history
	look look // when the document was read last
}

// look is how a file looked. One that looks the same right after it was read needs no second reading.
type look struct {
	size, inode uint64
	changed     time.Time
}

func lookAt(info os.FileInfo) look {
	l := look{size: uint64(info.Size()), changed: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		l.inode = sys.Ino
	}
	return l
}

// docEntry remembers where an entry came from.
type docEntry struct {
	checkpoint.Entry
	off int64
}

func (d *document) read(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	info, err := os.Stat(d.src.Path)
	if err != nil {
		return checkpoint.Batch{Cursor: from}, err
	}
	now := lookAt(info)
	if from != "" && from == d.next && now == d.look && time.Since(now.changed) > 2*time.Second {
		return checkpoint.Batch{Cursor: from}, nil
	}
	b, err := d.take(ctx, from, opt)
	if err != nil {
		d.next, d.h = "", nil
		return checkpoint.Batch{Cursor: from}, fmt.Errorf("read transcript of session %q: %w", d.src.Session, err)
	}
	d.next, d.look = b.Cursor, now
	return b, nil
}

// take reads the document and gives what is new in it.
func (d *document) take(ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	cur := readCursor(from)
	other := cur.Doc == nil && from != "" // a cursor of the newer form
	if cur.Doc == nil || from == "" {
		cur.Doc = &docCursor{}
	}
	fresh := from == "" || from != d.next || d.h == nil
	if fresh {
		d.h = newHistory(true)
	}
	foreign, _ := foreignSession(d.src)
	c := &collector{session: foreign, cur: cursor{Model: cur.Model}, h: d.h}
	news, err := d.gather(ctx, c, *cur.Doc, fresh, opt.Whole)
	known := cur.Doc.Last != ""
	switch {
	case err != nil:
		return checkpoint.Batch{}, err
	case news.end.torn > 0 && (!opt.Final || known && !news.found): // being written: all of it comes with the next look
		d.h = nil
		return checkpoint.Batch{Cursor: from, Losses: checkpoint.Losses{Torn: news.end.torn}}, nil
	case known && !news.found || other: // the conversation is another one: it is told anew
		d.h = nil
		b, err := d.take(ctx, "", opt)
		b.Entries = append([]checkpoint.Entry{{Op: checkpoint.Reset}}, b.Entries...)
		b.First = false
		return b, err
	}
	b := checkpoint.Batch{First: from == "", Losses: c.losses, Cursor: cursor{Model: c.cur.Model, Doc: &news.last}.encode()}
	b.Losses.Torn = news.end.torn
	if e, ok := about(d.src, foreign); ok && b.First {
		b.Entries = append(b.Entries, e)
	}
	if b.First && !opt.Whole {
		news.trim()
	}
	b.Skipped = news.skipped
	for _, e := range news.list {
		b.Entries = append(b.Entries, e.Entry)
	}
	return b, nil
}

// docNews is what a document holds that was not told.
type docNews struct {
	list    []docEntry
	skipped int64     // bytes of what was left out of the list again
	last    docCursor // of the document
	found   bool      // the message that was told last is in it
	end     docEnd
}

// gather goes through the document. A reader that has just begun takes what stands before the last that was told as told;
// one that goes on knows each message.
func (d *document) gather(ctx context.Context, c *collector, from docCursor, fresh, whole bool) (docNews, error) {
	var n docNews
	most := 2 * readEntries
	var err error
	n.end, err = eachMessage(d.src.Path, func(m message, off int64) error {
		if m.ID == "" {
			return ctx.Err()
		}
		c.entries = c.entries[:0]
		c.message(m)
		n.last = docCursor{Last: m.ID, Hash: m.hash()}
		told := fresh && from.Last != "" && !n.found
		if agent.SameID(m.ID, from.Last) {
			n.found = true
			told = told && n.last.Hash == from.Hash
		}
		for _, e := range c.entries {
			if !told {
				n.list = append(n.list, docEntry{e, off})
			}
		}
		if len(n.list) > most && !whole {
			n.trim()
			most = max(most, 2*len(n.list))
		}
		return ctx.Err()
	})
	return n, err
}

// trim keeps the first prompt and what follows the newest ones.
func (n *docNews) trim() {
	prompts, at := 0, 0
	for i := len(n.list) - 1; i >= 0 && prompts < firstPrompts; i-- {
		if isPrompt(n.list[i].Entry) {
			prompts++
			at = i
		}
	}
	first := slices.IndexFunc(n.list, func(e docEntry) bool { return isPrompt(e.Entry) })
	if prompts < firstPrompts || first < 0 || first >= at {
		return
	}
	n.skipped = n.list[at].off - n.list[first].off
	n.list = append(n.list[first:first+1:first+1], n.list[at:]...)
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

// docEnd is what was found at a document's end.
type docEnd struct {
	torn   int64 // bytes after the last whole message of a document that has no end (yet)
	header header
}

// eachMessage gives the messages of a document to fn, one after the other, with the offset behind each. What is behind a
// break is not read: the document is being written, or was cut short.
func eachMessage(path string, fn func(m message, off int64) error) (docEnd, error) {
	var end docEnd
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return end, err
	}
	defer file.Close() // read only
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w", path, lines.ErrNotRegular)
	}
	if err != nil {
		return end, err
	}
	dec := json.NewDecoder(bufio.NewReaderSize(file, 64<<10))
	stopped, err := walkDocument(dec, &end.header, fn)
	if err != nil {
		return end, err
	}
	if stopped {
		end.torn = max(info.Size()-dec.InputOffset(), 1)
	}
	return end, nil
}

// walkDocument goes through the members of the one object. Stopped says that the text broke off.
func walkDocument(dec *json.Decoder, h *header, fn func(m message, off int64) error) (stopped bool, err error) {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return err != io.EOF, nil // an empty file is a session of which nothing is written yet
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return true, nil
		}
		if key != "messages" {
			var raw json.RawMessage
			if dec.Decode(&raw) != nil {
				return true, nil
			}
			switch key {
			case "sessionId":
				_ = json.Unmarshal(raw, &h.SessionID) // of another type it is as if absent
			case "projectHash":
				_ = json.Unmarshal(raw, &h.ProjectHash)
			}
			continue
		}
		if t, err := dec.Token(); err != nil || t != json.Delim('[') {
			return true, nil
		}
		for dec.More() {
			var raw json.RawMessage
			if dec.Decode(&raw) != nil {
				return true, nil
			}
			var m message
			if lines.Decode(raw, &m) != nil {
				continue
			}
			if err := fn(m, dec.InputOffset()); err != nil {
				return false, err
			}
		}
		if _, err := dec.Token(); err != nil {
			return true, nil
		}
	}
	_, err = dec.Token()
	return err != nil, nil
}
