package pi

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"belay/checkpoint"
	"belay/internal/transcript/lines"
)

// Whatever a file holds: reading ends without an error, the cursor stands after a newline, and all text is fit to keep.
func FuzzRead(f *testing.F) {
	for _, glob := range []string{"testdata/openclaw/*.jsonl", "testdata/pi/*.jsonl"} {
		files, err := filepath.Glob(glob)
		if err != nil {
			f.Fatal(err)
		}

		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, uint16(len(data)/2))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		cut = uint16(min(int(cut), len(data)))
		path := filepath.Join(t.TempDir(), "fuzz.jsonl")
		put(t, path, string(data[:cut]))
		tr := open(t, path)
		b := readAll(t, tr, "", checkpoint.ReadOptions{})
		add(t, path, string(data[cut:]))
		for _, opt := range []checkpoint.ReadOptions{{}, {Final: true}} {
			b, err := tr.Read(context.Background(), b.Cursor, opt)
			if err != nil {
				t.Fatal(err)
			}

			c, known := lines.ParseCursor[state](b.Cursor)
			if off := c.Pos.Off; !known || off > int64(len(data)) || off > 0 && data[off-1] != '\n' {
				t.Fatalf("cursor %q is not after a newline", b.Cursor)
			}

			for _, e := range b.Entries {
				for _, s := range []string{
					e.ID, e.Text, e.Input, e.Output, e.Call, e.Name, e.Workspace, e.Session, e.Model,
				} {
					if !utf8.ValidString(s) || bytes.ContainsAny([]byte(s), "\x00\x1b\r") ||
						len(s) > checkpoint.CutText {
						t.Fatalf("%+v holds what is not fit to keep", e)
					}
				}
			}
		}
	})
}

// The first stage accepts every object that encoding/json accepts, and finds the same members.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ {"b":"\"}"} , 2 ] , "c":null } `, `{"a\u0041":"x","a":{"b":[]}}`, `{"a":"\\"}`,
		`{"a":tru}`, `[1]`, `{"a":1}x`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got := map[string][]byte{}
		ok := fields(data, func(key, value []byte) { got[string(key)] = value })
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) != nil || want == nil {
			return
		}
		if !ok || len(got) != len(want) {
			t.Fatalf("%q: found %d members (%v), want %d", data, len(got), ok, len(want))
		}

		for k, v := range want {
			if utf8.ValidString(k) && !bytes.Contains([]byte(k), []byte("\uFFFD")) &&
				!bytes.Equal(bytes.TrimSpace(v), got[k]) {
				t.Errorf("%q: member %q is %q, want %q", data, k, got[k], v)
			}
		}
	})
}
