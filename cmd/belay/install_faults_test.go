package main

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"belay/internal/vfs"
	"belay/internal/vfs/vfstest"
)

// TestEveryFaultOfTheProgramsCopy: whatever operation fails or takes the power away while install copies a program to
// where hooks find it, there is the old program or the new one, whole and ready to run; a copy that told no error is
// there for good.
func TestEveryFaultOfTheProgramsCopy(t *testing.T) {
	const from, to = "/build/belay-hook", "/home/user/.local/share/belay/bin/belay-hook"
	was, is := bytes.Repeat([]byte("the old program "), 999), bytes.Repeat([]byte("the new program "), 2000)
	for name, before := range map[string][]byte{"none there": nil, "an older one there": was, "the same there": is} {
		t.Run(name, func(t *testing.T) {
			vfstest.Sweep{Least: 5}.Run(t, func(p *vfstest.Point) {
				err := errors.Join(
					vfs.MakeDir(p.Mem, "/build"), vfs.Replace(p.Mem, from, is),
					vfs.MakeDirMode(p.Mem, "/home/user/.local/share", 0o755),
				)

				if before != nil {
					err = errors.Join(
						err, vfs.MakeDirMode(p.Mem, "/home/user/.local/share/belay/bin", 0o755),
						vfs.ReplaceMode(p.Mem, to, before, 0o755),
					)
				}

				if err != nil {
					t.Fatal(err)
				}

				_, err = copyProgram(p.Fault, from, to, false)
				kept := p.Hear(err) == nil
				check := func(disk *vfstest.Mem, when string) {
					got, err := vfs.ReadFile(disk, to, maxProgram)
					info, serr := disk.Lstat(to)
					switch {
					case errors.Is(err, fs.ErrNotExist) && before == nil && !kept:
					case errors.Join(err, serr) != nil:
						p.Errorf("%s: %v", when, errors.Join(err, serr))
					case !bytes.Equal(got, is) && (kept || before == nil || !bytes.Equal(got, before)):
						p.Errorf("%s: a program of %d bytes, want the old one or the new one", when, len(got))
					case info.Mode().Perm() != 0o755:
						p.Errorf("%s: its mode is %v", when, info.Mode())
					}
				}

				check(p.Mem, "as it goes on")
				for _, left := range p.Crashes() {
					check(left, "after a power cut")
					if _, err := copyProgram(left, from, to, false); err != nil {
						p.Errorf("once more: %v", err)
					}
					if got, err := vfs.ReadFile(left, to, maxProgram); err != nil || !bytes.Equal(got, is) {
						p.Errorf("once more: a program of %d bytes, %v", len(got), err)
					}

					if _, err := left.Lstat(
						"/home/user/.local/share/belay/bin/.belay-hook" + vfs.TempSuffix,
					); err == nil {
						p.Errorf("once more: a half-made copy is left")
					}
				}

				if kept {
					p.Tell(true) // an old program that cannot be read is replaced, without a word
				}
			})
		})
	}
}
