package dumplings

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
	"belay/internal/transcript/sqlite"
	"belay/internal/transcript/wholefile"
)

// maxHistory is the largest history of a row that is read: it is in memory as a whole, and is read under a lock.
const maxHistory = 32 << 20

// tableForm knows the store's one table by what made it, which stands in a database's first page.
var tableForm = lazyre.New(
	`(?i)CREATE TABLE (?:IF NOT EXISTS )?["` + "`" + `\[]?sessions["` +
		"`" + `\]]?\s*\(\s*["` + "`" + `\[]?key["` + "`" + `\]]?\s+TEXT[^;]*\bhistory\b`,
)

// table reads the conversation of one row.
type table struct {
	src agent.Source
	db  *sqlite.DB
}

func openTable(src agent.Source) checkpoint.Transcript {
	return &table{src: src, db: sqlite.Open(src.Path)}
}

// Close lets the database go.
func (t *table) Close() error { return t.db.Close() }

// row is what is read of a session.
type row struct {
	key, meta, config, history string
	large                      bool
}

// Read implements checkpoint.Transcript.
func (t *table) Read(
	ctx context.Context,
	from checkpoint.Cursor,
	opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	none := checkpoint.Batch{Cursor: from}
	if err := ctx.Err(); err != nil {
		return none, err
	}

	var r row
	err := t.db.View(ctx, func(tx *sqlite.Tx) (err error) {
		r, err = t.row(ctx, tx)
		return err
	})

	switch {
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, sqlite.ErrBusy):
		return none, nil // not saved yet, or being saved: the next change tells
	case err != nil:
		return none, fmt.Errorf("read session %q: %w", t.src.Session, err)
	case r.large:
		return wholefile.TooLarge(from), nil
	}

	b, err := wholefile.ReadFrom(ctx, strings.NewReader(r.history), t.walk(r), from, opt)
	if err != nil {
		return none, fmt.Errorf("read session %q: %w", t.src.Session, err)
	}

	return b, nil
}

// unnamed says that nobody said which session is meant: a file that is named alone lends the session its own name.
func (t *table) unnamed() bool {
	base := filepath.Base(t.src.Path)
	return t.src.Session == "" || t.src.Session == strings.TrimSuffix(base, filepath.Ext(base))
}

// row reads the session's row; when nobody said which, the one that was saved last.
func (t *table) row(ctx context.Context, tx *sqlite.Tx) (r row, err error) {
	const what = "select key, coalesce(meta, ''), coalesce(config, ''), " +
		"coalesce(length(cast(history as blob)), 0) from sessions "
	var size int64
	err = tx.QueryRowContext(ctx, what+`where key = ?`, t.src.Session).Scan(&r.key, &r.meta, &r.config, &size)
	if errors.Is(err, sql.ErrNoRows) && t.unnamed() {
		err = tx.QueryRowContext(ctx, what+`order by saved_at desc limit 1`).Scan(&r.key, &r.meta, &r.config, &size)
	}
	if err != nil {
		return r, err
	}
	if r.large = size > maxHistory; r.large {
		return r, nil
	}

	err = tx.QueryRowContext(ctx, `select coalesce(history, '') from sessions where key = ?`, r.key).Scan(&r.history)
	return r, err
}

// walk reads the row's history: wholefile.Walk. It is whole, as its writer's transaction was.
func (t *table) walk(r row) wholefile.Walk {
	var m meta
	var fields struct {
		Format json.RawMessage `json:"format_version"`
		UUID   string          `json:"agent_uuid"`
		Name   string          `json:"agent_name"`
		Model  string          `json:"model_name"`
	}

	for _, text := range []string{r.meta, r.config} {
		_ = lines.Decode([]byte(text), &fields) // what says nothing leaves the fields empty
	}

	m.uuid, m.name, m.model = wholefile.Ident(fields.UUID), wholefile.Ident(fields.Name), wholefile.Ident(fields.Model)
	m.format = strings.Trim(string(fields.Format), `"`)
	return func(ctx context.Context, in io.Reader, give func(wholefile.Item) error) (wholefile.About, error) {
		foreign := func() string {
			if r.key == t.src.Session {
				return ""
			}
			return wholefile.Ident(r.key)
		}

		h := newHistory(give, foreign)
		if m.format != "" && m.format != formatVersion {
			return h.about, fmt.Errorf("%w %q", ErrVersion, m.format)
		}

		data, err := io.ReadAll(in)
		if err != nil {
			return h.about, err
		}

		for line := range bytes.Lines(data) {
			if err := ctx.Err(); err != nil {
				return h.about, err
			}
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if err := h.line(bytes.Clone(line)); err != nil {
				return h.about, err
			}
		}

		h.about.Head = m.head(t.src.Session)
		if id := foreign(); id != "" && len(h.about.Head) > 0 {
			h.about.Head[0].Session = id
		}

		return h.about, nil
	}
}
