package lines

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Rescue gives up after so many places where no record begins, or so many of them from which the line is well-formed up
// to its end.
const (
	rescueTries = 4096
	wholeTries  = 8
)

// Rescue finds the whole objects in a line that does not parse: a record behind the stub of one that a crash cut short,
// or several records on one line. An object counts when it has one of the keys. Lost says that something of the line is
// in none of them. The work is linear in the line's length.
func Rescue(line []byte, keys ...string) (records [][]byte, lost bool) {
	tries, toEnd := 0, 0
	for at, from := 0, 0; from < len(line); {
		i := bytes.Index(line[from:], []byte(`{"`))
		if i < 0 {
			return records, lost || len(bytes.Trim(line[at:], blank)) > 0
		}

		from += i
		end, bad := objectEnd(line[from:])
		if end > 0 && hasKey(line[from:from+end], keys) {
			lost = lost || len(bytes.Trim(line[at:from], blank)) > 0
			records = append(records, line[from:from+end])
			from += end
			at = from
			continue
		}

		lost = true
		tries++
		if end == 0 && bad == len(line)-from {
			toEnd++
		}
		if tries >= rescueTries || toEnd >= wholeTries {
			return records, true
		}

		// A stub breaks where the next record begins: at its brace, or just behind that when the stub ended inside a
		// string. Nothing before that place can be the beginning of a whole object.
		if end == 0 && bad < len(line)-from {
			from += max(bad-3, 1)
		} else {
			from++
		}
	}

	return records, lost
}

// objectEnd gives the length of the JSON object at the start of b, or 0 and how many bytes are well-formed.
func objectEnd(b []byte) (end, bad int) {
	var raw json.RawMessage
	err := json.Unmarshal(b, &raw)
	if err == nil {
		return len(b), 0
	}

	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return 0, 0
	}

	n := int(syntax.Offset)
	if n > 1 && n <= len(b) && json.Valid(b[:n-1]) {
		return n - 1, 0
	}

	return 0, n
}

func hasKey(record []byte, keys []string) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(record, &m) != nil {
		return false
	}

	for _, k := range keys {
		if _, ok := m[k]; ok {
			return true
		}
	}

	return false
}
