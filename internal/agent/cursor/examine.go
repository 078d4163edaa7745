package cursor

import (
	"context"

	"belay/internal/agent"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into an agent transcript.
func (*Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	return repair.Lines(ctx, src.Path, talk{}, seen)
}

// talk is what a transcript is like: messages in order, without ids, results or a header. Equal ones may follow each other,
// and no call is known to have ended. The program itself was not run: what it minds is not known.
type talk struct{}

func (talk) Agent() string     { return name }
func (talk) Keys() []string    { return []string{"role"} }
func (talk) ParentKey() string { return "" }
func (talk) Chained() bool     { return false }

func (talk) Fact(data []byte) (repair.Fact, bool) {
	var rec struct {
		Role string `json:"role"`
	}
	if len(data) == 0 || data[0] != '{' || lines.Decode(data, &rec) != nil {
		return repair.Fact{}, false
	}
	return repair.Fact{Talk: rec.Role == "user" || rec.Role == "assistant"}, true
}

func (talk) Header(string, []byte, [][]byte) ([]byte, error)     { return nil, repair.ErrNoHeader }
func (talk) Close([]byte, repair.Call, string) ([]byte, string)  { return nil, "" }
func (talk) Recall([]byte, repair.Result, string, string) []byte { return nil }
func (talk) Minds(repair.Action) string                          { return "" }
