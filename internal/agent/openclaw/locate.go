package openclaw

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/agent/pi"
	"belay/internal/transcript/sqlite"
)

const (
	defaultMost = 20  // of Query.Most
	lookedAt    = 500 // sessions of one database: as many as OpenClaw keeps by default
)

// Locate finds sessions, newest first: those in databases, and those in files that no database has taken over.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	most := q.Most
	if most <= 0 {
		most = defaultMost
	}

	var found []agent.Found
	var failed error
	for _, path := range a.databases() {
		list, err := inDatabase(ctx, path, q)
		if err != nil {
			failed = errors.Join(failed, err) // the others may be well
		}
		found = append(found, list...)
	}

	taken := map[string]bool{}
	for _, f := range found {
		taken[f.Session] = true
	}

	files, err := a.Agent.Locate(ctx, q)
	for _, f := range files {
		if !taken[f.Session] { // what was left behind by the upgrade is old
			found = append(found, f)
		}
	}

	slices.SortStableFunc(found, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Session, y.Session))
	})
	if len(found) > 0 {
		failed = nil
	}

	return found[:min(len(found), most)], errors.Join(failed, err)
}

func (a *Agent) databases() []string {
	var list []string
	for _, state := range a.states {
		// The pattern is well formed; a state folder with a bracket in its name is passed over.
		some, _ := filepath.Glob(filepath.Join(state, "agents", "*", "agent", databaseName))
		list = append(list, some...)
	}
	return list
}

// inDatabase finds the sessions of one database by their header, which is the first row. One of the file era has none.
func inDatabase(ctx context.Context, path string, q agent.Query) (found []agent.Found, err error) {
	r := openRows(path, "")
	defer r.Close() // a private copy at the most
	var cold []archive
	err = r.db.View(ctx, func(tx *sqlite.Tx) error {
		if found, err = r.headers(tx, q); err == nil {
			cold, err = r.archives(tx, q.Session)
		}
		return err
	})

	for _, c := range cold {
		if f, ok := r.found(c.session, c.changed, r.firstOf(c), q); ok {
			found = append(found, f)
		}
	}

	return found, err
}

// found is a session with its header, when that belongs to the workspace that is asked for.
func (r *rows) found(session string, changed int64, header []byte, q agent.Query) (agent.Found, bool) {
	_, workspace, _ := pi.Header(header)
	ok := q.Workspace == "" || payload.RealPath(workspace) == payload.RealPath(q.Workspace)
	return agent.Found{
		Source:    agent.Source{Path: r.path, Session: pi.Name(session)},
		Workspace: workspace,
		Changed:   time.UnixMilli(changed).UTC(),
	}, ok
}

func (r *rows) headers(tx *sqlite.Tx, q agent.Query) ([]agent.Found, error) {
	columns, err := columnsOf(tx, "transcript_events")
	if err != nil || !slices.Contains(columns, "event_json") {
		return nil, err
	}

	packed := "null"
	if slices.Contains(columns, "event_zstd") {
		packed = "iif(length(e.event_zstd) <= 65536, e.event_zstd, null)"
	}

	// When a session changed stands in session_windows, where there is one: its own rows may be a great many.
	from, changed := "transcript_events e", "e.created_at"
	if windows, err := columnsOf(tx, "session_windows"); err != nil {
		return nil, err
	} else if slices.Contains(windows, "updated_at") {
		from, changed = "session_windows w join transcript_events e on e.session_id = w.session_id", "w.updated_at"
	}

	list, err := tx.Query(
		"select e.session_id, "+changed+", iif(octet_length(e.event_json) <= 65536, e.event_json, null), "+packed+
			" from "+from+" where e.seq = 0 and (?1 = '' or e.session_id = ?1) order by 2 desc limit ?2",
		q.Session,
		lookedAt,
	)

	if err != nil {
		return nil, err
	}

	defer list.Close() // its error is that of Err
	var found []agent.Found
	for list.Next() && !tx.Over() {
		var w row
		var session string
		var at sql.NullInt64
		if err := list.Scan(&session, &at, &w.text, &w.packed); err != nil {
			return nil, err
		}

		if w.packed != nil {
			if w.text, err = r.unpack(w.packed); err != nil {
				w.text = nil // its workspace is not known
			}
		}

		if f, ok := r.found(session, at.Int64, w.text, q); ok {
			found = append(found, f)
		}
	}

	return found, list.Err()
}
