package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is the identity of a session (agent, account, session id, child id; and the workspace where the session id is
// not a UUID and may therefore be used twice).
type Key struct {
	Agent     string `json:"agent"`
	Account   string `json:"account,omitempty"` // state folder and agent id, where the agent can have several
	Session   string `json:"session"`
	Child     string `json:"child,omitempty"`     // sub-agent id; empty for a main session
	Workspace string `json:"workspace,omitempty"` // only when Session is no UUID
}

// IsUUID says whether a session id is unique by its form.
func IsUUID(id string) bool {
	if len(id) != 36 {
		return false
	}

	for i := range len(id) {
		c := id[i] | 0x20 // letters in lower case
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := id[i] >= '0' && id[i] <= '9' || c >= 'a' && c <= 'f'
		if dash != (id[i] == '-') || !dash && !hex {
			return false
		}
	}

	return true
}

// NewKey builds the key of a main session; workspace is dropped when the id is unique without it.
func NewKey(agent, account, session, workspace string) Key {
	if IsUUID(session) {
		workspace = ""
	}
	return Key{Agent: agent, Account: account, Session: session, Workspace: workspace}
}

// Parent is the key of the main session; for a main session it is the key itself.
func (k Key) Parent() Key {
	k.Child = ""
	return k
}

// String is for people and logs: agent/session, with the child when there is one. It is not unique; Dir is.
func (k Key) String() string {
	s := k.Agent + "/" + k.Session
	if k.Child != "" {
		s += "/" + k.Child
	}
	return s
}

// Dir is the session's folder below "sessions", two path elements: agent and id. Any bytes in the key are safe, and no
// two keys share one: what joins and cuts the parts ("%00c.", "%-") is nothing that encoding them can give.
func (k Key) Dir() string {
	id := encodeName(k.Session)
	if k.Child != "" {
		id += "%00c." + encodeName(k.Child)
	}
	if k.Account != "" {
		id += "%00a." + encodeName(k.Account)
	}
	if k.Workspace != "" {
		id += "%00w." + shortHash(k.Workspace)
	}

	return encodeName(k.Agent) + "/" + cutName(id)
}

const maxName = 100 // bytes of one folder name

// encodeName keeps [a-z0-9._-] and writes every other byte, and a leading dot, as %XX. A NUL is %z: %00 joins parts.
func encodeName(s string) string {
	if s == "" {
		return "%"
	}

	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.' && i > 0:
			b.WriteByte(c)
		case c == 0:
			b.WriteString("%z")
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}

	return cutName(b.String())
}

func cutName(s string) string {
	if len(s) <= maxName {
		return s
	}
	const mark = "%-"
	return s[:maxName-len(mark)-16] + mark + shortHash(s)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
