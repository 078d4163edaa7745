package openclaw

import (
	"context"

	"belay/internal/agent"
	"belay/internal/transcript/repair"
)

var _ agent.Examiner = (*Agent)(nil)

// Examine looks into a file as pi does, and into the rows of a session of a database.
func (a *Agent) Examine(ctx context.Context, src agent.Source, seen func(int64)) (*repair.Examined, error) {
	if !isDatabase(src.Path) {
		return a.Agent.Examine(ctx, src, seen)
	}
	t := a.Open(src)
	defer t.Close() // read only
	return repair.Entries(ctx, name, src.Path, t)
}
