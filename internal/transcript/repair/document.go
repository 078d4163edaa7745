package repair

import (
	"os"
)

// Document is what was found in a transcript that is one JSON text: it is whole, or it breaks off.
type Document struct {
	Records     int
	Compactions int
	Open        []OpenCall
	Talk        bool
	Last        int64  // behind its last whole record; 0 when there is none
	Torn        bool   // it breaks off behind that
	Ending      string // what ends it there
	Refusal     string // what the agent does with one that breaks off
}

// Whole makes the examination of a document. One that breaks off is repaired by an end behind its last whole record.
func (d Document) Whole(agent, path string) (*Examined, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	x := &Examined{file: path, path: path, edits: []edit{}}
	x.Agent, x.File, x.Bytes, x.Generations = agent, path, info.Size(), 1
	x.Records, x.Compactions, x.OpenCalls = d.Records, d.Compactions, d.Open
	if d.Torn {
		x.TornBytes = x.Bytes - d.Last
		x.WhyNot = append(x.WhyNot, d.Refusal)
		e := edit{place: place{0, d.Last, x.TornBytes}, with: []byte(d.Ending), action: EndText,
			what: "it breaks off: it ends behind its last whole record now"}
		if d.Last == 0 {
			x.edits = nil // nothing of it can be kept
		} else {
			x.edits = append(x.edits, e)
		}

		x.Changes = []Change{{0, e.off, e.size, e.action, e.what}}
	}

	if !d.Talk {
		x.WhyNot = append(x.WhyNot, silent)
	}

	x.Resumable = len(x.WhyNot) == 0
	return x, nil
}
