package repair

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"belay/checkpoint"
	"belay/internal/vfs"
)

// What Repair refuses before it writes anything.
var (
	// ErrExists: a repair never writes over a file.
	ErrExists = errors.New("it is there already")
	// ErrOriginal: the output is the transcript itself, by whatever name.
	ErrOriginal = errors.New("it is the transcript itself")
	// ErrReportOnly: a transcript of this kind can be examined, and not repaired.
	ErrReportOnly = errors.New("transcripts of this kind are not repaired")
)

// Free says whether a repair may be written to out.
func Free(fsys vfs.FS, transcript, out string) error {
	info, err := fsys.Lstat(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	own, err := os.Stat(transcript)
	if err != nil {
		return err
	}
	if there, err := os.Stat(out); err == nil && os.SameFile(own, there) || os.SameFile(own, info) {
		return fmt.Errorf("write %s: %w", out, ErrOriginal)
	}

	return fmt.Errorf("write %s: %w", out, ErrExists)
}

// Repair writes the repaired copy: durably and whole, or not at all. Seen is as that of Lines.
func (e *Examined) Repair(ctx context.Context, fsys vfs.FS, out string, seen func(bytes int64)) error {
	if e.edits == nil {
		return ErrReportOnly
	}
	if err := Free(fsys, e.file, out); err != nil {
		return err
	}

	in, err := os.OpenFile(e.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}

	defer in.Close() // read only
	return vfs.ReplaceWith(fsys, out, func(w io.Writer) error {
		b := bufio.NewWriterSize(w, 256<<10)
		if err := e.copy(ctx, in, b, seen); err != nil {
			return err
		}
		return b.Flush()
	})
}

// copy writes the original with the edits in it.
func (e *Examined) copy(ctx context.Context, in io.ReaderAt, w io.Writer, seen func(int64)) error {
	at := int64(0)
	part := func(to int64) error {
		for at < to {
			if err := ctx.Err(); err != nil {
				return err
			}

			n, err := io.Copy(w, io.NewSectionReader(in, at, min(to-at, stepBytes)))
			if err == nil && n == 0 {
				err = io.ErrUnexpectedEOF // it became shorter meanwhile
			}
			if err != nil {
				return err
			}

			at += n
			if seen != nil {
				seen(at)
			}
		}
		return nil
	}

	for _, c := range e.edits {
		if err := part(c.off); err != nil {
			return err
		}
		if _, err := w.Write(c.with); err != nil {
			return err
		}
		at = c.end()
	}

	return part(e.Bytes)
}

// Name makes a record's name in the form of a UUID out of what it is made for: the same each time.
func Name(of string) string {
	h := sha256.Sum256([]byte("belay repair " + of))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8: made as its maker likes
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// Unpacked says that what was examined is the unpacked text of another file, which ended early if damage is not nil.
// Forget is called by Close.
func (e *Examined) Unpacked(file string, damage error, forget func() error) {
	e.File, e.file, e.forget = file, file, forget
	if damage == nil {
		return
	}

	e.Bad = append(e.Bad, checkpoint.BadLine{Offset: e.Bytes, Why: "archive is damaged: " + damage.Error()})
	e.Resumable, e.WhyNot = false, append(e.WhyNot, "the archive is damaged: "+damage.Error())
	e.Changes = append(e.Changes, Change{Offset: e.Bytes, Action: CutTorn,
		What: "nothing of the archive can be read from here on"})
}

// Repairable says that Repair can write a copy.
func (e *Examined) Repairable() bool { return e.edits != nil }
