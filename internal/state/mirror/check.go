package mirror

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"belay/internal/vfs"
)

// Check reads a mirror file, or an older copy, to its end and says whether it is what was written: every batch is
// there, its sums are right, and its frames hold the lines that its trailer states (of an encrypted one the sums
// alone: this needs no key). What a power cut may take and the next opening cuts off is no damage. It changes nothing.
func Check(fsys vfs.FS, path string) error {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("check mirror %s: %w", path, err)
	}

	defer f.Close() // read only: nothing can be lost
	if err := check(f, filepath.Ext(path) == filepath.Ext(FileName)); err != nil {
		return fmt.Errorf("check mirror %s: %w", path, err)
	}

	return nil
}

func check(f vfs.File, decode bool) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}

	end, last, err := committed(f, st.Size())
	if err != nil {
		return err
	}
	if end, _, err = firstLoss(f, end, last); err != nil {
		return err
	}

	list, err := batches(f, end, 0)
	if err != nil {
		return err
	}

	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16*frameBytes))
	if err != nil {
		return err
	}

	defer dec.Close()
	pos := int64(0)
	for _, b := range list {
		if b.at > pos {
			return fmt.Errorf("%w: %d bytes at %d are no batch", ErrDamaged, b.at-pos, pos)
		}

		if _, ok, err := trailerAt(f, b.at+b.Frames); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%w: the sum of the batch at %d is wrong", ErrDamaged, b.at)
		}

		if decode {
			if err := checkLines(f, b, dec); err != nil {
				return err
			}
		}

		pos = b.end()
	}

	return nil
}

func checkLines(f vfs.File, b batch, dec *zstd.Decoder) error {
	plain, err := (*Key)(nil).open(f, b)
	if errors.Is(err, ErrNoKey) {
		return nil // what is encrypted has its sum, and a check has no business with the key
	}
	if err == nil {
		err = dec.Reset(plain)
	}
	if err != nil {
		return err
	}

	var lines lineCounter
	n, err := io.Copy(&lines, dec)
	if err != nil {
		return fmt.Errorf("%w: batch at %d: %w", ErrDamaged, b.at, err)
	}

	if n != b.Raw || int64(lines) != b.Lines {
		return fmt.Errorf(
			"%w: the batch at %d holds %d bytes in %d lines, its trailer says %d in %d", ErrDamaged, b.at, n,
			lines, b.Raw, b.Lines,
		)
	}

	return nil
}

// lineCounter counts line ends.
type lineCounter int64

func (c *lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			*c++
		}
	}
	return len(p), nil
}
