package gemini

import (
	"context"

	"belay/internal/transcript/repair"
)

// examineDocument looks into a transcript of the older form, one JSON document. One that breaks off keeps its whole
// messages when it is repaired.
func examineDocument(ctx context.Context, path string) (*repair.Examined, error) {
	d := repair.Document{Ending: "]}", Refusal: "it cannot read a document that breaks off"}
	end, err := eachMessage(path, func(m message, off int64) error {
		d.Records++
		d.Last = off
		d.Talk = d.Talk || talk(m)
		if m.Type == typeUser && isSummary(m.text()) {
			d.Compactions++
		}

		for _, t := range m.ToolCalls {
			if over, _ := t.ended(); !over {
				d.Open = append(d.Open, repair.OpenCall{ID: t.ID, Name: t.Name, Offset: off})
			}
		}

		return ctx.Err()
	})

	if err != nil {
		return nil, err
	}

	d.Torn = end.torn > 0
	return d.Whole(name, path)
}
