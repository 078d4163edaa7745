package opencode

import (
	"context"
	"errors"

	"belay/checkpoint"
)

// changed is one row of the message or the part table.
type changed struct {
	kind, id, message string
	at                int64
	data              []byte
}

// tableRows gives what changed in a session from a time on, in the order of the changes. Parts come before the message
// that ends with them.
const tableRows = `select 'a' as kind, id, message_id, time_updated as at,
		case when octet_length(data) <= ?1 then data end from part where session_id = ?2 and time_updated >= ?3
	union all
	select 'b' as kind, id, id, time_updated as at,
		case when octet_length(data) <= ?1 then data end from message where session_id = ?2 and time_updated >= ?3
	order by at, kind, id limit ?4 offset ?5`

// readTables reads a session of which there are no events: a database of a version before them, or a session that was
// brought in from another machine.
func (p *page) readTables(ctx context.Context, m *mapper, c cursor) error {
	if !c.Table { // never read, or the events are gone
		c = cursor{Table: true}
		if err := p.sessionRow(ctx, m); err != nil {
			return err
		}
	}

	rows, err := p.tx.QueryContext(ctx, tableRows, maxRow, p.session, c.Time, pageRows+1, c.Same)
	if err != nil {
		return err
	}

	var list []changed
	bytes := 0
	err = each(rows, func(scan func(...any) error) error {
		var r changed
		if err := scan(&r.kind, &r.id, &r.message, &r.at, &r.data); err != nil {
			return err
		}

		list = append(list, r)
		if bytes += len(r.data); bytes >= pageBytes || p.tx.Over() {
			return errEnough
		}

		return nil
	})

	p.More = errors.Is(err, errEnough) || len(list) > pageRows
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}

	for i, r := range list {
		if i > 0 && (i >= pageRows || p.tx.Over()) {
			p.More = true
			break
		}

		p.tableRow(ctx, m, r)
		if r.at != c.Time {
			c.Time, c.Same = r.at, 0
		}

		c.Same++
	}

	p.Cursor = encode(c)
	return nil
}

func (p *page) sessionRow(ctx context.Context, m *mapper) error {
	var s sessionInfo
	err := p.tx.QueryRowContext(ctx, `select id, directory, time_created from session where id = ?`, p.session).
		Scan(&s.ID, &s.Directory, &s.Time.Created)
	p.Entries = append(p.Entries, m.session(s)...)
	return absent(err)
}

func (p *page) tableRow(ctx context.Context, m *mapper, r changed) {
	var entries []checkpoint.Entry
	ok := false
	switch {
	case r.data == nil:
		p.Losses.Oversized++
		return
	case r.kind == "a":
		var v part
		if v, ok = row(r.data, func(v *part) { v.ID, v.MessageID = r.id, r.message }); ok {
			entries = m.part(ctx, v)
		}

	default:
		var v messageInfo
		if v, ok = row(r.data, func(v *messageInfo) { v.ID = r.id }); ok {
			entries = m.messageEntries(v)
		}
	}

	if !ok {
		p.bad(0, int64(len(r.data)))
		return
	}

	p.Entries = append(p.Entries, entries...)
}
