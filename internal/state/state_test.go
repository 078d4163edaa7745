package state

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const uuid = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"

func newDir(t *testing.T) Dir { return Dir{Root: t.TempDir(), FS: vfs.OS{}} }

// save puts a state of a session in place.
func save(t *testing.T, d Dir, key checkpoint.Key, workspace string, events ...checkpoint.Event) *checkpoint.State {
	t.Helper()
	s := checkpoint.NewState(key)
	s.Workspace = workspace
	for _, e := range events {
		e.Key = key
		s.Apply(e)
	}

	if err := d.SaveState(s); err != nil {
		t.Fatal(err)
	}

	return s
}

func prompt(text string, at time.Time) checkpoint.Event {
	return checkpoint.Event{Kind: checkpoint.EventPrompt, Text: text, At: at}
}

func TestNameMatches(t *testing.T) {
	unique := checkpoint.NewKey("a", "", uuid, "/w")
	named := checkpoint.NewKey("a", "", "main", "/w")
	child := unique
	child.Child = "c1"
	for _, c := range []struct {
		name      string
		n         Name
		k         checkpoint.Key
		workspace string
		want      bool
	}{
		{"anything", Name{}, unique, "/w", true},
		{"id alone", Name{Session: uuid}, unique, "/w", true},
		{"id from elsewhere", Name{Session: uuid, Workspace: "/other"}, unique, "/w", true},
		{"another id", Name{Session: "x"}, unique, "/w", false},
		{"another agent", Name{Agent: "b", Session: uuid}, unique, "/w", false},
		{"a child is asked for by its name", Name{Session: uuid}, child, "/w", false},
		{"and found", Name{Session: uuid, Child: "c1"}, child, "/w", true},
		{"P05 a named id belongs to its folder", Name{Session: "main", Workspace: "/w"}, named, "", true},
		{"P05 and to those below", Name{Session: "main", Workspace: "/w/sub"}, named, "", true},
		{"not to a sibling with the same beginning", Name{Session: "main", Workspace: "/w2"}, named, "", false},
		{"folder alone", Name{Workspace: "/w"}, unique, "/w", true},
		{"another folder", Name{Workspace: "/v"}, unique, "/w", false},
	} {
		if got := c.n.Matches(c.k, c.workspace); got != c.want {
			t.Errorf("%s: %+v matches %+v: %t, want %t", c.name, c.n, c.k, got, c.want)
		}
	}
}

