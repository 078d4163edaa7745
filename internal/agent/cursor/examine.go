package cursor

import (
	"context"

	"belay/internal/agent"
	"belay/internal/examine"
	"belay/internal/jsonl"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into an agent transcript.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*examine.Examined, error) {
	return examine.Lines(ctx, src.Path, talk{}, seen)
}

// talk is what a transcript is like: messages in order, without ids, results or a header. Equal ones may follow each other,
// and no call is known to have ended. The program itself was not run: what it minds is not known.
type talk struct{}

func (talk) Agent() string     { return name }
func (talk) Keys() []string    { return []string{"role"} }
func (talk) ParentKey() string { return "" }
func (talk) Chained() bool     { return false }

func (talk) Fact(data []byte) (examine.Fact, bool) {
	var rec struct {
		Role string `json:"role"`
	}
	if len(data) == 0 || data[0] != '{' || jsonl.Decode(data, &rec) != nil {
		return examine.Fact{}, false
	}
	return examine.Fact{Talk: rec.Role == "user" || rec.Role == "assistant"}, true
}

func (talk) Header(string, []byte, [][]byte) ([]byte, error)      { return nil, examine.ErrNoHeader }
func (talk) Close([]byte, examine.Call, string) ([]byte, string)  { return nil, "" }
func (talk) Recall([]byte, examine.Result, string, string) []byte { return nil }
func (talk) Minds(examine.Action) string                          { return "" }
