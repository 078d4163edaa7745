package repair

import (
	"context"
	"os"

	"belay/checkpoint"
)

// Entries examines a transcript that is no file of lines (a database, a document that is rewritten as a whole) by
// what its reader gives: its entries are the records. It can be told, and not repaired.
func Entries(ctx context.Context, agent, path string, t checkpoint.Transcript) (*Examined, error) {
	x := &Examined{file: path, path: path}
	x.Agent, x.File, x.Generations = agent, path, 1
	if info, err := os.Stat(path); err == nil {
		x.Bytes = info.Size()
	}

	open := map[string]OpenCall{}
	var order []string
	talks := 0
	for cursor := checkpoint.Cursor(""); ; {
		b, err := t.Read(ctx, cursor, checkpoint.ReadOptions{Final: true, Whole: true})
		if err != nil {
			return nil, err
		}

		for _, e := range b.Entries {
			switch {
			case e.Op == checkpoint.Reset:
				if cursor != "" {
					x.Generations++
				}
			case e.Op == checkpoint.Upsert:
				x.Records++
			}
			switch e.Kind {
			case checkpoint.EntryUser, checkpoint.EntryAssistant:
				talks++
			case checkpoint.EntryCompaction:
				x.Compactions++
			case checkpoint.EntryCall:
				open[e.Call] = OpenCall{ID: e.Call, Name: e.Name}
				order = append(order, e.Call)
			case checkpoint.EntryResult:
				delete(open, e.Call)
			}
		}

		l := b.Losses
		x.Bad = append(x.Bad, l.Bad...)
		x.TornBytes, x.Repeats, x.Rescued = l.Torn, x.Repeats+l.Repeats, x.Rescued+l.Rescued
		cursor = b.Cursor
		if !b.More {
			break
		}
	}

	for _, id := range order {
		if c, ok := open[id]; ok {
			x.OpenCalls = append(x.OpenCalls, c)
			delete(open, id)
		}
	}

	if talks == 0 {
		x.WhyNot = append(x.WhyNot, silent)
	}
	if n := len(x.Bad); n > 0 || x.TornBytes > 0 {
		x.WhyNot = append(x.WhyNot, "a part of it cannot be read")
	}

	x.Resumable = len(x.WhyNot) == 0
	return x, nil
}
