package daemon

import (
	"context"
	"encoding/json"
	"time"

	"belay/checkpoint"
	"belay/internal/wire"
)

// subscriber gets a line for everything that happens: kinds, numbers and decisions, no content. A slow one loses lines and
// is told how many.
type subscriber struct {
	lines chan []byte
	lost  int
}

// notice is one line of op subscribe.
type notice struct {
	At       time.Time      `json:"at"`
	What     string         `json:"what"` // event, breaker
	Agent    string         `json:"agent,omitempty"`
	Session  string         `json:"session,omitempty"`
	Kind     string         `json:"kind,omitempty"`
	Seq      uint64         `json:"seq,omitempty"`
	Decision *wire.Decision `json:"decision,omitempty"`
	Lost     int            `json:"lost,omitempty"` // lines that this subscriber was too slow for
	Body     any            `json:"body,omitempty"`
}

func (d *Daemon) subscribe(ctx context.Context) *answer {
	s := &subscriber{lines: make(chan []byte, 256)}
	d.mu.Lock()
	d.mu.subs[s] = true
	d.mu.Unlock()
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.mu.subs, s)
	})
	return &answer{reply: wire.Reply{OK: true}, stream: s.lines}
}

func (d *Daemon) publishEvent(e checkpoint.Event, r result) {
	d.tell(notice{What: "event", Agent: e.Key.Agent, Session: e.Key.Session, Kind: string(e.Kind), Seq: r.seq, Decision: wireDecision(r)})
}

func (d *Daemon) publish(what string, body any) { d.tell(notice{What: what, Body: body}) }

func (d *Daemon) tell(n notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.subs) == 0 {
		return
	}
	n.At = time.Now().UTC()
	for s := range d.mu.subs {
		n.Lost = s.lost
		line, err := json.Marshal(n)
		if err != nil {
			return
		}
		select {
		case s.lines <- append(line, '\n'):
			s.lost = 0
		default:
			s.lost++
		}
	}
}
