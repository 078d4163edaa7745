//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/vfs"
)

// write compares the store's Put with the bare system calls of an atomic write, the folder's sync included. Both
// folders hold as many files as the retention leaves.
func (b *bench) write(ctx context.Context) error {
	const keep = 50
	dir, _, err := b.folder()
	if err != nil {
		return err
	}

	store, err := state.Dir{Root: stateOf(dir), FS: vfs.OS{}}.OpenStore()
	if err != nil {
		return err
	}

	for i, size := range []struct {
		name   string
		bytes  int
		rounds int
	}{{"2 KB", 2 << 10, b.pick(200, 60)}, {"64 KB", 64 << 10, b.pick(200, 60)}, {"1 MB", 1 << 20, b.pick(60, 20)}} {
		data := bytes.Repeat([]byte("0123456789abcde\n"), size.bytes/16)
		key := checkpoint.NewKey("bench", "", fmt.Sprintf("3f0c2a9e-2f7d-4c7e-9a11-%012d", i), "")
		folder := filepath.Join(dir, size.name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}

		bare, put := 0, uint64(0)
		rawRound := func(context.Context) (float64, error) {
			bare++
			start := time.Now()
			err := replace(filepath.Join(folder, fmt.Sprintf("%06d-full.md", bare)), data)
			took := us(time.Since(start))
			if bare > keep {
				err = errors.Join(err, os.Remove(filepath.Join(folder, fmt.Sprintf("%06d-full.md", bare-keep))))
			}

			return took, err
		}

		putRound := func(ctx context.Context) (float64, error) {
			put++
			m := checkpoint.Meta{Number: put, Level: checkpoint.Full, At: time.Now(), Bytes: int64(len(data))}
			start := time.Now()
			err := store.Put(ctx, key, m, data)
			took := us(time.Since(start))
			if put > keep {
				err = errors.Join(err, store.Delete(ctx, key, put-keep))
			}

			return took, err
		}

		list := []*variant{{name: "raw", round: rawRound}, {name: "store", round: putRound}}
		if err := b.compare(ctx, "checkpoint write, "+size.name, size.rounds, list); err != nil {
			return err
		}

		b.report.add(size.name+", write, fdatasync, rename, folder sync", "us", list[0].got)
		b.report.add(size.name+", store", "us", list[1].got).over("raw", list[0].got).most("C1", 1.1)
	}

	return store.Close()
}

// replace is an atomic write with as few system calls as there can be.
func replace(path string, data []byte) error {
	fd, err := unix.Open(path+".tmp", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}

	n, err := unix.Write(fd, data)
	if err == nil && n < len(data) {
		err = errors.New("short write")
	}
	if err := errors.Join(err, unix.Fdatasync(fd), unix.Close(fd)); err != nil {
		return err
	}
	if err := unix.Rename(path+".tmp", path); err != nil {
		return err
	}

	folder, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}

	return errors.Join(unix.Fsync(folder), unix.Close(folder))
}
