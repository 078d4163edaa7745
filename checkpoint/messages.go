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
	s.retask()
}

// retask lets the task follow the prompts, unless it was set.
func (s *State) retask() {
	if !s.TaskSet {
		s.Task, _ = Shorten(s.taskFromPrompts(), keepUserBytes)
	}
}

// forget takes a message back, with what was derived from it.
func (s *State) forget(num uint64) {
	for _, m := range s.Messages {
		if m.Num != num {
			continue
		}

		s.drop(num)
		s.News++
		if m.Role != RoleUser {
			return
		}

		if s.Title == title(m.Text) {
			s.Title = ""
			for _, o := range s.Messages {
				if o.Role == RoleUser && s.Title == "" {
					s.Title = title(o.Text)
				}
			}
		}

		s.retask()
		return
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

// replyWindow is how many of the newest replies are looked through for the same words of the other witness.
const replyWindow = 12

// addReply folds in words of the model. A Stop brings the last answer before the file has it: the two are one message.
func (s *State) addReply(m Message, inFile bool) {
	m.Role, m.Hash, m.InFile = RoleAssistant, textHash(m.Text), inFile
	if o := s.message(m.ID); o != nil && (m.Group == "" || o.Hash == m.Hash) {
		s.rewrite(o, m.Text) // read again
		return
	}

	twin, group := s.twin(m), s.group(m)
	switch {
	case !inFile && twin != nil: // the file was quicker than the hook, or the hook came twice
		return
	case twin != nil && group == nil: // the file catches up with the hook
		twin.InFile, twin.ID, twin.Group = true, m.ID, m.Group
		s.rewrite(twin, m.Text)
		return

	case twin != nil: // the hook told of a later record of a message that is here already
		s.drop(twin.Num)
		group = s.group(m)
	}

	if group == nil {
		s.insert(m)
		return
	}
	if group.Cut || strings.Contains(group.Text, m.Text) {
		return // read again
	}

	group.Text, _ = Shorten(group.Text+"\n"+m.Text, CutText)
	group.Hash = m.Hash // a Stop names the last block alone
	s.News++
	s.pruneMessages()
}

// twin is the other witness's form of a reply: in the same turn, else, for what the file brings, the oldest such.
func (s *State) twin(m Message) *Message {
	var best *Message
	for i, seen := len(s.Messages)-1, 0; i >= 0 && seen < replyWindow; i-- {
		o := &s.Messages[i]
		if o.Role != RoleAssistant {
			continue
		}

		seen++
		switch {
		case o.Hash != m.Hash || o.InFile && m.InFile:
		case o.Turn == m.Turn:
			return o
		case m.InFile:
			best = o
		}
	}

	return best
}

// group is the message in several records that m goes on.
func (s *State) group(m Message) *Message {
	for i, seen := len(s.Messages)-1, 0; m.InFile && m.Group != "" && i >= 0 && seen < replyWindow; i-- {
		o := &s.Messages[i]
		if o.Role != RoleAssistant {
			continue
		}
		if seen++; o.Group == m.Group {
			return o
		}
	}
	return nil
}

// message finds a message by its id in the transcript.
func (s *State) message(id string) *Message {
	for i := range s.Messages {
		if id != "" && s.Messages[i].ID == id {
			return &s.Messages[i]
		}
	}
	return nil
}

// rewrite gives a message the words that its transcript has now. The same words change nothing, and never make a
// message that was shortened long again.
func (s *State) rewrite(m *Message, text string) {
	hash := textHash(text)
	if text == "" || hash == m.Hash {
		return
	}
	if m.Role == RoleUser && s.Title == title(m.Text) {
		s.Title = title(text)
	}

	m.Text, m.Hash, m.Cut = text, hash, false
	s.News++
	s.pruneMessages()
	s.retask()
}

// insert puts a message where the conversation has it: what the file tells of a turn comes before what only a hook told
// of the same turn's end or of later turns.
func (s *State) insert(m Message) {
	if o := s.message(m.ID); o != nil { // an upsert
		s.rewrite(o, m.Text)
		return
	}

	s.MsgSeq++
	s.News++
	m.Num = s.MsgSeq
	if m.Hash == 0 {
		m.Hash = textHash(m.Text)
	}

	at, turn := len(s.Messages), s.turnIndex(m.Turn)
	for m.InFile && at > 0 {
		o := s.Messages[at-1]
		if there := s.turnIndex(o.Turn); o.InFile || there < turn || there == turn && o.Role == RoleUser {
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
