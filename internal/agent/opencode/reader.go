package opencode

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/sqlite"
)

// Bounds of one Read.
const (
	pageRows   = 2000
	pageBytes  = 4 << 20
	maxRow     = 16 << 20 // a record over this is passed over, and counted
	leastRows  = 200      // that are read even on a machine so busy that the time of a view is over
	headRows   = 200      // first sight: where the first prompt is looked for
	windowAsks = 20       // first sight: prompts in the newest part
)

// cursor is the JSON form of checkpoint.Cursor: the event from which to go on; or, for a session without events, the
// time of the newest row of its tables and how many of that very time were read.
type cursor struct {
	Next  int64 `json:"n"`
	Table bool  `json:"t,omitempty"`
	Time  int64 `json:"m,omitempty"`
	Same  int   `json:"s,omitempty"`
	Sight int64 `json:"f,omitempty"` // what stands before it is first sight still
}

// reader implements checkpoint.Transcript.
type reader struct {
	db      *sqlite.DB
	session string
	mapper
	last checkpoint.Cursor // what the mapper's state belongs to
}

// openTranscript gives a reader for one session of a database. A child is a session of its own there. Without a
// session's id the newest session is meant.
func openTranscript(src agent.Source) checkpoint.Transcript {
	r := &reader{db: sqlite.Open(strings.TrimSuffix(src.Path, "-wal")), session: src.Session}
	if src.Child != "" {
		r.session = src.Child
	}
	return r
}

func (r *reader) Close() error { return r.db.Close() }

// Read implements checkpoint.Transcript.
func (r *reader) Read(
	ctx context.Context, from checkpoint.Cursor, opt checkpoint.ReadOptions,
) (checkpoint.Batch, error) {
	b := checkpoint.Batch{Cursor: from}
	if err := ctx.Err(); err != nil {
		return b, err
	}

	var c cursor
	known := from != "" && json.Unmarshal([]byte(from), &c) == nil && c.Next >= 0
	before := r.mapper
	if !known || from != r.last {
		before = mapper{}
	}

	err := r.db.View(ctx, func(tx *sqlite.Tx) error {
		p := &page{tx: tx, session: r.session}
		r.mapper = before // the view may start over
		r.mapper.store = p
		if err := p.read(ctx, &r.mapper, c, known, opt.Whole); err != nil {
			return err
		}

		b = p.Batch
		return nil
	})

	r.mapper.store = nil
	if err != nil {
		r.last = ""
		return checkpoint.Batch{Cursor: from}, fmt.Errorf("read session %q: %w", r.session, err)
	}

	r.last = b.Cursor
	return b, nil
}

// page is one Read: the Batch in the making, and the view of the database from which it is made.
type page struct {
	checkpoint.Batch
	tx       *sqlite.Tx
	session  string
	messages map[string]messageInfo // that were asked for
}

func (p *page) read(ctx context.Context, m *mapper, c cursor, known, whole bool) error {
	p.messages = map[string]messageInfo{}
	end, err := p.begin(ctx)
	if err != nil {
		return err
	}

	p.First = !known || c.Next < c.Sight
	if end == 0 || c.Table {
		return p.readTables(ctx, m, c)
	}
	if known && c.Next > end { // the database was put back to an earlier state
		p.Entries = append(p.Entries, checkpoint.Entry{Op: checkpoint.Reset})
		c.Next, c.Sight = 0, 0
	}

	if !known && !whole {
		if c.Next, err = p.firstSight(ctx, m, end); err != nil {
			return err
		}
	}

	next, err := p.events(ctx, m, c.Next, pageRows, nil)
	if err != nil {
		return err
	}

	p.More = next < end
	if !known {
		c.Sight = end // a view that ends early leaves the rest of first sight to the next Read: it is as old
	}
	if next >= c.Sight {
		c.Sight = 0
	}

	p.Cursor = encode(cursor{Next: next, Sight: c.Sight})
	return nil
}

func encode(c cursor) checkpoint.Cursor {
	data, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cursor has no JSON form: %v", err)) // numbers and booleans always have one
	}
	return checkpoint.Cursor(data)
}

// begin finds the session, and the number after its last event; 0 when there are none.
func (p *page) begin(ctx context.Context) (end int64, err error) {
	tables, err := p.tables(ctx)
	if err != nil {
		return 0, err
	}
	if !tables["session"] {
		return 0, fmt.Errorf("no table of sessions: %w", fs.ErrNotExist) // it is being made, or another program's
	}

	if !isSession(p.session) {
		err = p.tx.QueryRowContext(ctx,
			`select id from session where parent_id is null order by time_updated desc limit 1`).Scan(&p.session)
		if err != nil {
			return 0, absent(err)
		}
	}

	if tables["event"] {
		err = p.tx.QueryRowContext(ctx, `select coalesce(max(seq), -1) + 1 from event where aggregate_id = ?`,
			p.session).Scan(&end)
		if err != nil || end > 0 {
			return end, err
		}
	}

	var found string
	return 0, absent(p.tx.QueryRowContext(ctx, `select id from session where id = ?`, p.session).Scan(&found))
}

