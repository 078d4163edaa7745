package journal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

// TestFormat holds the bytes of the format: old journals stay readable.
func TestFormat(t *testing.T) {
	got := hex.EncodeToString(record{7, []byte("{}")}.appendTo(header{prev: 6, high: 9, dropped: 2}.appendTo(nil)))
	want := "62656c61796a6c01" + "0600000000000000" + "0900000000000000" + "0200000000000000" + "ffb8ed3e" + "02000000" + "9cb5047d" + "0700000000000000" + "7b7d"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzRecord: what can be read is written as the same bytes, and anything else is an error.
func FuzzRecord(f *testing.F) {
	f.Add(record{1, []byte(`{"a":1}`)}.appendTo(nil))
	f.Add(record{1 << 40, nil}.appendTo(nil))
	f.Add(make([]byte, 40))
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, in []byte) {
		rec, n, err := decodeRecord(in)
		if err != nil {
			if !errors.Is(err, errShort) && !errors.Is(err, errDamaged) {
				t.Errorf("unknown error %v", err)
			}
			return
		}

		if out := rec.appendTo(nil); !bytes.Equal(out, in[:n]) {
			t.Errorf("read %x, wrote %x", in[:n], out)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(header{1, 2, 3}.appendTo(nil))
	f.Add([]byte(magic + "\x02"))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, err := decodeHeader(in)
		if err != nil {
			return
		}
		if out := h.appendTo(nil); !bytes.Equal(out, in[:headerSize]) {
			t.Errorf("read %x, wrote %x", in[:headerSize], out)
		}
	})
}

// FuzzSegment: any bytes as the newest segment, or before a good one, open; numbers go on above all that was read; and
// the first and the second reading agree.
func FuzzSegment(f *testing.F) {
	good := header{}.appendTo(nil)
	for seq := uint64(1); seq < 4; seq++ {
		good = record{seq, []byte(payload(seq))}.appendTo(good)
	}

	f.Add(good)
	f.Add(append(bytes.Clone(good), make([]byte, 50)...))
	f.Add(good[:len(good)-3])
	f.Add(good[headerSize:])
	f.Fuzz(func(t *testing.T, in []byte) {
		m := withSegments(t, map[uint64][]byte{1: in})
		before, _ := scan2(t, m)
		j := open(t, m, Options{Ahead: -1})
		for i, seq := range before {
			if seq > j.opened || i > 0 && seq <= before[i-1] {
				t.Errorf("records %v, and numbers go on after %d", before, j.opened)
			}
		}

		stop := run(j)
		seq := put(t, j, 1)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if after, _ := scan2(t, m); len(after) != len(before)+1 || after[len(before)] != seq {
			t.Errorf("records %v, then %d, then there was %v", before, seq, after)
		}
	})
}
