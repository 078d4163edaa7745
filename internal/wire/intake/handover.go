package intake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/gofrs/flock"

	"belay/internal/state/spool"
	"belay/internal/wire"
)

// handOver gives the request to a daemon, starting one if none answers, until ctx ends. With empty set it only sees to
// it that a daemon runs.
func (in *intake) handOver(ctx context.Context, req wire.Request, payload []byte, empty bool) error {
	var start *flock.Flock // held from the look that found no daemon until one answers
	defer func() {
		if start != nil {
			_ = start.Unlock() // the end of the process would do it
		}
	}()

	for {
		conn, err := Dial(ctx, in.places)
		if err == nil {
			if empty {
				return conn.Close()
			}
			err = exchange(ctx, conn, req, payload)
			if err == nil || errors.Is(err, ErrRefused) {
				return err
			}
		} else if start == nil {
			start, err = in.startOnce(ctx)
			if err != nil {
				return err
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("hand over event %s: %w", req.ID, ErrNoDaemon)
		case <-time.After(pause + rand.N(pause)):
		}
	}
}

// startOnce starts a daemon, unless another intake is at it or one was started a moment ago. It looks once more before:
// the lock may have been waited for by nobody but the daemon is there. It gives the lock when it was taken.
func (in *intake) startOnce(ctx context.Context) (*flock.Flock, error) {
	l := in.flock("start.lock")
	if ok, err := l.TryLock(); !ok || err != nil {
		return nil, nil // another is at it, or the folder went away: the socket is looked at again
	}

	unlock := func() { _ = l.Unlock() } // only a lock: nothing was written
	if conn, err := Dial(ctx, in.places); err == nil {
		unlock()
		return nil, conn.Close()
	}

	stamp := in.lock + "start.stamp"
	if fi, err := os.Lstat(stamp); err == nil {
		if age := time.Since(fi.ModTime()); age >= 0 && age < startEvery {
			unlock()
			return nil, nil
		}
	}

	if err := touch(stamp); err != nil {
		unlock()
		return nil, err
	}
	if err := in.opt.StartDaemon(); err != nil {
		unlock()
		return nil, fmt.Errorf("start daemon: %w", err)
	}

	return l, nil
}

// touch makes a file new.
func touch(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stamp start of daemon: %w", err)
	}

	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("stamp start of daemon: %w", err)
	}

	return f.Close()
}

// emptySpool gives the daemon what lies in the spool, if one is there. One intake does it at a time. It looks again
// after it has let go of the lock: whoever found the lock held has put its file there before, so that one of the two
// sees it.
func (in *intake) emptySpool(ctx context.Context) error {
	if in.lock == "" {
		return nil
	}

	for ctx.Err() == nil {
		events, _, err := spool.Pending(in.opt.FS, in.spool)
		if err != nil || events == 0 {
			return err
		}

		l := in.flock("drain.lock")
		if ok, err := l.TryLock(); !ok || err != nil {
			return nil
		}

		n, err := in.drain(ctx)
		_ = l.Unlock() // only a lock: nothing was written
		switch {
		case errors.Is(err, spool.ErrStop), ctx.Err() != nil:
			return nil // no daemon any more, or no time: the next intake or daemon goes on
		case err != nil && n == 0:
			return err // nothing but events that the daemon refuses
		}
	}

	return nil
}

// drain hands over the spool's events, one connection for all.
func (in *intake) drain(ctx context.Context) (int, error) {
	conn, err := Dial(ctx, in.places)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", spool.ErrStop, err)
	}

	defer conn.Close() // all that was sent is answered
	p := newPeer(conn)
	return spool.Drain(ctx, in.opt.FS, in.spool, func(header, payload []byte) error {
		err := p.send(ctx, append(header[:len(header):len(header)], '\n'), payload)
		if err != nil && !errors.Is(err, ErrRefused) {
			return fmt.Errorf("%w: %w", spool.ErrStop, err)
		}
		return err
	})
}
