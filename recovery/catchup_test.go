package recovery

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"belay/checkpoint"
)

// script is a transcript that gives prepared batches.
type script struct {
	batches []checkpoint.Batch
	err     error // after the batches
	stuck   bool  // the last batch says for ever that there is more
	reads   int
}

func (s *script) Read(_ context.Context, from checkpoint.Cursor, _ checkpoint.ReadOptions) (checkpoint.Batch, error) {
	s.reads++
	if len(s.batches) == 0 {
		if s.stuck {
			return checkpoint.Batch{Cursor: from, More: true}, nil
		}
		return checkpoint.Batch{}, s.err
	}

	b := s.batches[0]
	s.batches = s.batches[1:]
	return b, nil
}

func (s *script) Close() error { return nil }

func said(id string, cursor checkpoint.Cursor, more bool) checkpoint.Batch {
	return checkpoint.Batch{
		Entries: []checkpoint.Entry{{ID: id, Kind: checkpoint.EntryAssistant, Text: id}},
		Cursor:  cursor,
		More:    more,
		Losses:  checkpoint.Losses{BadLines: 1},
	}
}

func TestCatchUp(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		t      *script
		gone   bool
		err    error
		texts  int
		cursor checkpoint.Cursor
	}{
		{"one batch", &script{batches: []checkpoint.Batch{said("a", "1", false)}}, false, nil, 1, "1"},
		{"several", &script{batches: []checkpoint.Batch{said("a", "1", true), said("b", "2", true), said("c", "3", false)}}, false, nil, 3, "3"},
		{"not there", &script{err: fs.ErrNotExist}, true, nil, 0, "0"},
		{"gone in the middle", &script{batches: []checkpoint.Batch{said("a", "1", true)}, err: fs.ErrNotExist}, true, nil, 1, "1"},
		{"not readable", &script{batches: []checkpoint.Batch{said("a", "1", true)}, err: broken}, false, broken, 1, "1"},
		{"a reader that never ends", &script{batches: []checkpoint.Batch{said("a", "1", true)}, stuck: true}, false, nil, 1, "1"},
	} {
		s := checkpoint.NewState(testKey)
		s.Cursor = "0"
		gone, err := CatchUp(context.Background(), s, c.t, checkpoint.ReadOptions{}, noon)
		if gone != c.gone || !errors.Is(err, c.err) || (err != nil) != (c.err != nil) {
			t.Errorf("%s: got gone %v, error %v; want %v, %v", c.name, gone, err, c.gone, c.err)
		}

		if len(s.Messages) != c.texts || s.Cursor != c.cursor || s.Losses.BadLines != c.texts {
			t.Errorf(
				"%s: got %d messages, cursor %q, %d bad lines; want %d, %q, %d", c.name, len(s.Messages),
				s.Cursor, s.Losses.BadLines, c.texts, c.cursor, c.texts,
			)
		}
	}
}
