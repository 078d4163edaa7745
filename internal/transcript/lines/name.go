package lines

import (
	"fmt"
	"hash/fnv"
	"time"
)

// ContentID names a record that has no id of its own by its bytes: equal bytes are the same record.
func ContentID(record []byte) string {
	h := fnv.New64a()
	h.Write(record) // cannot fail
	return fmt.Sprintf("x%016x", h.Sum64())
}

// ShortHash stands in a cursor for a text that only needs to be compared. It is 0 for an empty text alone.
func ShortHash(s string) uint32 {
	if s == "" {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(s)) // cannot fail
	return max(h.Sum32(), 1)
}

// Time reads a record's stamp (RFC 3339). It is zero for one that cannot be read, and for display only.
func Time(stamp string) time.Time {
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
