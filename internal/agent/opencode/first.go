package opencode

import (
	"context"
	"database/sql"
	"errors"

	"belay/checkpoint"
)

// firstSight maps the head of a session that was never read, up to its first prompt, and gives the event at which its
// newest part begins.
func (p *page) firstSight(ctx context.Context, m *mapper, end int64) (int64, error) {
	asked := func() bool {
		n := len(p.Entries)
		return n > 0 && p.Entries[n-1].Kind == checkpoint.EntryUser
	}

	head, err := p.events(ctx, m, 0, headRows, asked)
	if err != nil || head >= end {
		return head, err
	}

	from, err := p.window(ctx, end)
	if err != nil || from <= head {
		return head, err
	}

	err = p.tx.QueryRowContext(ctx,
		`select coalesce(sum(octet_length(data)), 0) from event where aggregate_id = ? and seq >= ? and seq < ?`,
		p.session, head, from).Scan(&p.Skipped)
	return from, err
}

// window walks backward to where the newest part begins: at a prompt before which enough are seen, or at the prompt of
// a compaction; or where it is large enough.
func (p *page) window(ctx context.Context, end int64) (int64, error) {
	rows, err := p.tx.QueryContext(ctx, `select seq, octet_length(data),
		case when type = 'message.updated.1' and octet_length(data) < ? then data end
		from event where aggregate_id = ? and seq < ? order by seq desc`, pageBytes, p.session, end)
	if err != nil {
		return 0, err
	}

	asks := map[string]bool{}
	compacted := false // a summary was met: the window ends with the prompt that it answers
	last := ""         // the prompt that is the first of the window
	from, size, walked := end, int64(0), 0
	err = each(rows, func(scan func(...any) error) error {
		var seq, bytes int64
		var data sql.RawBytes
		if err := scan(&seq, &bytes, &data); err != nil {
			return err
		}
		if size += bytes; size >= pageBytes && from < end || walked >= leastRows && p.tx.Over() {
			return errEnough
		}

		walked++
		var e envelope
		var info messageInfo
		if data != nil && decode(data, &e) == nil && decode(e.Info, &info) == nil && info.ID != "" {
			full := len(asks) >= windowAsks || compacted && last != ""
			switch {
			case info.Role == "user" && full && info.ID != last:
				return errEnough
			case info.Role == "user":
				asks[info.ID] = true
				if compacted || len(asks) >= windowAsks {
					last = info.ID
				}

			case info.summarises():
				compacted = true
			}
		}

		from = seq
		return nil
	})

	if err != nil && !errors.Is(err, errEnough) {
		return 0, err
	}
	if last == "" {
		return from, nil
	}

	// Records of the turn before may stand between that prompt's first one and its predecessor's last.
	var first sql.NullInt64
	err = p.tx.QueryRowContext(ctx, `select min(seq) from event
		where aggregate_id = ? and seq >= ? and type = 'message.updated.1' and json_valid(data)
		and json_extract(data, '$.info.id') = ?`, p.session, from, last).Scan(&first)
	if err != nil || !first.Valid {
		return from, err
	}

	return first.Int64, nil
}
