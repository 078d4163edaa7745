package mirror

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"belay/internal/vfs"
)

// Lines opens a mirror file, or an older copy, and gives its lines in file order. It needs no daemon and changes
// nothing: a torn tail is left out. A damaged batch is stepped over, and the last Read then gives ErrDamaged instead of
// io.EOF. An exact mirror needs its key: ErrNoKey and ErrWrongKey say what is missing.
func Lines(fsys vfs.FS, path string, key *Key) (io.ReadCloser, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open mirror %s: %w", path, err)
	}

	r := &reader{f: f, path: path, key: key}
	if err := r.init(); err != nil {
		_ = f.Close() // read only: nothing can be lost
		return nil, fmt.Errorf("read mirror %s: %w", path, err)
	}

	return r, nil
}

// reader decodes one batch after the other.
type reader struct {
	f       vfs.File
	path    string
	key     *Key
	dec     *zstd.Decoder
	list    []batch
	open    bool // dec reads the batch before list
	damaged int
}

func (r *reader) init() error {
	st, err := r.f.Stat()
	if err != nil {
		return err
	}

	end, _, err := committed(r.f, st.Size())
	if err != nil {
		return err
	}
	if r.list, err = batches(r.f, end, 0); err != nil {
		return err
	}

	pos := int64(0)
	for _, b := range r.list {
		if b.at > pos {
			r.damaged++
		}
		pos = b.end()
	}

	r.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16*frameBytes))
	return err
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if !r.open {
			if len(r.list) == 0 {
				return 0, r.end()
			}

			b := r.list[0]
			r.list = r.list[1:]
			if _, ok, err := trailerAt(r.f, b.at+b.Frames); err != nil {
				return 0, fmt.Errorf("read mirror %s: %w", r.path, err)
			} else if !ok {
				r.damaged++
				continue
			}

			plain, err := r.key.open(r.f, b)
			if errors.Is(err, ErrDamaged) {
				r.damaged++
				continue
			}
			if err == nil {
				err = r.dec.Reset(plain)
			}
			if err != nil {
				return 0, fmt.Errorf("read mirror %s: %w", r.path, err)
			}

			r.open = true
		}

		n, err := r.dec.Read(p)
		if err != nil {
			r.open = false
			if err != io.EOF {
				r.damaged++
			}
		}

		if n > 0 {
			return n, nil
		}
	}
}

func (r *reader) end() error {
	if r.damaged > 0 {
		return fmt.Errorf("read mirror %s: %d places: %w", r.path, r.damaged, ErrDamaged)
	}
	return io.EOF
}

func (r *reader) Close() error {
	r.dec.Close()
	return r.f.Close()
}
