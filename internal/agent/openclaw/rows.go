package openclaw

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"hash/fnv"
	"io/fs"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"

	"belay/internal/transcript/lines"
	"belay/internal/transcript/sqlite"
)

const (
	// rowSize is what a row counts in offsets: a record has about 1 KB, so that the windows of lines.Reader, which are
	// meant in bytes, mean about as much here.
	rowSize   = 1 << 10
	pieceRows = 500     // of one look into the database
	pieceMax  = 1 << 20 // bytes of one look, about
	maxRow    = lines.MaxLine
	noRows    = math.MaxInt64 // a place behind every row
)

// errNoTable: a database of the file era, or of another program.
var errNoTable = errors.New("database holds no transcripts")

// rows are the records of one session in a database. Each look is a read transaction of its own, short whatever the
// session holds; the generation of the session's rows says whether looks belong together.
type rows struct {
	path, session string
	db            *sqlite.DB
	unzip         *zstd.Decoder

	thawed     []row // of the cold archive that the present call reads
	thawedHash string
}

func openRows(path, session string) *rows {
	return &rows{path: path, session: session, db: sqlite.Open(path)}
}

// Close lets go of a private copy of the database, if one was made.
func (r *rows) Close() error { return r.db.Close() }

// piece is what one look found.
type piece struct {
	version uint64 // of session and generation
	last    int64  // number of the newest row; -1 when there is none
	rows    []row
}

type row struct {
	seq    int64
	text   []byte // nil when it is packed, or too large
	packed []byte
}

// Read implements lines.Source: whole rows from a position on.
func (r *rows) Read(
	ctx context.Context, from lines.Pos, opt lines.Options, fn func(lines.Line) bool,
) (_ lines.Span, err error) {
	defer r.letGo(&err)
	span := lines.Span{Pos: from}
	most := opt.Max
	if most <= 0 {
		most = lines.ReadMax
	}

	version, began := from.Head, from.Off > 0
	for size := int64(0); ; {
		p, err := r.look(ctx, span.Pos.Off/rowSize, true)
		if err != nil {
			return lines.Span{Pos: from}, err
		}

		switch {
		case began && !span.Changed && size == 0 && (p.version != version || span.Pos.Off > (p.last+1)*rowSize):
			// Rows were rewritten, or are fewer: reading starts over at the first.
			span.Changed, span.Pos, began = true, lines.Pos{}, false
			if opt.Changed != nil {
				opt.Changed()
			}
			continue
		case began && p.version != version:
			span.More = true // rewritten since the last look: the next Read sees that
			return span, nil
		}

		version, began = p.version, true
		for _, row := range p.rows {
			line := r.line(row, &span)
			goOn := len(line.Data) == 0 || fn(line)
			span.Pos = lines.Pos{Off: line.End, Line: line.Num, Head: version}
			if size += int64(len(line.Data)) + 1; !goOn || size >= most {
				span.More = row.seq < p.last
				return span, nil
			}
		}

		if len(p.rows) == 0 || p.rows[len(p.rows)-1].seq >= p.last {
			return span, nil
		}
	}
}

// line makes a row into what its line would be. One that cannot be unpacked, or is too large, is counted and empty.
func (r *rows) line(w row, span *lines.Span) lines.Line {
	line := lines.Line{Data: w.text, Off: w.seq * rowSize, End: (w.seq + 1) * rowSize, Num: w.seq + 1}
	switch {
	case w.packed != nil:
		text, err := r.unpack(w.packed)
		if err != nil {
			line.Data = w.packed
			lines.CountBad(&span.Losses, line, "a packed record that cannot be unpacked")
			text = nil // a part of it is no record
		}
		line.Data = text
	case w.text == nil:
		span.Losses.Oversized++
	}

	line.Data = bytes.TrimSpace(line.Data)
	return line
}

func (r *rows) unpack(packed []byte) ([]byte, error) {
	if r.unzip == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRow))
		if err != nil {
			return nil, err
		}
		r.unzip = d
	}
	return r.unzip.DecodeAll(packed, nil)
}

// Backward implements lines.Source: the rows before end, newest first.
func (r *rows) Backward(ctx context.Context, end, limit int64, fn func(lines.Line) bool) (err error) {
	defer r.letGo(&err)
	var version uint64
	for size := int64(0); end > 0 && size < limit; {
		p, err := r.look(ctx, end/rowSize, false)
		if err != nil {
			return err
		}
		if version != 0 && p.version != version || len(p.rows) == 0 {
			return nil // there is nothing to find at this place any more
		}

		version = p.version
		for _, row := range p.rows {
			line := r.line(row, &lines.Span{}) // reading forward counts what is bad
			end = line.Off
			size += int64(len(line.Data)) + 1
			if len(line.Data) > 0 && !fn(line) {
				return nil
			}
		}
	}

	return nil
}

