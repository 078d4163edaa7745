package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"belay/internal/agent"
	"belay/internal/jsontext"
	"belay/internal/vfs"
)

// ours is an agent whose hooks are as short as can be.
var ours = Spec{Agent: "one", Unit: time.Second, Events: []Event{{Name: "Start"}, {Name: "Stop"}}}

var ourPaths = agent.Paths{Hook: "/belay-hook"}

// named puts a real command in the place of "own".
func named(text string) string { return strings.ReplaceAll(text, `"own `, `"/belay-hook one `) }

// TestMerge: what is the user's stays byte for byte, as the user sets it.
func TestMerge(t *testing.T) {
	for _, tt := range []struct{ name, text, merged string }{
		{"nothing", "", "{\n  \"hooks\": {\n    \"Start\": [\n      {\n        \"hooks\": [\n          {\n            \"command\": \"own Start\"\n          }\n        ]\n      }\n    ],\n" +
			"    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \"command\": \"own Stop\"\n          }\n        ]\n      }\n    ]\n  }\n}\n"},
		{"one line", `{"a":1,"hooks":{"Stop":[{"hooks":[{"command":"user"}]}]}}`,
			`{"a":1,"hooks":{"Stop":[{"hooks":[{"command":"user"}]},{"hooks":[{"command":"own Stop"}]}],"Start":[{"hooks":[{"command":"own Start"}]}]}}`},
		{"tabs and windows", "{\r\n\t\"x\": [ ]\r\n}\r\n", "{\r\n\t\"x\": [ ],\r\n\t\"hooks\": {\r\n\t\t\"Start\": [\r\n\t\t\t{\r\n\t\t\t\t\"hooks\": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t\"command\": \"own Start\"\r\n\t\t\t\t\t}\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t],\r\n" +
			"\t\t\"Stop\": [\r\n\t\t\t{\r\n\t\t\t\t\"hooks\": [\r\n\t\t\t\t\t{\r\n\t\t\t\t\t\t\"command\": \"own Stop\"\r\n\t\t\t\t\t}\r\n\t\t\t\t]\r\n\t\t\t}\r\n\t\t]\r\n\t}\r\n}\r\n"},
		{"an older one of ours", `{"hooks":{"Stop":[{"hooks":[{"command":"/old/belay-hook one Stop"},{"command":"user"}]}],"Start":[{"hooks":[{"command":"own Start"}]}]}}`,
			`{"hooks":{"Stop":[{"hooks":[{"command":"user"}]},{"hooks":[{"command":"own Stop"}]}],"Start":[{"hooks":[{"command":"own Start"}]}]}}`},
	} {
		want := named(tt.merged)
		got, err := ours.Merge([]byte(named(tt.text)), ourPaths)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v\nwant %q", tt.name, got, err, want)
		}
		if again, err := ours.Merge(got, ourPaths); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s: the second time %q, %v", tt.name, again, err)
		}
	}
	for text, want := range map[string]error{
		`[]`: jsontext.ErrNoObject, `{,}`: jsontext.ErrNoObject, `{"hooks":[]}`: ErrForeignForm,
		`{"hooks":{"Stop":1}}`: ErrForeignForm,
	} {
		if _, err := ours.Merge([]byte(text), ourPaths); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", text, err, want)
		}
	}
}

func TestHandlersTellTheirPlaces(t *testing.T) {
	text := `{"hooks":{"Stop":[{"hooks":[{"command":"user"}]}, {"matcher":"m","hooks":[{"command":"user"},{"command":"own Stop"}]}]}}`
	list, err := ours.Handlers([]byte(named(text)), "Stop")
	if err != nil || len(list) != 1 || list[0].Group != 1 || list[0].Index != 1 ||
		string(list[0].Text) != named(`{"command":"own Stop"}`) ||
		!bytes.Contains(list[0].GroupText, []byte(`"m"`)) {
		t.Errorf("got %+v, %v, want the one of ours", list, err)
	}
}

func putFile(k Files, f File, next, bare string) error {
	_, err := k.Put(f, []byte(next), []byte(bare), "", false)
	return err
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
			err = putFile(k, f, next, "old")
		}
		if err != nil || !strings.Contains(f.note(), target) {
			t.Fatalf("change: %v, note %q", err, f.note())
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
	if err := putFile(k, f, "mine", ""); !errors.Is(err, ErrChanged) {
		t.Errorf("another writer came between: %v, want %v", err, ErrChanged)
	}
}

// FuzzMerge: merging twice is merging once, and taking ours out again leaves what the user's text means.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{
		"", "{}", "\ufeff{}\r\n", usual,
		`{"hooks":{"Stop":[{"hooks":[{"command":"/belay-hook one Stop"}]}],"Stop":[]}}`,
		`{"hooks":{},"hooks":{"Start":[]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before, err := ours.Strip(text)
		if err != nil {
			return
		}

		next, err := ours.Merge(text, ourPaths)
		if err != nil {
			return
		}
		if again, err := ours.Merge(next, ourPaths); err != nil || !bytes.Equal(again, next) {
			t.Errorf("%q: the second time %q, %v", next, again, err)
		}

		after, err := ours.Strip(next)
		if err != nil ||
			!jsontext.JSON.Blank(text) && meaning(before) != nil &&
				!reflect.DeepEqual(meaning(before), meaning(after)) {
			t.Errorf("%q: after all %q, %v, want the meaning of %q", text, after, err, before)
		}
	})
}

const usual = "{\n  \"model\": \"x\",\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"command\": \"user\"}]}\n    ]\n  }\n}\n"

// meaning is what a reader of JSON sees, without the lists and objects that taking out may have emptied.
func meaning(text []byte) map[string]any {
	var m map[string]any
	_ = json.Unmarshal(bytes.TrimPrefix(text, []byte(jsontext.BOM)), &m)
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
