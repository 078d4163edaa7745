package dumplings

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"belay/checkpoint"
	"belay/internal/transcript/wholefile"
)

// A .duas file:
//
//	# a comment
//	[META]
//	format_version = 1      # a comment behind a value
//	...
//	[HISTORY]
//	{"role": "user", "content": "..."}
//
// It is rewritten as a whole. META says how many lines HISTORY has, so that a half file is known.

const formatVersion = "1"

// meta is what the head of a file says, as far as it is told.
type meta struct {
	section bool // the first line that is no comment opens META
	format  string
	uuid    string
	name    string
	model   string
	count   int // of messages; -1 when it is not said
}

// set takes one value of a section.
func (m *meta) set(section, key, value string) {
	value = wholefile.Ident(value)
	switch section + "." + key {
	case "META.format_version":
		m.format = value
	case "META.agent_uuid":
		m.uuid = value
	case "META.agent_name":
		m.name = value
	case "META.message_count":
		if n, err := strconv.Atoi(value); err == nil {
			m.count = n
		}

	case "CONFIG.model_name":
		m.model = value
	}
}

// foreign is what entries say of their session: the agent's uuid, when the file was opened for no session.
func (m *meta) foreign(session string) string {
	switch {
	case session != "": // a key is a uuid, a name, or what its user chose
		return ""
	case m.uuid != "":
		return m.uuid
	}
	return m.name
}

// head is what a session says of itself.
func (m *meta) head(session string) []checkpoint.Entry {
	e := checkpoint.Entry{Kind: checkpoint.EntryMeta, Session: m.foreign(session), Model: m.model}
	if e.Session == "" && e.Model == "" {
		return nil
	}
	return []checkpoint.Entry{e}
}

// line takes one line of the head and gives the section that the next is in.
func (m *meta) line(section, line string) string {
	line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
	switch {
	case line == "" || line[0] == '#' || line[0] == ';':
		return section
	case line[0] == '[':
		if end := strings.IndexByte(line, ']'); end > 0 {
			next := strings.ToUpper(strings.TrimSpace(line[1:end]))
			m.section = m.section || section == "" && next == "META"
			return next
		}
		return section
	}

	if section == "" {
		return "?" // words before a section: another kind of file
	}
	if key, value, ok := strings.Cut(line, "="); ok {
		m.set(section, strings.TrimSpace(key), plainValue(value))
	}

	return section
}

// plainValue is a value without the comment behind it.
func plainValue(s string) string {
	for _, mark := range []string{" #", "\t#"} {
		s, _, _ = strings.Cut(s, mark)
	}

	s = strings.TrimSpace(s)
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		s = s[1 : len(s)-1]
	}

	return s
}

// readHead reads the head at the beginning of a file.
func readHead(data []byte) meta {
	m := meta{count: -1}
	section := ""
	for len(data) > 0 && section != "HISTORY" && section != "?" {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		if len(line) > 4<<10 {
			line = nil // a prompt, which is not told
		}
		section = m.line(section, string(line))
		data = rest
	}

	return m
}

// walk reads a .duas file: wholefile.Walk.
func walk(session string) wholefile.Walk {
	return func(ctx context.Context, in io.Reader, give func(wholefile.Item) error) (wholefile.About, error) {
		m := meta{count: -1}
		h := newHistory(give, func() string { return m.foreign(session) })
		r := bufio.NewReaderSize(in, 64<<10)
		section, lines := "", 0
		for {
			if err := ctx.Err(); err != nil {
				return h.about, err
			}

			line, over, whole, err := readLine(r)
			switch {
			case err != nil:
				return h.about, err
			case section != "HISTORY":
				section = m.line(section, string(line))
				if section == "HISTORY" && m.format != formatVersion {
					return h.about, fmt.Errorf("%w %q", ErrVersion, m.format)
				}

			case over:
				h.about.Losses.Oversized++
				lines++
			case len(bytes.TrimSpace(line)) > 0 && line[0] != '#':
				if lines++; !whole && !json.Valid(line) {
					return h.about, wholefile.ErrBroken // the last line is being written
				}
				if err := h.line(line); err != nil {
					return h.about, err
				}
			}

			if !whole {
				break
			}
		}

		h.about.Head = m.head(session)
		if section != "HISTORY" || lines < m.count {
			return h.about, wholefile.ErrBroken
		}

		return h.about, nil
	}
}

// readLine reads one line. Whole is false for what stands behind the last newline; over, for a line that is too large.
func readLine(r *bufio.Reader) (line []byte, over, whole bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > wholefile.MaxItem {
			line, over = nil, true
		} else if !over {
			line = append(line, part...)
		}

		switch {
		case err == nil:
			return bytes.TrimSpace(line), over, true, nil
		case errors.Is(err, io.EOF):
			return bytes.TrimSpace(line), over, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, over, false, err
		}
	}
}
