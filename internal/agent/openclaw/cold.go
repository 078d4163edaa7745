package openclaw

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/klauspost/compress/zstd"

	"belay/internal/transcript/sqlite"
)

// Cold archives: OpenClaw moves the rows of a session that was idle for long (session.maintenance.coldStorage) into one
// zstd file of JSON lines, <agent>/sessions/cold/<hash>.jsonl.zst, or for a while into a blob of the database. When the
// session goes on, OpenClaw puts them back under the same numbers, so that a cursor means the same place in both.

const (
	coldTable = "session_transcript_cold_archives"
	maxCold   = 64 << 20 // packed and unpacked: OpenClaw makes no larger one
)

// errColdArchive: an archive is not what the database says of it. Nothing of it is used.
var errColdArchive = errors.New("cold archive is damaged")

var coldName = regexp.MustCompile(`^[a-f0-9]{64}\.jsonl\.zst$`)

// archive is what the database says of one.
type archive struct {
	session, name, hash string
	changed             int64
	blob                []byte // nil when the archive is a file
}

// archives are those of one session, or of all, newest first.
func (r *rows) archives(tx *sqlite.Tx, session string) ([]archive, error) {
	columns, err := columnsOf(tx, coldTable)
	if err != nil || !slices.Contains(columns, "archive_name") {
		return nil, err
	}

	list, err := tx.Query("select c.session_id, c.archive_name, c.archive_sha256, "+
		"coalesce(w.updated_at, c.archived_at), iif(length(c.archive_blob) <= ?3, c.archive_blob, null) "+
		"from "+coldTable+" c left join session_windows w on w.session_id = c.session_id "+
		"where (?1 = '' or c.session_id = ?1) order by 4 desc limit ?2", session, lookedAt, maxCold)

	if err != nil {
		return nil, err
	}

	defer list.Close() // its error is that of Err
	var found []archive
	for list.Next() {
		var a archive
		var changed sql.NullInt64
		if err := list.Scan(&a.session, &a.name, &a.hash, &changed, &a.blob); err != nil {
			return nil, err
		}
		a.changed = changed.Int64
		found = append(found, a)
	}

	return found, list.Err()
}

// packed are the bytes of an archive.
func (r *rows) packed(a archive) ([]byte, error) {
	if a.blob != nil {
		return a.blob, nil
	}
	if !coldName.MatchString(a.name) {
		return nil, fmt.Errorf("read cold archive %q: %w", a.name, errColdArchive)
	}

	f, err := os.Open(filepath.Join(filepath.Dir(filepath.Dir(r.path)), "sessions", "cold", a.name))
	if err != nil {
		return nil, err
	}

	defer f.Close() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxCold+1))
	if err != nil {
		return nil, fmt.Errorf("read cold archive %s: %w", a.name, err)
	}

	return data, nil
}

// thaw gives the rows of an archive whose bytes have the hash that the database knows, in order.
func (r *rows) thaw(a archive) ([]row, error) {
	data, err := r.packed(a)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); len(data) > maxCold || hex.EncodeToString(sum[:]) != a.hash {
		return nil, fmt.Errorf("read cold archive %s: %w", a.name, errColdArchive)
	}

	var list []row
	err = coldRows(data, func(w row) bool {
		list = append(list, w)
		return true
	})

	if err != nil {
		return nil, fmt.Errorf("read cold archive %s: %w", a.name, err)
	}

	slices.SortStableFunc(list, func(x, y row) int { return cmp.Compare(x.seq, y.seq) })
	return list, nil
}

// coldRows calls fn for each row in the bytes of an archive, until it says no.
func coldRows(data []byte, fn func(row) bool) error {
	d, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxCold))
	if err != nil {
		return err
	}

	defer d.Close()
	in := json.NewDecoder(bufio.NewReader(io.LimitReader(d, maxCold)))
	for {
		var record struct {
			Kind string `json:"kind"`
			Row  struct {
				Seq  int64  `json:"seq"`
				Text string `json:"event_json"`
			} `json:"row"`
		}

		switch err := in.Decode(&record); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", errColdArchive, err)
		case record.Kind != "event" || record.Row.Seq < 0:
			continue // what OpenClaw works out of the events, for itself
		}

		w := row{seq: record.Row.Seq, text: []byte(record.Row.Text)}
		if len(w.text) > maxRow {
			w.text = nil
		}
		if !fn(w) {
			return nil
		}
	}
}

// fromArchive answers a look at a session whose rows were moved out. The unpacked rows are kept until the call is over.
func (r *rows) fromArchive(a archive, p piece, at int64, forward bool) (piece, error) {
	if r.thawed == nil || r.thawedHash != a.hash {
		list, err := r.thaw(a)
		if err != nil {
			return p, err
		}
		r.thawed, r.thawedHash = list, a.hash
	}

	if len(r.thawed) == 0 {
		return p, nil
	}

	p.last = r.thawed[len(r.thawed)-1].seq
	i, _ := slices.BinarySearchFunc(r.thawed, at, func(w row, at int64) int { return cmp.Compare(w.seq, at) })
	for size := 0; len(p.rows) < pieceRows && size < pieceMax; {
		if !forward {
			i--
		}
		if i < 0 || i >= len(r.thawed) {
			break
		}

		p.rows = append(p.rows, r.thawed[i])
		size += len(r.thawed[i].text)
		if forward {
			i++
		}
	}

	return p, nil
}

// firstOf is the header of an archived session; empty when it cannot be had. Its hash is not looked at: that would take
// the whole of it.
func (r *rows) firstOf(a archive) (text []byte) {
	data, err := r.packed(a)
	if err != nil {
		return nil // the session is there, its workspace is not known
	}

	_ = coldRows(data, func(w row) bool { // what came before the damage counts
		text = w.text
		return false
	})

	return text
}
