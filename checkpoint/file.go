package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// FileFormat is the version of a checkpoint's written form.
const FileFormat = 1

// Checkpoint is one checkpoint, complete in itself: State is all that recovery needs.
type Checkpoint struct {
	Number uint64
	Level  Level
	Cause  Cause
	Reason string
	At     time.Time // when it was decided
	State  *State
	// DeltaFrom and Delta are the messages between the checkpoint before and this one.
	DeltaFrom time.Time
	Delta     []Message
	Gap       *Gap      // the degraded spell before it
	WorkTree  *WorkTree // FULL only, when the workspace is a git work tree
	Both      bool      // one FULL for both kinds: both stamps move
}

// WorkTree is what git said of the workspace.
type WorkTree struct {
	Branch  string    `json:"branch,omitempty"`
	Head    string    `json:"head,omitempty"`
	Changed []string  `json:"changed,omitempty"` // "XY path", as git status says; at most MaxChanged
	More    int       `json:"more,omitempty"`    // changed names that are not listed
	At      time.Time `json:"at,omitzero"`
	Error   string    `json:"error,omitempty"` // why it could not be told
}

// MaxChanged bounds WorkTree.Changed.
const MaxChanged = 200

// New makes the checkpoint that a decision asked for. The state is the checkpoint's own from then on.
func New(s *State, number uint64, d Decision, now time.Time) *Checkpoint {
	c := &Checkpoint{
		Number:    number,
		Level:     d.Level,
		Cause:     d.Cause,
		Reason:    d.Text,
		At:        now,
		State:     s,
		DeltaFrom: s.MarkAt,
		Gap:       s.Gap,
		Both:      d.Both,
	}

	for _, m := range s.Messages {
		if m.Num > s.MarkSeq {
			c.Delta = append(c.Delta, m)
		}
	}

	return c
}

// Taken is the bookkeeping that goes into the journal once the checkpoint is in the store.
func (c *Checkpoint) Taken() Taken {
	return Taken{Number: c.Number, Level: c.Level, Cause: c.Cause, At: c.At, Seq: c.State.Seq, News: c.State.News,
		MsgSeq: c.State.MsgSeq, Rounds: c.State.Rounds, Both: c.Both, Gap: c.Gap != nil}
}

// Restore gives the state to go on from when nothing but this checkpoint is left.
func (c *Checkpoint) Restore() *State {
	s := c.State.Clone()
	s.taken(c.Taken())
	return s
}

// Meta is what a store needs to know.
func (c *Checkpoint) Meta() Meta { return Meta{Number: c.Number, Level: c.Level, At: c.At} }

const (
	fence     = "---"
	sumPrefix = "<!-- sha256 "
	sumSuffix = " -->"
	stampForm = "2006-01-02T15:04:05.000Z"
)

// Encode writes a checkpoint down:
//
//	---
//	key: JSON value            (one a line: valid YAML)
//	_last_updated: 2026-04-01T21:45:12.123Z
//	---
//	Markdown for people
//	<!-- sha256 HEX -->        (of every byte before this line)
func (c *Checkpoint) Encode() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(fence + "\n")
	for _, kv := range c.head() {
		value, err := json.Marshal(kv.value)
		if err != nil {
			return nil, fmt.Errorf("encode checkpoint %d of %s: %s: %w", c.Number, c.State.Key, kv.key, err)
		}
		fmt.Fprintf(&b, "%s: %s\n", kv.key, printable(value))
	}

	// Unquoted: parsers of the original scripts look for it so.
	fmt.Fprintf(&b, "_last_updated: %s\n%s\n\n", c.At.UTC().Format(stampForm), fence)
	c.markdown(&b)
	b.WriteString(sumLine(b.Bytes()))
	return b.Bytes(), nil
}

// sumLine is the last line of a file that begins with body.
func sumLine(body []byte) string {
	sum := sha256.Sum256(body)
	return sumPrefix + hex.EncodeToString(sum[:]) + sumSuffix + "\n"
}

