package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// use calls everything that works on one session.
func use(ctx context.Context, s *Store) map[string]error {
	_, listErr := s.List(ctx, testKey)
	_, getErr := s.Get(ctx, testKey, 1)
	return map[string]error{
		"Put":    s.Put(ctx, testKey, meta(9, checkpoint.Full), []byte("x")),
		"List":   listErr,
		"Get":    getErr,
		"Delete": s.Delete(ctx, testKey, 1),
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	for depth := range elements(testKey) {
		elem := filepath.Join(elements(testKey)[:depth+1]...)
		t.Run(elem, func(t *testing.T) {
			root, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
			s := Open(vfs.OS{}, root)
			mustPut(t, s, testKey, 1, checkpoint.Full, "text")
			before := tree(t, filepath.Join(root, elem))
			path := filepath.Join(root, elem)
			if err := os.Rename(path, outside); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, path); err != nil {
				t.Fatal(err)
			}

			for name, err := range use(t.Context(), s) {
				if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), path+" is a symbolic link") {
					t.Errorf("%s: got %v, want ErrUnsafe that names %s", name, err, path)
				}
			}

			if got, err := s.Sessions(t.Context()); len(got) != 0 || err != nil && !errors.Is(err, ErrUnsafe) {
				t.Errorf("sessions: got %q, %v, want none", got, err)
			}
			if err := s.Probe(t.Context(), 100); errors.Is(err, ErrUnsafe) != (depth == 0) {
				t.Errorf("probe: got %v, want ErrUnsafe only where all sessions are concerned", err)
			}
			if after := tree(t, outside); after != before {
				t.Errorf("outside the root: got\n%s\nwant\n%s", after, before)
			}
		})
	}
}

func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			b.WriteString(strings.TrimPrefix(path, dir) + "\n")
		}
		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return b.String()
}

func TestLinkInPlaceOfAFile(t *testing.T) {
	root := t.TempDir()
	s := Open(vfs.OS{}, root)
	mustPut(t, s, testKey, 1, checkpoint.Full, "text")
	dir := s.path(elements(testKey))
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, link := range []string{
		filepath.Join(dir, "000002-full.md"),
		filepath.Join(dir, ".000003-full.md"+vfs.TempSuffix),
		filepath.Join(root, sessionsName, probeName),
		filepath.Join(root, sessionsName, "."+probeName+vfs.TempSuffix),
	} {
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
	}

	if data, err := s.Get(t.Context(), testKey, 2); !errors.Is(err, ErrUnsafe) {
		t.Errorf("get through a link: got %q, %v, want ErrUnsafe", data, err)
	}
	if got := numbers(t, s, testKey); len(got) != 1 {
		t.Errorf("list: got %v, want only the plain file", got)
	}

	if err := s.Put(
		t.Context(), testKey, meta(2, checkpoint.Full), []byte("x"),
	); !errors.Is(
		err, checkpoint.ErrExists,
	) {
		t.Errorf("put where a link lies: got %v, want ErrExists", err)
	}

	mustPut(t, s, testKey, 3, checkpoint.Full, "three")
	if err := s.Probe(t.Context(), 100); err != nil {
		t.Errorf("probe: %v", err)
	}
	if got, err := os.ReadFile(victim); err != nil || string(got) != "secret" {
		t.Errorf("the link's target: got %q, %v, want it untouched", got, err)
	}
	if data, err := s.Get(t.Context(), testKey, 3); err != nil || string(data) != "three" {
		t.Errorf("get: got %q, %v, want %q", data, err, "three")
	}
}

func TestFolderOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder away")
	}

	s := Open(vfs.OS{}, t.TempDir())
	mustPut(t, s, testKey, 1, checkpoint.Full, "text")
	path := s.path(elements(testKey)[:3])
	if err := os.Chown(path, 54321, -1); err != nil {
		t.Fatal(err)
	}

	for name, err := range use(t.Context(), s) {
		if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), path+" belongs to user 54321") {
			t.Errorf("%s: got %v, want ErrUnsafe that names the folder and its owner", name, err)
		}
	}
}
