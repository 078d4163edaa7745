package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"belay/internal/vfs"
)

type group struct {
	Hooks []handler `json:"hooks"`
}

type handler struct {
	Command string `json:"command"`
}

// ours are hooks whose command begins with "own".
var ours = Hooks{Events: []string{"Start", "Stop"}, Own: func(raw []byte) bool {
	var h handler
	return json.Unmarshal(raw, &h) == nil && strings.HasPrefix(h.Command, "own")
}}

func want(command string) map[string]any {
	g := group{[]handler{{command}}}
	return map[string]any{"Start": g, "Stop": g}
}

// TestMerge: what is the user's stays byte for byte, as the user sets it.
func TestMerge(t *testing.T) {
	for _, tt := range []struct{ name, text, merged string }{
		{"nothing", "", "{\n  \"hooks\": {\n    \"Start\": [\n      {\n        \"hooks\": [\n          {\n            \"command\": \"own\"\n          }\n        ]\n      }\n    ],\n" +
			"    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \"command\": \"own\"\n          }\n        ]\n      }\n    ]\n  }\n}\n"},
		{"one line", `{"a":1,"hooks":{"Stop":[{"hooks":[{"command":"user"}]}]}}`,
			`{"a":1,"hooks":{"Stop":[{"hooks":[{"command":"user"}]},{"hooks":[{"command":"own"}]}],"Start":[{"hooks":[{"command":"own"}]}]}}`},
		{"tabs and windows", "{\r\n\t\"x\": [ ]\r\n}\r\n", "{\r\n\t\"x\": [ ],\r\n\t\"hooks\": {\r\n\t\t\"Start\": [\r\n\t\t\t{\r\n\t\t\t\t\"hooks\": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t\"command\": \"own\"\r\n\t\t\t\t\t}\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t],\r\n" +
			"\t\t\"Stop\": [\r\n\t\t\t{\r\n\t\t\t\t\"hooks\": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t\"command\": \"own\"\r\n\t\t\t\t\t}\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t]\r\n\t}\r\n}\r\n"},
		{"an older one of ours", `{"hooks":{"Stop":[{"hooks":[{"command":"own old"},{"command":"user"}]}],"Start":[{"hooks":[{"command":"own"}]}]}}`,
			`{"hooks":{"Stop":[{"hooks":[{"command":"user"}]},{"hooks":[{"command":"own"}]}],"Start":[{"hooks":[{"command":"own"}]}]}}`},
	} {
		got, err := ours.Merge([]byte(tt.text), want("own"))
		if err != nil || string(got) != tt.merged {
			t.Errorf("%s: got %q, %v\nwant %q", tt.name, got, err, tt.merged)
		}
		if again, err := ours.Merge(got, want("own")); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the second time %q, %v", tt.name, again, err)
		}
	}
	for text, want := range map[string]error{`[]`: ErrNoObject, `{,}`: ErrNoObject, `{"hooks":[]}`: ErrForeignForm, `{"hooks":{"Stop":1}}`: ErrForeignForm} {
		if _, err := ours.Merge([]byte(text), map[string]any{"Stop": group{}}); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", text, err, want)
		}
	}
}

func TestHandlersTellTheirPlaces(t *testing.T) {
	text := `{"hooks":{"Stop":[{"hooks":[{"command":"user"}]}, {"matcher":"m","hooks":[{"command":"user"},{"command":"own"}]}]}}`
	list, err := ours.Handlers([]byte(text), "Stop")
	if err != nil || len(list) != 1 || list[0].Group != 1 || list[0].Index != 1 || string(list[0].Text) != `{"command":"own"}` || !bytes.Contains(list[0].GroupText, []byte(`"m"`)) {
		t.Errorf("got %+v, %v, want the one of ours", list, err)
	}
}

// TestFilesWayBack: the very bytes come back, with mode and link; only ours goes when somebody else wrote.
func TestFilesWayBack(t *testing.T) {
	dir := t.TempDir()
	k := Files{FS: vfs.OS{}, Dir: filepath.Join(dir, "state")}
	target, path := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", path); err != nil {
		t.Fatal(err)
	}
	step := func(next string) {
		t.Helper()
		f, err := k.Read(path)
		if err == nil {
			err = k.Change(f, []byte(next), []byte("old"))
		}
		if err != nil || !strings.Contains(f.Note(), target) {
			t.Fatalf("change: %v, note %q", err, f.Note())
		}
	}
	undo := func(action, text string) {
		t.Helper()
		f, err := k.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		u, err := k.Undo(f, []byte("bare"), false)
		if err == nil {
			err = k.Do(u)
		}
		got, _ := os.ReadFile(path)
		info, serr := os.Stat(target)
		if err != nil || u.Action != action || string(got) != text || serr != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("undo: %s, %v, text %q, mode %v; want %s and %q", u.Action, err, got, info.Mode(), action, text)
		}
	}
	step("one")
	step("two")
	undo("restore", "old")
	step("one")
	if err := os.WriteFile(target, []byte("somebody's"), 0o640); err != nil {
		t.Fatal(err)
	}
	undo("change", "bare")

	f, err := k.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte("faster"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := k.Change(f, []byte("mine"), nil); !errors.Is(err, ErrChanged) {
		t.Errorf("another writer came between: %v, want %v", err, ErrChanged)
	}
}

// FuzzMerge: merging twice is merging once, and taking ours out again leaves what the user's text means.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{"", "{}", "\ufeff{}\r\n", usual, `{"hooks":{"Stop":[{"hooks":[{"command":"own"}]}],"Stop":[]}}`, `{"hooks":{},"hooks":{"Start":[]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := ours.Strip(text, nil)
		if err != nil {
			return
		}
		next, err := ours.Merge(text, want("own"))
		if err != nil {
			return
		}
		if again, err := ours.Merge(next, want("own")); err != nil || !bytes.Equal(again, next) {
			t.Errorf("%q: the second time %q, %v", next, again, err)
		}
		after, err := ours.Strip(next, nil)
		if err != nil || !Blank(text) && meaning(before) != nil && !reflect.DeepEqual(meaning(before), meaning(after)) {
			t.Errorf("%q: after all %q, %v, want the meaning of %q", text, after, err, before)
		}
	})
}

const usual = "{\n  \"model\": \"x\",\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"command\": \"user\"}]}\n    ]\n  }\n}\n"

// meaning is what a reader of JSON sees, without the lists and objects that taking out may have emptied.
func meaning(text []byte) map[string]any {
	var m map[string]any
	_ = json.Unmarshal(bytes.TrimPrefix(text, []byte(BOM)), &m)
	hooks, _ := m["hooks"].(map[string]any)
	for event, list := range hooks {
		if l, ok := list.([]any); ok && len(l) == 0 {
			delete(hooks, event)
		}
	}
	if len(hooks) == 0 {
		delete(m, "hooks")
	}
	return m
}