func TestFindFoldsTheJournalIn(t *testing.T) {
	d := newDir(t)
	now := time.Now().UTC()
	key := checkpoint.NewKey("a", "", uuid, "")
	save(t, d, key, "/w", prompt("saved", now))
	j, err := journal.Open(d.FS, d.Journal(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	ctx := t.Context()
	go func() { ended <- j.Run(ctx) }()
	var last uint64
	for _, e := range []checkpoint.Event{{Key: key, Kind: checkpoint.EventPrompt, Text: "only in the journal", At: now.Add(time.Second)},
		{Key: checkpoint.NewKey("a", "", "other", "/v"), Kind: checkpoint.EventPrompt, Text: "of another", At: now}} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = j.Append(t.Context(), data); err != nil {
			t.Fatal(err)
		}
	}

	if err := j.Wait(ctx, last); err != nil {
		t.Fatal(err)
	}

	found, _, err := d.Find(ctx, Name{Session: uuid})
	if err != nil || len(found) != 1 || len(found[0].Messages) != 2 {
		t.Fatalf("found %d, %v; want one session with two messages", len(found), err)
	}

	all, _, err := d.States(ctx, nil)
	if err != nil || len(all) != 2 {
		t.Errorf("%d sessions, %v; want 2", len(all), err)
	}
	if found, _, _ := d.Find(ctx, Name{Workspace: "/w/deep/below"}); len(found) != 1 || found[0].Key != key {
		t.Errorf("from a sub-folder: %d sessions, want the one above", len(found))
	}
	if found, _, _ := d.Find(ctx, Name{Workspace: "/x"}); len(found) != 0 {
		t.Errorf("from another folder: %d sessions, want none", len(found))
	}

	t.Cleanup(func() { // the test's context has ended by now
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestABadStateFileHidesNoOther(t *testing.T) {
	d := newDir(t)
	good, bad := checkpoint.NewKey("a", "", uuid, ""), checkpoint.NewKey("a", "", "bad", "/w")
	save(t, d, good, "/w", prompt("x", time.Now()))
	save(t, d, bad, "/w", prompt("x", time.Now()))
	if err := os.WriteFile(d.stateFile(bad), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}

	found, rep, err := d.Find(t.Context(), Name{})
	if err != nil || len(found) != 1 || len(rep.Bad) != 1 {
		t.Errorf("found %d, bad %v, %v; want 1 and 1", len(found), rep.Bad, err)
	}
	if err := d.SetAside(bad); err != nil {
		t.Fatal(err)
	}
	if _, err := d.LoadState(bad); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was set aside: %v, want fs.ErrNotExist", err)
	}
}

func TestO05LinksAndOthersFilesAreNotRead(t *testing.T) {
	for name, spoil := range map[string]func(d Dir, key checkpoint.Key) error{
		"a linked file": func(d Dir, key checkpoint.Key) error {
			moved := filepath.Join(d.Root, "elsewhere.json")
			return errors.Join(os.Rename(d.stateFile(key), moved), os.Symlink(moved, d.stateFile(key)))
		},
		"a linked folder": func(d Dir, key checkpoint.Key) error {
			moved := filepath.Join(d.Root, "elsewhere")
			return errors.Join(os.Rename(d.Session(key), moved), os.Symlink(moved, d.Session(key)))
		},
		"a file of another user": func(d Dir, key checkpoint.Key) error {
			if os.Getuid() != 0 {
				return errors.ErrUnsupported
			}
			return os.Chown(d.stateFile(key), 12345, 12345)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			key := checkpoint.NewKey("a", "", uuid, "")
			save(t, d, key, "/w", prompt("x", time.Now()))
			if err := spoil(d, key); errors.Is(err, errors.ErrUnsupported) {
				t.Skip("needs root")
			} else if err != nil {
				t.Fatal(err)
			}

			if _, err := d.LoadState(key); !errors.Is(err, ErrForeign) {
				t.Errorf("LoadState = %v, want ErrForeign", err)
			}

			if name == "a linked folder" {
				if err := d.SaveState(checkpoint.NewState(key)); !errors.Is(err, ErrForeign) {
					t.Errorf("SaveState = %v, want ErrForeign: it would write outside", err)
				}
			}

			if found, _, err := d.Find(t.Context(), Name{}); err != nil || len(found) != 0 {
				t.Errorf("Find gave %d, %v; want none", len(found), err)
			}
		})
	}
}

func TestOwnClosesTheFolder(t *testing.T) {
	d := Dir{Root: filepath.Join(t.TempDir(), "state"), FS: vfs.OS{}}
	if err := os.Mkdir(d.Root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(d.Root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(d.Root, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := d.Make(); !errors.Is(err, ErrForeign) {
		t.Errorf("another user's folder: %v, want ErrForeign", err)
	}
}

// TestOwnClosesNoFolderOfOthers: a wrong --state-dir once took the rights of everybody else from /etc.
func TestOwnClosesNoFolderOfOthers(t *testing.T) {
	for what, c := range map[string]struct {
		holds string
		want  os.FileMode
		err   error
	}{
		"nothing":             {"", 0o700, nil},
		"a new file system":   {"lost+found", 0o700, nil},
		"a daemon's lock":     {"belay.lock", 0o700, nil},
		"somebody's file":     {"passwd", 0o755, ErrForeign},
		"an agent's sessions": {"sessions", 0o755, ErrForeign},
	} {
		t.Run(what, func(t *testing.T) {
			d := Dir{Root: filepath.Join(t.TempDir(), "state"), FS: vfs.OS{}}
			if err := os.Mkdir(d.Root, 0o755); err != nil {
				t.Fatal(err)
			}

			if c.holds != "" {
				if err := os.WriteFile(filepath.Join(d.Root, c.holds), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}

			if err := os.Chmod(d.Root, 0o755); err != nil { // whatever the umask is
				t.Fatal(err)
			}

			for name, open := range map[string]func() error{"Own": d.Own, "Make": d.Make} {
				if err := open(); !errors.Is(err, c.err) {
					t.Errorf("%s = %v, want %v", name, err, c.err)
				}
			}

			if info, err := os.Stat(d.Root); err != nil || info.Mode().Perm() != c.want {
				t.Errorf("mode %v, %v; want %v", info.Mode(), err, c.want)
			}
		})
	}
}

func TestRecentIsOfThisAgentAndFolder(t *testing.T) {
	d := newDir(t)
	now := time.Now()
	want := checkpoint.NewKey("a", "", uuid, "")
	save(t, d, want, "/w", prompt("x", now))
	save(t, d, checkpoint.NewKey("b", "", uuid, ""), "/w", prompt("x", now))
	save(t, d, checkpoint.NewKey("a", "", strings.Replace(uuid, "a", "b", 8), ""), "/v", prompt("talks of /w", now))
	old := checkpoint.NewKey("a", "", strings.Replace(uuid, "a", "c", 8), "")
	save(t, d, old, "/w", prompt("x", now))
	if err := os.Chtimes(d.stateFile(old), now, now.Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}

	list, err := d.Recent(t.Context(), "a", "/w", now.Add(-24*time.Hour), nil)
	if err != nil || len(list) != 1 || list[0].Key != want {
		t.Errorf("%d states, %v; want just %v", len(list), err, want)
	}

	if list, err := d.Recent(
		t.Context(), "a", "/w", now.Add(-24*time.Hour), map[string]bool{d.Session(want): true},
	); err != nil ||
		len(list) != 0 {
		t.Errorf("%d states, %v; want none beside the one in memory", len(list), err)
	}
}

func TestAccounts(t *testing.T) {
	d := newDir(t)
	for _, account := range []string{"/home/one", "/home/two"} {
		save(t, d, checkpoint.NewKey("a", account, uuid, ""), "/w")
	}

	if got := d.Accounts(checkpoint.NewKey("a", "", uuid, "")); len(got) != 2 {
		t.Errorf("accounts %v, want two", got)
	}
	if got := d.Accounts(checkpoint.NewKey("a", "", strings.Replace(uuid, "a", "b", 8), "")); len(got) != 0 {
		t.Errorf("accounts of another session: %v", got)
	}
}

func TestActiveList(t *testing.T) {
	d := newDir(t)
	if got := d.LoadActive(); got != nil {
		t.Errorf("no list: %v", got)
	}

	want := []checkpoint.Key{checkpoint.NewKey("a", "x", uuid, ""), checkpoint.NewKey("b", "", "main", "/w")}
	if err := d.SaveActive(want); err != nil {
		t.Fatal(err)
	}
	if got := d.LoadActive(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := os.WriteFile(d.Active(), []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.LoadActive(); got != nil {
		t.Errorf("a torn list: %v, want none", got)
	}
}

func TestUsage(t *testing.T) {
	d := newDir(t)
	key := checkpoint.NewKey("a", "", uuid, "")
	save(t, d, key, "/w")
	folder := filepath.Join(d.Session(key), "checkpoints")
	if err := errors.Join(
		os.Mkdir(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "000001-full.md"), make([]byte, 100), 0o600),
	); err != nil {
		t.Fatal(err)
	}

	copied := filepath.Join(d.Session(key), "transcript.jsonl.zst")
	if err := os.WriteFile(copied, make([]byte, 30), 0o600); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(filepath.Join(d.Session(key), "state.json"))
	if err != nil {
		t.Fatal(err)
	}

	list, err := d.Usage(t.Context())
	if err != nil || len(list) != 1 || list[0].Bytes != 130+info.Size() {
		t.Fatalf("usage %+v, %v; want %d bytes of one", list, err, 130+info.Size())
	}
	if got := d.Copies(key); got != 30 {
		t.Errorf("%d bytes of copies, want 30", got)
	}
	if got, ok := d.KeyOf(list[0]); !ok || got != key {
		t.Errorf("key %v, %t", got, ok)
	}
	if err := os.Remove(filepath.Join(folder, "000001-full.md")); err != nil {
		t.Fatal(err)
	}
	if got := d.Size(list[0]); got != 30+info.Size() {
		t.Errorf("%d bytes after it went, want %d", got, 30+info.Size())
	}
}
