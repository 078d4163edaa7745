package opencode

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"

	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/transcript/sqlite"
)

const defaultMost = 20

// databases are those of this machine: one for each release channel, unless the environment names another.
func (a *Agent) databases() []string {
	var list []string
	if a.db != "" {
		list = append(list, a.db)
	}

	if a.data != "" {
		found, err := filepath.Glob(filepath.Join(a.data, "opencode*.db"))
		if err == nil { // else the folder's own name has the form of a pattern
			list = append(list, found...)
		}
	}

	slices.Sort(list)
	return slices.Compact(list)
}

// Locate finds sessions in the databases of this machine, newest first. The project under which opencode files a
// session is not asked for.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	if q.Most <= 0 {
		q.Most = defaultMost
	}

	var all []agent.Found
	var errs []error
	for _, path := range a.databases() {
		found, err := locate(ctx, path, q)
		all, errs = append(all, found...), append(errs, err)
	}

	slices.SortStableFunc(all, func(a, b agent.Found) int { return b.Changed.Compare(a.Changed) })
	if len(all) > 0 {
		return all[:min(len(all), q.Most)], nil // a database that cannot be read hides only what is in it
	}

	return nil, errors.Join(errs...)
}

// maxSessions bounds a search through one database.
const maxSessions = 5000

func locate(ctx context.Context, path string, q agent.Query) (list []agent.Found, err error) {
	db := sqlite.Open(path)
	defer func() { err = errors.Join(err, db.Close()) }()
	var all []agent.Found
	err = db.View(ctx, func(tx *sqlite.Tx) error {
		all = nil
		rows, err := tx.QueryContext(ctx, `select id, directory, time_updated from session
			where (?1 = '' and parent_id is null or id = ?1)
			order by time_updated desc limit ?2`, q.Session, maxSessions)
		if err != nil {
			return err
		}

		return each(rows, func(scan func(...any) error) error {
			f := agent.Found{Source: agent.Source{Path: path}}
			var updated sql.NullFloat64
			err := scan(&f.Session, &f.Workspace, &updated)
			f.Changed = stamp(updated.Float64)
			all = append(all, f)
			return err
		})
	})

	targets := map[string]string{} // links are followed once, and not while the database is held
	for _, f := range all {
		dir, known := targets[f.Workspace]
		if !known {
			dir = realPath(f.Workspace)
			targets[f.Workspace] = dir
		}
		if f.Workspace = dir; q.Workspace == "" || dir == q.Workspace {
			list = append(list, f)
		}
		if len(list) >= q.Most {
			break
		}
	}

	return list, err
}

// sessionForm is the form of opencode's session ids: a time and random letters.
var sessionForm = lazyre.New(`ses_[0-9a-f]{12}[0-9A-Za-z]{14}`)

// Recognise says whether a file begins as a database of opencode does. Its schema may lie far behind; ids of sessions
// stand near the beginning once there is one.
func (a *Agent) Recognise(head []byte) agent.Score {
	return agent.MineIf(bytes.HasPrefix(head, []byte(sqlite.Header)) && sessionForm().Match(head))
}

// Watch names the database and its log.
func (a *Agent) Watch(path string) []string { return []string{path, path + "-wal"} }
