package session

import (
	"cmp"
	"context"
	"time"

	"belay/internal/state/query"
)

// Status adds to a session's state what only the daemon knows; false when the session or ctx ended.
func (s *Session) Status(ctx context.Context) (query.SessionStatus, bool) {
	return ask(ctx, s, func(context.Context) query.SessionStatus {
		st := query.StatusOf(s.state, time.Now())
		st.ConsecutiveFailures, st.Degraded = s.failures, s.Degraded()
		st.AtRisk.Bytes = s.file.behind
		if st.Transcript != nil {
			st.Transcript.Generations, st.Transcript.MirrorError = s.file.gens, cmp.Or(
				s.file.mirrorErr, s.Mirrors.NoKey,
			)
		}

		for _, a := range s.Store.State().Aside {
			if a.Session == s.Key.Dir() {
				st.Aside = a.Reason
			}
		}

		return st
	})
}
