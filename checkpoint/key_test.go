package checkpoint

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// dirForm is what a folder of a session may look like, on any file system.
var dirForm = regexp.MustCompile(`^[a-z0-9_%-][A-Za-z0-9._%-]{0,99}/[a-z0-9_%-][A-Za-z0-9._%-]{0,99}$`)

func TestKeyDir(t *testing.T) {
	uuid := "11111111-1111-4111-8111-111111111111"
	tests := []struct {
		key  Key
		want string
	}{
		{Key{Agent: "claude-code", Session: uuid}, "claude-code/" + uuid},
		{Key{Agent: "pi", Session: "Main Chat"}, "pi/%4Dain%20%43hat"},
		{Key{Agent: "pi", Session: ".."}, "pi/%2E."},
		{Key{Agent: ".", Session: "."}, "%2E/%2E"},
		{Key{Agent: "pi", Session: "../../etc/passwd"}, "pi/%2E.%2F..%2Fetc%2Fpasswd"},
		{Key{Agent: "pi", Session: "a\x00b"}, "pi/a%zb"},
		{Key{}, "%/%"},
		{Key{Agent: "pi", Session: "s", Child: "c", Account: "a"}, "pi/s%00c.c%00a.a"},
	}

	for _, c := range tests {
		if got := c.key.Dir(); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.key, got, c.want)
		}
	}
}

// TestA02KeysNeverShareAFolder takes pairs that a careless encoding would put into one.
func TestA02KeysNeverShareAFolder(t *testing.T) {
	long := strings.Repeat("x", 300)
	cut := encodeName(long)
	keys := []Key{
		{
			Session: "a",
		},
		{Session: "A"},
		{Session: "%41"},
		{Session: "a "},
		{Session: ""},
		{Session: "%"},
		{Session: "."},
		{Session: "%2E"},
		{
			Session: "a",
			Child:   "b",
		},
		{Session: "a\x00c.b"},
		{Session: "a%00c.b"},
		{Session: "a", Account: "b"},
		{Session: "a", Workspace: "b"},
		{
			Session: "a",
			Child:   "b\x00a.c",
		},
		{Session: "a", Child: "b", Account: "c"},
		{Session: "a", Account: "c", Workspace: "w"},
		{Session: "a", Workspace: "w2"},
		{
			Session:   "a",
			Child:     "c",
			Account:   "d",
			Workspace: "w",
		},
		{Session: "c", Child: "a", Account: "d", Workspace: "w"},
		{
			Session: long,
		},
		{Session: cut},
		{Session: long + "y"},
		{Session: strings.ReplaceAll(cut, "%-", "-")},
		{Session: long[:83] + "-" + shortHash(long)},
		{
			Session: long,
			Child:   "b",
		},
		{Session: long, Child: "d"},
		{Session: long, Account: "b"},
		{Session: long, Child: long},
		{Session: cut, Child: cut},
		{
			Session: "\xff",
		},
		{Session: "\ufffd"},
		{Session: "é"},
		{Session: "e\u0301"},
		{Session: "a/b"},
		{Session: "a", Child: ""},
	}

	seen := map[string]Key{}
	for _, agent := range []string{"pi", "PI", "pi/x"} {
		for _, k := range keys {
			k.Agent = agent
			d := k.Dir()
			if other, ok := seen[strings.ToLower(d)]; ok && other != k {
				t.Errorf("%+v and %+v share %s", k, other, d)
			}

			seen[strings.ToLower(d)] = k
			if !dirForm.MatchString(d) {
				t.Errorf("%+v: folder %q is not safe", k, d)
			}
		}
	}
}

func TestNewKeyAndParent(t *testing.T) {
	uuid := "A1111111-1111-4111-8111-111111111111"
	if k := NewKey("pi", "acc", uuid, "/w"); k.Workspace != "" || k.Account != "acc" {
		t.Errorf("a UUID needs no workspace: got %+v", k)
	}
	if k := NewKey("pi", "", "main", "/w"); k.Workspace != "/w" {
		t.Errorf("an id that may be used twice needs its workspace: got %+v", k)
	}

	k := Key{Agent: "pi", Session: "s", Child: "c"}
	if p := k.Parent(); p != (Key{Agent: "pi", Session: "s"}) || k.Child != "c" {
		t.Errorf("parent %+v of %+v", p, k)
	}
	if got := fmt.Sprint(k); got != "pi/s/c" {
		t.Errorf("got %s, want pi/s/c", got)
	}
}

func FuzzKeyDir(f *testing.F) {
	f.Add("pi", "s", "", "", "", "pi", "s\x00c.", "", "", "")
	f.Add("..", "/", "\x00", "a\n", "w", "pi", strings.Repeat("é", 90), "%-", "%00a.", "")
	f.Add("a", strings.Repeat("x", 83)+"-0123456789abcdef", "", "", "", "a", strings.Repeat("x", 200), "", "", "")
	f.Fuzz(func(t *testing.T, a1, s1, c1, n1, w1, a2, s2, c2, n2, w2 string) {
		one := Key{Agent: a1, Session: s1, Child: c1, Account: n1, Workspace: w1}
		two := Key{Agent: a2, Session: s2, Child: c2, Account: n2, Workspace: w2}
		for _, k := range []Key{one, two} {
			d := k.Dir()
			if !dirForm.MatchString(d) || path.Clean(d) != d {
				t.Errorf("%+v: folder %q is not safe", k, d)
			}
		}

		if one != two && strings.EqualFold(one.Dir(), two.Dir()) {
			t.Errorf("%+v and %+v share %s", one, two, one.Dir())
		}
	})
}

func TestIsUUID(t *testing.T) {
	for id, want := range map[string]bool{
		"11111111-1111-4111-8111-111111111111": true, "ABCDEF01-2345-6789-abcd-ef0123456789": true,
		"": false, "main": false, "11111111-1111-4111-8111-11111111111": false,
		"11111111-1111-4111-8111-1111111111111": false,
		"11111111x1111-4111-8111-111111111111":  false, "1111111g-1111-4111-8111-111111111111": false,
		"11111111-1111-4111-8111-1111-1111111":  false,
		"\r1111111-1111-4111-8111-111111111111": false,
	} {
		if got := IsUUID(id); got != want {
			t.Errorf("IsUUID(%q) = %v, want %v", id, got, want)
		}
	}
}