// printable escapes, in a JSON text, the characters that JSON allows raw and YAML does not: DEL, the C1 controls (one
// of them ends a line), the byte order mark and the two non-characters after U+FFFD.
func printable(value []byte) []byte {
	odd := func(r rune) bool {
		return r >= 0x7f && r <= 0x9f || r == 0xfeff || r == 0xfffe || r == 0xffff
	}
	if bytes.IndexFunc(value, odd) < 0 {
		return value
	}

	var b bytes.Buffer
	for _, r := range string(value) {
		if odd(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}

	return b.Bytes()
}

type headField struct {
	key   string
	value any
}

func (c *Checkpoint) head() []headField {
	s := c.State
	fields := []headField{
		{"format", FileFormat},
		{"number", c.Number},
		{"kind", c.Level},
		{"cause", c.Cause},
		{"reason", c.Reason},
		{
			"agent",
			s.Key.Agent,
		},
		{"session", s.Key.Session},
		{"child", s.Key.Child},
		{"parent", s.Parent},
		{"workspace", s.Workspace},
		{
			"title",
			s.Title,
		},
		{"task", s.Task},
		{"rounds", s.Rounds},
		{"began", s.Began},
		{"cursor", s.Cursor},
		{"lost", s.Losses},
		{"delta_from", c.DeltaFrom},
		{"work_tree", c.WorkTree},
		{"gap", c.Gap},
		{"both", c.Both},
		{"state", s},
	}

	kept := fields[:0]
	for _, f := range fields {
		if f.value == "" || f.value == false {
			continue
		}
		kept = append(kept, f)
	}

	return kept
}

// Decode reads a written checkpoint. A file that is not what was written, to the byte, is ErrDamaged; a newer format is
// an error of its own. Keys of the head that it does not know are passed over.
func Decode(data []byte) (*Checkpoint, error) {
	body, err := checked(data)
	if err != nil {
		return nil, err
	}

	head, ok := strings.CutPrefix(string(body), fence+"\n")
	if !ok {
		return nil, fmt.Errorf("%w: no head", ErrDamaged)
	}

	head, _, ok = strings.Cut(head, "\n"+fence+"\n")
	if !ok {
		return nil, fmt.Errorf("%w: the head has no end", ErrDamaged)
	}

	return decodeHead(head)
}

func decodeHead(head string) (c *Checkpoint, err error) {
	c = &Checkpoint{}
	format := 0
	targets := map[string]any{
		"format":     &format,
		"number":     &c.Number,
		"kind":       &c.Level,
		"cause":      &c.Cause,
		"reason":     &c.Reason,
		"state":      &c.State,
		"delta_from": &c.DeltaFrom,
		"gap":        &c.Gap,
		"both":       &c.Both,
		"work_tree":  &c.WorkTree,
	}

	for line := range strings.SplitSeq(head, "\n") {
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("%w: head line %q", ErrDamaged, headBytes(line, 60))
		}

		if key == "_last_updated" {
			if c.At, err = time.Parse(stampForm, value); err != nil {
				return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
			}
		}

		target, known := targets[key]
		if !known {
			continue
		}
		if err := json.Unmarshal([]byte(value), target); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrDamaged, key, err)
		}
		if key == "format" && format > FileFormat {
			return nil, fmt.Errorf("read checkpoint: format %d is newer than this belay's %d", format, FileFormat)
		}
	}

	if c.State == nil || c.State.Key.Agent == "" || c.State.Key.Session == "" || c.Number == 0 ||
		c.Level != Sparse && c.Level != Full {
		return nil, fmt.Errorf("%w: the head is not complete", ErrDamaged)
	}

	if c.State.Format > StateFormat {
		return nil, fmt.Errorf(
			"read checkpoint: state format %d is newer than this belay's %d", c.State.Format, StateFormat,
		)
	}

	for _, m := range c.State.Messages {
		if m.Num > c.State.MarkSeq {
			c.Delta = append(c.Delta, m)
		}
	}

	return c, nil
}

// checked gives the bytes before the checksum line, if they are what was written.
func checked(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: empty", ErrDamaged)
	}

	text, ok := bytes.CutSuffix(data, []byte(sumSuffix+"\n"))
	i := bytes.LastIndexByte(text, '\n') + 1
	if !ok || i == 0 {
		return nil, fmt.Errorf("%w: no checksum", ErrDamaged)
	}
	if !bytes.HasPrefix(text[i:], []byte(sumPrefix)) {
		return nil, fmt.Errorf("%w: no checksum", ErrDamaged)
	}
	if string(data[i:]) != sumLine(data[:i]) {
		return nil, fmt.Errorf("%w: checksum does not fit", ErrDamaged)
	}

	return data[:i], nil
}

// DecodeIn is Decode for a file in a session's folder (Key.Dir). One that is of another session was not put there by
// belay: it is ErrForeign.
func DecodeIn(dir string, data []byte) (*Checkpoint, error) {
	c, err := Decode(data)
	if err == nil && c.State.Key.Dir() != dir {
		return nil, fmt.Errorf("checkpoint of %s: %w", c.State.Key, ErrForeign)
	}
	return c, err
}

// Newest gives the newest whole checkpoint in a session's folder (Key.Dir) and how many newer ones are damaged or
// foreign; ErrNotFound when there is none. Damage in one never hides the ones before it.
func Newest(dir string, metas []Meta, get func(number uint64) ([]byte, error)) (c *Checkpoint, damaged int, err error) {
	for _, m := range metas {
		var data []byte
		if data, err = get(m.Number); err == nil {
			if c, err = DecodeIn(dir, data); err == nil {
				return c, damaged, nil
			}
		}

		if errors.Is(err, ErrNotFound) {
			continue // pruned meanwhile
		}

		damaged++
	}

	if damaged > 0 {
		return nil, damaged, fmt.Errorf("all %d checkpoints: %w", damaged, err)
	}

	return nil, 0, ErrNotFound
}