// At implements lines.Source.
func (r *rows) At(ctx context.Context, off int64) (_ lines.Pos, err error) {
	defer r.letGo(&err)
	p, err := r.look(ctx, noRows, true)
	return lines.Pos{Off: off, Head: p.version}, err
}

// Size implements lines.Source: where the row after the newest will begin.
func (r *rows) Size(ctx context.Context) (_ int64, err error) {
	defer r.letGo(&err)
	p, err := r.look(ctx, noRows, true)
	return (p.last + 1) * rowSize, err
}

// look reads a bounded number of rows: those from a number on, or those before it, newest first. A session without rows
// is fs.ErrNotExist.
func (r *rows) look(ctx context.Context, at int64, forward bool) (p piece, err error) {
	var cold []archive
	err = r.db.View(ctx, func(tx *sqlite.Tx) error {
		if p, err = r.ask(tx, at, forward); err == nil && p.last < 0 {
			cold, err = r.archives(tx, r.session)
		}
		return err
	})

	if err == nil && len(cold) > 0 && r.session != "" {
		p, err = r.fromArchive(cold[0], p, at, forward)
	}
	if errors.Is(err, errNoTable) || err == nil && p.last < 0 {
		return p, fs.ErrNotExist
	}

	return p, err
}

// letGo removes the private copy, if the looks of one call needed one: the next call must see what came since.
func (r *rows) letGo(err *error) {
	r.thawed = nil
	*err = errors.Join(*err, r.db.Close())
}

func (r *rows) ask(tx *sqlite.Tx, at int64, forward bool) (piece, error) {
	p := piece{last: -1}
	columns, err := columnsOf(tx, "transcript_events")
	if err != nil {
		return p, err
	}
	if !slices.Contains(columns, "event_json") {
		return p, errNoTable
	}

	generation, err := r.generation(tx)
	if err != nil {
		return p, err
	}

	h := fnv.New64a()
	h.Write([]byte(r.session + "\x00" + generation)) // cannot fail
	p.version = h.Sum64()
	var last sql.NullInt64
	if err := tx.QueryRow("select max(seq) from transcript_events where session_id = ?", r.session).
		Scan(&last); err != nil || !last.Valid {
		return p, err
	}

	p.last = last.Int64
	packed := "null"
	if slices.Contains(columns, "event_zstd") {
		packed = "iif(length(event_zstd) <= ?3, event_zstd, null)"
	}

	which := "seq >= ?2 order by seq"
	if !forward {
		which = "seq < ?2 order by seq desc"
	}

	list, err := tx.Query("select seq, iif(octet_length(event_json) <= ?3, event_json, null), "+packed+
		" from transcript_events where session_id = ?1 and "+which+" limit ?4", r.session, at, maxRow, pieceRows)
	if err != nil {
		return p, err
	}

	defer list.Close() // its error is that of Err
	for size := 0; list.Next(); {
		var w row
		if err := list.Scan(&w.seq, &w.text, &w.packed); err != nil {
			return p, err
		}

		p.rows = append(p.rows, w)
		if size += len(w.text) + len(w.packed); size >= pieceMax || tx.Over() {
			return p, nil
		}
	}

	return p, list.Err()
}

// generation names the present writing of a session's rows: it changes with every rewrite.
func (r *rows) generation(tx *sqlite.Tx) (generation string, err error) {
	columns, err := columnsOf(tx, "transcript_rewrite_watermarks")
	if err != nil || !slices.Contains(columns, "generation") {
		return "", err
	}

	err = tx.QueryRow("select generation from transcript_rewrite_watermarks where session_id = ?", r.session).
		Scan(&generation)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}

	return generation, err
}

// columnsOf names the columns of a table; none when there is no such table.
func columnsOf(tx *sqlite.Tx, table string) ([]string, error) {
	list, err := tx.Query("select name from pragma_table_info(?)", table)
	if err != nil {
		return nil, err
	}

	defer list.Close() // its error is that of Err
	var names []string
	for list.Next() {
		var n string
		if err := list.Scan(&n); err != nil {
			return nil, err
		}
		names = append(names, n)
	}

	return names, list.Err()
}

func hasTable(ctx context.Context, path string) bool {
	db := sqlite.Open(path)
	defer db.Close() // a copy in the temporary folder at the most
	found := false
	err := db.View(ctx, func(tx *sqlite.Tx) error {
		columns, err := columnsOf(tx, "transcript_events")
		found = slices.Contains(columns, "event_json")
		return err
	})

	return err == nil && found
}
