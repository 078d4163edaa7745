package proofs

import (
	"bytes"
	"cmp"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // writes the databases of which only the rows were kept
)

// database makes a database of a file of rows, one JSON object a line: those of one table, or each with its table's
// name. What is an object in a row is JSON text in the table.
func database(t *testing.T, table, path string) string {
	t.Helper()
	files := []string{path}
	if table == "event" { // the log is read in a database that has the other tables too
		files = append(files, filepath.Join(filepath.Dir(path), "1.18-session-message-part.jsonl"))
	}

	made := filepath.Join(t.TempDir(), "rows.sqlite")
	db, err := sql.Open("sqlite", "file:"+made+"?_pragma=synchronous(off)&_pragma=journal_mode(off)")
	if err != nil {
		t.Fatal(err)
	}

	tables := map[string][]map[string]any{}
	for _, file := range files {
		for _, row := range rowsOf(t, file) {
			name := table
			if own, ok := row["table"].(string); ok {
				name = own
				delete(row, "table")
			}
			tables[name] = append(tables[name], row)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(tables)) {
		fill(t, db, name, tables[name])
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	return made
}

func rowsOf(t *testing.T, path string) (rows []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for line := range bytes.Lines(data) {
		row := map[string]any{}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		rows = append(rows, row)
	}

	return rows
}

func fill(t *testing.T, db *sql.DB, table string, rows []map[string]any) {
	t.Helper()
	columns := map[string]bool{}
	for _, row := range rows {
		for c := range row {
			columns[c] = true
		}
	}

	names := slices.Sorted(maps.Keys(columns))
	exec := func(q string, args ...any) {
		if _, err := db.Exec(q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}

	exec(fmt.Sprintf("create table %q (%s)", table, `"`+strings.Join(names, `", "`)+`"`))
	for _, row := range rows {
		values := make([]any, len(names))
		for i, c := range names {
			values[i] = column(t, row[c])
		}
		exec(
			fmt.Sprintf("insert into %q values (%s)", table, strings.TrimSuffix(strings.Repeat("?,", len(names)), ",")),
			values...)
	}
}

// column is what a table holds for a value of a row.
func column(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		return v.String()
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	return v
}

func isDatabase(t *testing.T, path string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.HasPrefix(data, []byte("SQLite format 3\x00"))
}

// sessionsOf names the sessions of a database, which is opened as one that nobody writes to.
func sessionsOf(t *testing.T, path string) (sessions []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&immutable=1")
	if err != nil {
		t.Fatal(err)
	}

	var failed error
	for _, q := range []string{
		"select distinct session_id from transcript_events order by 1", "select id from session order by 1",
	} {
		rows, err := db.Query(q)
		if err != nil {
			failed = cmp.Or(failed, err)
			continue // another program's
		}

		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, id)
		}

		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}

	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if len(sessions) == 0 {
		t.Fatalf("%s has no sessions: %v", path, failed)
	}

	return sessions
}
