package query

import (
	"context"
	"errors"
	"fmt"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs"
)

// Shown is what `belay show` tells of one session.
type Shown struct {
	Session     SessionStatus        `json:"session"`
	Checkpoints []checkpoint.Meta    `json:"checkpoints"`
	Number      uint64               `json:"number,omitempty"` // of the one shown
	Text        string               `json:"text,omitempty"`   // its file, as it is
	State       *checkpoint.State    `json:"state"`
	Damaged     []string             `json:"damaged,omitempty"`
	Children    []checkpoint.Child   `json:"children,omitempty"`
	Messages    []checkpoint.Message `json:"-"`
	Planted     []string             `json:"planted,omitempty"` // Folder.Planted
}

// Show reads one session and one of its checkpoints: the newest whole one when number is 0.
func (f Folder) Show(ctx context.Context, n state.Name, number uint64) (Shown, error) {
	s, err := f.pick(ctx, Question{Name: n})
	if err != nil {
		return Shown{}, err
	}

	out := Shown{
		Session: StatusOf(s, s.LastEvent), State: s, Children: s.Children, Messages: s.Messages, Planted: f.Planted(s),
	}
	store, err := f.Dir.OpenStore()
	if err != nil {
		return out, err
	}

	defer store.Close() // nothing is written through it
	if out.Checkpoints, err = store.List(ctx, s.Key); err != nil {
		return out, err
	}

	for _, m := range out.Checkpoints {
		if number != 0 && m.Number != number {
			continue
		}

		data, err := store.Get(ctx, s.Key, m.Number)
		if err == nil {
			_, err = checkpoint.DecodeIn(s.Key.Dir(), data)
		}
		if errors.Is(err, vfs.ErrUnsafe) || errors.Is(err, checkpoint.ErrForeign) {
			continue // Planted names it
		}
		if err != nil {
			out.Damaged = append(out.Damaged, fmt.Sprintf("checkpoint %d: %v", m.Number, err))
			continue
		}

		out.Number, out.Text = m.Number, string(data)
		return out, nil
	}

	if number != 0 {
		return out, fmt.Errorf("checkpoint %d of %s: %w", number, s.Key, checkpoint.ErrNotFound)
	}

	return out, nil
}
