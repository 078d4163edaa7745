package socket

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"belay/internal/wire"
)

// Feed tells subscribers what happens. A slow one loses lines and is told how many. The zero value is ready.
type Feed struct {
	mu struct {
		sync.Mutex
		subscribers map[*subscriber]bool
	}
}

type subscriber struct {
	lines chan []byte
	lost  int
}

// Notice is one line of a feed: kinds, numbers and decisions, no content.
type Notice struct {
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

// Subscribe answers with a line for everything that happens until ctx ends.
func (f *Feed) Subscribe(ctx context.Context) *Answer {
	s := &subscriber{lines: make(chan []byte, 256)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.subscribers == nil {
		f.mu.subscribers = map[*subscriber]bool{}
	}

	f.mu.subscribers[s] = true

	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.subscribers, s)
	})

	return &Answer{Reply: wire.Reply{OK: true}, Stream: s.lines}
}

// Publish tells all subscribers, and waits for none.
func (f *Feed) Publish(n Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.subscribers) == 0 {
		return
	}

	n.At = time.Now().UTC()
	for s := range f.mu.subscribers {
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