// isSession says whether a word can be the id of a session. Who names a database alone may call it by any.
func isSession(id string) bool { return strings.HasPrefix(id, "ses_") }

// absent says in the words of the interface that there is no such session.
func absent(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fs.ErrNotExist
	}
	return err
}

func (p *page) tables(ctx context.Context) (map[string]bool, error) {
	rows, err := p.tx.QueryContext(ctx,
		`select name from sqlite_master where type = 'table' and name in ('session', 'event')`)
	if err != nil {
		return nil, err
	}

	found := map[string]bool{}
	err = each(rows, func(scan func(...any) error) error {
		var name string
		defer func() { found[name] = true }()
		return scan(&name)
	})

	return found, err
}

// each goes through rows and closes them.
func each(rows *sql.Rows, fn func(scan func(...any) error) error) error {
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// stored is one row of the event table.
type stored struct {
	seq  int64
	typ  string
	data []byte
	size int64
}

// events maps the rows from a number on, until enough is read, the time of the view is over, or stop says so; it gives
// the number after the last of them.
func (p *page) events(ctx context.Context, m *mapper, from int64, most int, stop func() bool) (int64, error) {
	rows, err := p.tx.QueryContext(ctx,
		`select seq, type, case when octet_length(data) <= ? then data end, octet_length(data)
		from event where aggregate_id = ? and seq >= ? order by seq limit ?`, maxRow, p.session, from, most)
	if err != nil {
		return from, err
	}

	var list []stored
	bytes := int64(0)
	err = each(rows, func(scan func(...any) error) error {
		var s stored
		if err := scan(&s.seq, &s.typ, &s.data, &s.size); err != nil {
			return err
		}

		list = append(list, s)
		if bytes += s.size; bytes >= pageBytes || len(list) >= leastRows && p.tx.Over() {
			return errEnough
		}

		return nil
	})

	if err != nil && !errors.Is(err, errEnough) {
		return from, err
	}

	for i, s := range list {
		if i >= leastRows && p.tx.Over() || i > 0 && stop != nil && stop() {
			break
		}
		p.event(ctx, m, s)
		from = s.seq + 1
	}

	return from, nil
}

// errEnough ends a walk through rows.
var errEnough = errors.New("enough was read")

func (p *page) event(ctx context.Context, m *mapper, s stored) {
	if s.data == nil {
		p.Losses.Oversized++
		return
	}

	entries, ok := m.event(ctx, s.typ, s.data)
	if !ok {
		p.bad(s.seq, s.size)
		return
	}

	p.Entries = append(p.Entries, entries...)
}

func (p *page) bad(number, size int64) {
	p.Losses.Add(checkpoint.Losses{BadLines: 1,
		Bad: []checkpoint.BadLine{{Line: number, Bytes: size, Why: "no record"}}})
}

// message implements store.
func (p *page) message(ctx context.Context, id string) (messageInfo, bool) {
	if info, ok := p.messages[id]; ok {
		return info, true
	}

	var data []byte
	if p.tx.QueryRowContext(ctx, `select data from message where id = ? and octet_length(data) <= ?`, id, maxRow).
		Scan(&data) != nil {
		return messageInfo{}, false // removed, or the tables are of another form: the part alone says too little
	}

	info, ok := row(data, func(m *messageInfo) { m.ID = id })
	if ok {
		p.messages[id] = info
	}

	return info, ok
}

// parts implements store.
func (p *page) parts(ctx context.Context, message string) []part {
	rows, err := p.tx.QueryContext(ctx,
		`select id, data from part where message_id = ? and octet_length(data) <= ? order by id limit 100`,
		message, pageBytes)
	if err != nil {
		return nil
	}

	var list []part
	err = each(rows, func(scan func(...any) error) error {
		var id string
		var data []byte
		if err := scan(&id, &data); err != nil {
			return err
		}
		if v, ok := row(data, func(v *part) { v.ID, v.MessageID = id, message }); ok {
			list = append(list, v)
		}

		return nil
	})

	if err != nil {
		return nil
	}

	return list
}

// removed implements store: the tables have forgotten the message, the log of events has not.
func (p *page) removed(ctx context.Context, message string) []string {
	rows, err := p.tx.QueryContext(ctx, `select distinct json_extract(data, '$.part.id') from event
		where aggregate_id = ? and type = 'message.part.updated.1' and json_valid(data)
		and json_extract(data, '$.part.messageID') = ? limit 1000`, p.session, message)
	if err != nil {
		return nil
	}

	var list []string
	err = each(rows, func(scan func(...any) error) error {
		var id sql.NullString
		err := scan(&id)
		if id.String != "" {
			list = append(list, id.String)
		}
		return err
	})

	if err != nil {
		return nil
	}

	return list
}
