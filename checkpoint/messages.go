package checkpoint

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Role of a Message.
type Role string

const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"    // only in answers to `--roles tool`, made from the ledger
	RoleSummary   Role = "summary" // the agent's own summary at a compaction
)

// Message is one thing said. Num grows in the order in which belay learned of messages; the list's order is the
// conversation's.
type Message struct {
	Num    uint64    `json:"num"`
	ID     string    `json:"id,omitempty"`    // in the transcript
	Group  string    `json:"group,omitempty"` // one message in several records
	Role   Role      `json:"role"`
	At     time.Time `json:"at,omitzero"`
	Turn   int       `json:"turn,omitempty"`
	Text   string    `json:"text"`
	Hash   uint64    `json:"hash"`              // of the text before it was shortened
	InFile bool      `json:"in_file,omitempty"` // the transcript holds it too
	Cut    bool      `json:"cut,omitempty"`     // shortened when it was no longer among the newest
}

// Mark that stands where a text was shortened.
const shortened = " […] "

// Shorten cuts a text to at most limit bytes at rune borders and keeps its head and its tail; it says whether it did.
func Shorten(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	if limit <= len(shortened) {
		return headBytes(s, limit), true
	}
	room := limit - len(shortened)
	head := headBytes(s, room*2/3)
	return head + shortened + tailBytes(s, room-len(head)), true
}

func headBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func tailBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// userMessage is the prompt of a turn, if it is still kept.
func (s *State) userMessage(turn int) *Message {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if m := &s.Messages[i]; m.Role == RoleUser && m.Turn == turn {
			return m
		}
	}
	return nil
}

func (s *State) addUser(m Message) {
	m.Role = RoleUser
	s.insert(m)
	if s.Title == "" {
		s.Title = title(m.Text)
	}
	if !s.TaskSet {
		s.Task = s.taskFromPrompts()
	}
}

// taskFromPrompts is the newest prompt over 20 characters that is no command, else the newest.
func (s *State) taskFromPrompts() string {
	newest := ""
	for i := len(s.Messages) - 1; i >= 0; i-- {
		m := s.Messages[i]
		if m.Role != RoleUser {
			continue
		}
		if newest == "" {
			newest = m.Text
		}
		if utf8.RuneCountInString(m.Text) > 20 && !strings.HasPrefix(m.Text, "/") && !strings.HasPrefix(m.Text, "!") {
			return m.Text
		}
	}
	return newest
}

// title is a prompt's beginning, cut at a word.
func title(prompt string) string {
	const most = 60
	t := strings.Join(strings.Fields(headBytes(prompt, 4*most)), " ")
	if utf8.RuneCountInString(t) <= most {
		return t
	}
	runes := []rune(t)[:most]
	cut := string(runes)
	if i := strings.LastIndexByte(cut, ' '); i > most/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// addReply folds in words of the model. A Stop brings the last answer before the file has it: the two are one message.
func (s *State) addReply(m Message, inFile bool) {
	m.Role, m.Hash = RoleAssistant, textHash(m.Text)
	m.InFile = inFile
	var group, twin *Message
	for i, seen := len(s.Messages)-1, 0; i >= 0 && seen < 12; i-- {
		o := &s.Messages[i]
		if o.Role != RoleAssistant {
			continue
		}
		seen++
		if inFile && m.Group != "" && o.Group == m.Group && group == nil {
			group = o
		}
		if twin == nil && o.Hash == m.Hash && o.InFile != inFile {
			twin = o
		}
	}
	switch {
	case !inFile && twin != nil: // the file was quicker than the hook
		return
	case twin != nil && group == nil: // the file catches up with the hook
		twin.InFile, twin.ID, twin.Group = true, m.ID, m.Group
		return
	case twin != nil: // the hook told of a later record of a message that is here already
		s.drop(twin.Num)
		s.addReply(m, inFile)
		return
	case group != nil:
		group.Text, _ = Shorten(group.Text+"\n"+m.Text, CutText)
		group.Hash = m.Hash // a Stop names the last block alone
		s.News++
		return
	}
	s.insert(m)
}

// insert puts a message where the conversation has it: what the file tells of a turn comes before what only a hook told
// of the same turn's end or of later turns.
func (s *State) insert(m Message) {
	if m.ID != "" {
		for i := range s.Messages {
			if s.Messages[i].ID == m.ID { // an upsert
				s.Messages[i].Text, s.Messages[i].Hash = m.Text, textHash(m.Text)
				return
			}
		}
	}
	s.MsgSeq++
	s.News++
	m.Num = s.MsgSeq
	if m.Hash == 0 {
		m.Hash = textHash(m.Text)
	}
	at := len(s.Messages)
	for m.InFile && at > 0 {
		o := s.Messages[at-1]
		if o.InFile || o.Turn < m.Turn || o.Turn == m.Turn && (o.Role == RoleUser || m.Role == RoleUser) {
			break
		}
		at--
	}
	s.Messages = append(s.Messages, Message{})
	copy(s.Messages[at+1:], s.Messages[at:])
	s.Messages[at] = m
	s.pruneMessages()
}

func (s *State) drop(num uint64) {
	for i := range s.Messages {
		if s.Messages[i].Num == num {
			s.Messages = append(s.Messages[:i], s.Messages[i+1:]...)
			return
		}
	}
}

// pruneMessages holds the list to its bounds, newest first; words of the user outlive those of the model.
func (s *State) pruneMessages() {
	users, replies, summaries := 0, 0, 0
	kept := s.Messages[:0]
	drop := make([]bool, len(s.Messages))
	for i := len(s.Messages) - 1; i >= 0; i-- {
		m := &s.Messages[i]
		n, most, size := &replies, keepReplies, keepReplyBytes
		switch m.Role {
		case RoleUser:
			n, most, size = &users, keepUsers, keepUserBytes
		case RoleSummary:
			n, most, size = &summaries, 1, CutText
		}
		*n++
		drop[i] = *n > most
		if *n > keepWhole && len(m.Text) > size {
			m.Text, m.Cut = Shorten(m.Text, size)
		}
	}
	for i, m := range s.Messages {
		if !drop[i] {
			kept = append(kept, m)
		}
	}
	clear(s.Messages[len(kept):])
	s.Messages = kept
}
