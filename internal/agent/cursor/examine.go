package cursor

import (
	"context"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into an agent transcript: messages in order, without ids, results or a header. Equal ones may follow
// each other, and no call is known to have ended. The program itself was not run: what its loader needs is not known.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	return repair.Lines(ctx, src.Path, repair.Form{Agent: name, Keys: format.Keys, Fact: fact}, seen)
}

func fact(data []byte) (repair.Fact, bool) {
	var rec struct {
		Role string `json:"role"`
	}
	if lines.Decode(data, &rec) != nil {
		return repair.Fact{}, false
	}
	return repair.Fact{Talk: rec.Role == "user" || rec.Role == "assistant"}, true
}
