package pi

import (
	"encoding/json"
	"hash/fnv"
	"strconv"
	"time"
)

// Record types and roles that carry something, or that shape the tree. All others are kept as links of the tree alone.
const (
	typeHeader     = "session"
	typeMessage    = "message"
	typeModel      = "model_change"
	typeCompaction = "compaction"
	typeBranch     = "branch_summary"
	typeCustom     = "custom_message"
	typeReset      = "reset"
	typeBoundary   = "reset_boundary" // oh-my-pi's reset
	typeTitle      = "title"          // oh-my-pi's first line, which stands before the header
	typeLeaf       = "leaf"
)

// record is one line, with its members still in JSON.
type record struct {
	offset int64
	typ    string
	id     string
	parent []byte // raw; nil when the record has no such member
	target []byte // leaf: raw
	side   bool   // appendMode "side": it does not move the leaf
	stamp  []byte

	message, summary, content, customType, cwd, model []byte
}

// parse splits a line. It says whether the line has the outer form of a record: an object with a type that is a string.
func parse(line []byte, offset int64) (record, bool) {
	r := record{offset: offset}
	ok := fields(line, func(key, value []byte) {
		switch string(key) {
		case "type":
			if r.typ = text(value); r.typ == typeBoundary {
				r.typ = typeReset
			}

		case "id":
			r.id = text(value)
		case "parentId":
			r.parent = value
		case "targetId":
			r.target = value
		case "appendMode":
			r.side = text(value) == "side"
		case "timestamp":
			r.stamp = value
		case "message":
			r.message = value
		case "summary":
			r.summary = value
		case "content":
			r.content = value
		case "customType":
			r.customType = value
		case "cwd":
			r.cwd = value
		case "modelId", "model": // oh-my-pi's
			r.model = value
		}
	})

	return r, ok && r.typ != ""
}

// matters says whether a record may become entries: only then it goes through the decoder.
func (r record) matters() bool {
	switch r.typ {
	case typeHeader, typeMessage, typeModel, typeCompaction, typeBranch, typeCustom, typeReset:
		return true
	}
	return false
}

func (r record) at() time.Time {
	t, err := time.Parse(time.RFC3339Nano, text(r.stamp))
	if err != nil {
		return time.Time{}
	}
	return t
}

// name is the record's id in the transcript; one without an id is known by its place.
func (r record) name() string {
	if r.id != "" {
		return ident(r.id)
	}
	return "@" + strconv.FormatInt(r.offset, 10)
}

// message is the inside of a message record.
type message struct {
	role                        string
	stamp                       int64 // Unix milliseconds, 0 when absent
	text                        string
	calls                       []call
	callID, tool                string
	isError                     bool
	status                      string // details.status
	synthetic                   bool   // details say that the result was made up
	provider, model, stop, fail string
	origin                      string // provenance.kind
	customType                  string
	command, output             string
	exitCode                    float64
	cancelled                   bool
}

type call struct {
	id, name string
	args     []byte
	partial  string
}

func parseMessage(raw []byte) message {
	var m message
	fields(raw, func(key, value []byte) {
		switch string(key) {
		case "role":
			m.role = text(value)
		case "timestamp":
			m.stamp = int64(number(value))
		case "content":
			m.text, m.calls = parseContent(value)
		case "toolCallId":
			m.callID = text(value)
		case "toolName":
			m.tool = text(value)
		case "isError":
			m.isError = string(value) == "true"
		case "details":
			m.details(value)
		case "provider":
			m.provider = text(value)
		case "model":
			m.model = text(value)
		case "stopReason":
			m.stop = text(value)
		case "errorMessage":
			m.fail = text(value)
		case "provenance":
			m.origin = member(value, "kind")
		case "customType":
			m.customType = text(value)
		case "command":
			m.command = text(value)
		case "output":
			m.output = text(value)
		case "exitCode":
			m.exitCode = number(value)
		case "cancelled":
			m.cancelled = string(value) == "true"
		}
	})

	return m
}

func (m *message) details(raw []byte) {
	fields(raw, func(key, value []byte) {
		switch string(key) {
		case "status":
			m.status = text(value)
		case "openclawSyntheticMissingToolResult":
			m.synthetic = string(value) != "false" && string(value) != "null"
		}
	})
}

func member(obj []byte, name string) string { return text(memberRaw(obj, name)) }

func memberRaw(obj []byte, name string) (found []byte) {
	fields(obj, func(key, value []byte) {
		if string(key) == name {
			found = value
		}
	})
	return found
}

// parseContent takes the words and the calls out of a content: a string, or a list of blocks. Thinking is left out.
func parseContent(raw []byte) (words string, calls []call) {
	if len(raw) > 0 && raw[0] == '"' {
		return text(raw), nil
	}

	var b []byte
	add := func(s string) {
		if len(b) > 0 {
			b = append(b, '\n')
		}
		b = append(b, s...)
	}

	elements(raw, func(block []byte) {
		if block[0] == '"' {
			add(text(block))
			return
		}

		var kind, words string
		var c call
		fields(block, func(key, value []byte) {
			switch string(key) {
			case "type":
				kind = text(value)
			case "text":
				words = text(value)
			case "id":
				c.id = text(value)
			case "name":
				c.name = text(value)
			case "arguments":
				c.args = value
			case "partialJson", "partialArgs":
				c.partial = text(value)
			}
		})

		switch kind {
		case "text":
			add(words)
		case "image":
			add("[image]")
		case "toolCall":
			calls = append(calls, c)
		}
	})

	return string(b), calls
}

// key names a message by what it is, so that a copy with another id (a "transcript rewrite", a migration from version
// 1) has the same name: role, its own time stamp, and the call or the words. Without a time stamp it is the record's
// name.
func (m message) key(r record) string {
	if m.stamp <= 0 {
		return r.name()
	}

	h := fnv.New32a()
	write := func(s string) { _, _ = h.Write([]byte(s)) } // a hash cannot fail
	if m.callID != "" {
		write(m.callID)
	} else {
		write(m.text)
		write(m.command)
		for _, c := range m.calls {
			write(c.id)
		}
	}

	return m.role + "." + strconv.FormatInt(m.stamp, 10) + "." + strconv.FormatUint(uint64(h.Sum32()), 16)
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // a hash cannot fail
	return h.Sum64()
}

// msgTime is when a message was stored, else when it began.
func msgTime(r record, m message) time.Time {
	if t := r.at(); !t.IsZero() || m.stamp <= 0 {
		return t
	}
	return time.UnixMilli(m.stamp).UTC()
}

func jsonObject(key, value string) []byte {
	data, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		return nil // strings always have a JSON form
	}
	return data
}
