package agentzero

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/wholefile"
)

// chat.json is one JSON document: the context's head, the chain of agents, each with its history as a JSON text inside
// a string, then the log. The history is read through the string, one message at a time.

const (
	typeBackground = "background"
	maxChain       = 16 // agents that are told of
	maxRecords     = 64 // how deep bulks may lie in bulks
	smallValue     = 64 << 10
	logItems       = 1000 // that the program keeps
)

// chat is one walk through a document.
type chat struct {
	src   agent.Source
	child int // the agent of the chain whose history is told
	give  func(wholefile.Item) error

	about  wholefile.About
	id     string
	mode   string // the context's profile
	own    string // the agent's, which goes before it
	agents int
	now    int            // the agent that streamed when the file was written
	names  map[int]string // profiles of subordinates
	history
}

// walk reads a chat.json: wholefile.Walk.
func walk(src agent.Source) wholefile.Walk {
	return func(ctx context.Context, in io.Reader, give func(wholefile.Item) error) (wholefile.About, error) {
		c := &chat{src: src, child: childNumber(src.Child), give: give, names: map[int]string{}}
		c.history = newHistory(func(it wholefile.Item) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if c.about.Hidden {
				return nil
			}
			return give(it)
		}, c.session)

		c.about.Stamps = map[string]time.Time{}
		err := c.document(wholefile.NewJSON(in))
		c.about.Losses = c.losses
		c.about.Head = c.head()
		return c.about, err
	}
}

// session is what the entries' Session must say: the file's own id, when that is not the one it was opened for.
func (c *chat) session() string {
	if c.id == c.src.Session {
		return ""
	}
	return c.id
}

// head is what the chat says of itself.
func (c *chat) head() []checkpoint.Entry {
	session, mode := c.session(), c.own
	if mode == "" {
		mode = c.mode
	}

	var list []checkpoint.Entry
	if session != "" || mode != "" {
		list = []checkpoint.Entry{{Kind: checkpoint.EntryMeta, Session: session, Mode: mode}}
	}
	if c.child != 0 {
		return list
	}

	// Each agent of the chain waits for the next: all up to the one that streams are at work.
	for n := 1; n < min(c.agents, maxChain); n++ {
		id, kind := childID(n), checkpoint.EntryChildEnd
		if n <= c.now {
			kind = checkpoint.EntryChildStart
		}

		list = append(
			list,
			checkpoint.Entry{
				Kind:       kind,
				ID:         string(kind) + ":" + id,
				Session:    session,
				Child:      id,
				Name:       c.names[n],
				Transcript: c.src.Path,
			},
		)
	}

	return list
}

func (c *chat) document(j *wholefile.JSON) error {
	return j.Object(func(key string) error {
		switch key {
		case "id":
			return word(j, &c.id)
		case "type":
			var kind string
			err := word(j, &kind)
			c.about.Hidden = c.about.Hidden || strings.EqualFold(kind, typeBackground)
			return err

		case "agent_profile":
			return word(j, &c.mode)
		case "agents":
			return j.Array(func() error {
				c.agents++
				return c.agent(j, c.agents-1)
			})

		case "streaming_agent":
			return integer(j, &c.now)
		case "log":
			return c.log(j)
		}
		return nil
	})
}

// agent reads one agent of the chain. Its number stands before its history; without one it is its place.
func (c *chat) agent(j *wholefile.JSON, number int) error {
	return j.Object(func(key string) error {
		switch key {
		case "number":
			return integer(j, &number)
		case "profile", "agent_profile":
			var profile string
			err := word(j, &profile)
			if number == c.child {
				c.own = profile
			} else if number > 0 && number < maxChain {
				c.names[number] = profile
			}

			return err

		case "history":
			if number == c.child {
				return c.read(j)
			}
		}
		return nil
	})
}

// read goes through a history: a string that holds JSON, as an object in no version that is known, but that costs
// nothing.
func (c *chat) read(j *wholefile.JSON) error {
	kind, err := j.Kind()
	if err != nil {
		return err
	}
	if kind != '"' {
		return c.records(j, 0)
	}

	text, err := j.Text()
	if err != nil {
		return err
	}

	inner := wholefile.NewJSON(text)
	if kind, err = inner.Kind(); err != nil || kind != '{' {
		return nil // an empty history, or what is none
	}

	return c.records(inner, 0)
}

// log takes the times of the messages, which have none themselves, and the log's id, which a reset of the chat changes.
func (c *chat) log(j *wholefile.JSON) error {
	return j.Object(func(key string) error {
		switch key {
		case "guid":
			return word(j, &c.about.Epoch)
		case "logs":
			return j.Array(func() error {
				raw, over, err := j.Value(smallValue)
				if err != nil || over { // its end, where the time stands, was not read
					return err
				}

				var item struct {
					ID   string  `json:"id"`
					Time float64 `json:"timestamp"`
				}

				if json.Unmarshal(raw, &item) == nil && item.ID != "" && len(c.about.Stamps) < 2*logItems {
					if at := seconds(item.Time); !at.IsZero() {
						c.about.Stamps[wholefile.Ident(item.ID)] = at
					}
				}

				return nil
			})
		}
		return nil
	})
}

// seconds is a time of the log's; zero for one that cannot be.
func seconds(s float64) time.Time {
	if math.IsNaN(s) || s <= 0 || s > 1e11 {
		return time.Time{}
	}
	whole, part := math.Modf(s)
	return time.Unix(int64(whole), int64(part*1e9)).UTC().Truncate(time.Millisecond)
}

// word reads a short string; a value of another type is as if absent.
func word(j *wholefile.JSON, to *string) error {
	raw, over, err := j.Value(smallValue)
	var s string
	if err == nil && !over && json.Unmarshal(raw, &s) == nil {
		*to = wholefile.Ident(s)
	}
	return err
}

func integer(j *wholefile.JSON, to *int) error {
	raw, over, err := j.Value(64)
	var n int
	if err == nil && !over && json.Unmarshal(raw, &n) == nil {
		*to = n
	}
	return err
}

// childNumber is the place in the chain that a child's id names: "A2" is agent 2. The session itself is agent 0.
func childNumber(child string) int {
	if len(child) > 1 && child[0] == 'A' {
		if n, err := strconv.Atoi(child[1:]); err == nil && n > 0 {
			return n
		}
	}

	if child != "" {
		return -1
	}

	return 0
}

func childID(number int) string {
	if number <= 0 {
		return ""
	}
	return fmt.Sprintf("A%d", min(number, 9999))
}
