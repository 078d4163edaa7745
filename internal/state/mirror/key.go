package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"filippo.io/age"

	"belay/internal/vfs"
)

// Opening a key.
var (
	// ErrNoKey says that a mirror is encrypted and there is no key.
	ErrNoKey = errors.New("the key of the exact mirror is not there")
	// ErrWrongKey says that a mirror was encrypted with another key than the one that is there.
	ErrWrongKey = errors.New("encrypted with another key than the one that is there")
	// ErrUnsafeKey says that others could read the key, or have put it there.
	ErrUnsafeKey = errors.New("the key of the exact mirror is not safe")
)

// keyName is the key's file. age's own program reads it.
const keyName = "mirror.key"

const maxKey = 4 << 10

// Key encrypts the batches of exact mirrors and reads them. It is used by any number of mirrors at a time.
type Key struct {
	identity *age.X25519Identity
}

// ReadKey reads the key in a folder that is for it alone. It refuses one that others could read or have put there.
func ReadKey(fsys vfs.FS, dir string) (*Key, error) {
	path := filepath.Join(dir, keyName)
	if err := errors.Join(safe(fsys, dir, fs.ModeDir), safe(fsys, path, 0)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read key %s: %w", path, ErrNoKey)
		}
		return nil, err
	}

	data, err := vfs.ReadFile(fsys, path, maxKey)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}

	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "AGE-SECRET-KEY-") && strings.HasSuffix(line, "\n") {
			if id, err := age.ParseX25519Identity(strings.TrimSpace(line)); err == nil {
				return &Key{id}, nil
			}
		}
	}

	return nil, fmt.Errorf(
		"read key %s: %w: it holds no whole key", path, ErrUnsafeKey,
	) // age's error may quote the line
}

// MakeKey is ReadKey that makes the key where none is, durably before it is used.
func MakeKey(fsys vfs.FS, dir string) (*Key, error) {
	k, err := ReadKey(fsys, dir)
	if !errors.Is(err, ErrNoKey) {
		return k, err
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	if err := safe(fsys, dir, fs.ModeDir); err != nil {
		return nil, err
	}

	path := filepath.Join(dir, keyName)
	text := "# Decrypts the exact transcripts that belay keeps. Without it they cannot be read.\n" + id.String() + "\n"

	// Never over another one: two daemons may begin at once, and what one has written needs its key.
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, vfs.FileMode)
	if errors.Is(err, fs.ErrExist) {
		return ReadKey(fsys, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}

	_, err = io.WriteString(f, text)
	if err = errors.Join(err, f.Chmod(vfs.FileMode), f.Sync(), f.Close()); err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make key: %w", err), fsys.Remove(path))
	}

	return ReadKey(fsys, dir)
}

// safe says whether a folder or file is of the kind that is wanted, ours, no link, and closed to all others.
func safe(fsys vfs.FS, path string, kind fs.FileMode) error {
	info, err := fsys.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}

	why := ""
	st, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != kind:
		why = "it is a link or something else"
	case info.Mode().Perm()&0o077 != 0:
		why = fmt.Sprintf("others may open it (mode %04o)", info.Mode().Perm())
	case st != nil && int(st.Uid) != os.Geteuid():
		why = fmt.Sprintf("it belongs to another user (%d)", st.Uid)
	case st != nil && kind == 0 && st.Nlink > 1:
		why = "it has a second name"
	}

	if why != "" {
		return fmt.Errorf("%s: %w: %s", path, ErrUnsafeKey, why)
	}

	return nil
}

// sealed begins each batch that is encrypted.
const sealed = "age-encryption.org/"

// seal encrypts the frames of one batch: each batch is an age file of its own, so that appending, merging and cutting a
// torn tail work as in a mirror that is not encrypted.
func (k *Key) seal(dst, frames []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w, err := age.Encrypt(out, k.identity.Recipient())
	if err == nil {
		_, err = w.Write(frames)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return dst, fmt.Errorf("encrypt: %w", err)
	}

	return out.Bytes(), nil
}

// open gives the frames of a batch, whether it is encrypted or not. A nil Key opens what is not.
func (k *Key) open(r io.ReaderAt, b batch) (io.Reader, error) {
	section := io.NewSectionReader(r, b.at, b.Frames)
	head := make([]byte, min(b.Frames, int64(len(sealed))))
	if _, err := r.ReadAt(head, b.at); err != nil && err != io.EOF {
		return nil, err
	}
	if string(head) != sealed {
		return section, nil
	}
	if k == nil {
		return nil, ErrNoKey
	}

	plain, err := age.Decrypt(section, k.identity)
	if errors.As(err, new(*age.NoIdentityMatchError)) {
		return nil, ErrWrongKey
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}

	return plain, nil
}
