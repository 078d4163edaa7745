package intake

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"belay/internal/wire"
)

// RestFD is the descriptor from which an intake reads on when the request line says "rest": belay-hook's own stdin,
// whose writer was slower than the hook may be.
const RestFD = 3

const (
	defaultRestWait = 10 * time.Second
	crowdedRestWait = time.Second            // when eight others wait for a slow writer already
	maxWaste        = 4 * wire.MaxPayload    // bytes over the bound that are read only to be polite
	restPiece       = 100 * time.Millisecond // between two looks at the context
)

// readRest completes a payload from its writer's pipe. It ends at the writer's end or death, at the bound of time or at
// that of bytes; what is missing then makes the request cut. The descriptor stays open until the process ends, so that
// no writer gets an error because of us. Reading waits in poll, never in read: the pipe's mode may be shared with the
// agent and is left as it is.
func (in *intake) readRest(ctx context.Context, req *wire.Request, payload []byte) []byte {
	wait := in.opt.RestWait
	if slot, got := in.trySlot("rest"); got {
		defer func() { _ = slot.Unlock() }() // only a lock: nothing was written
	} else {
		wait = min(wait, crowdedRestWait)
	}

	end := time.Now().Add(wait)
	buf := make([]byte, 64<<10)
	for waste := 0; waste < maxWaste; {
		n, more := readBefore(ctx, in.opt.RestFD, buf, end)
		if n == 0 {
			req.Cut = req.Cut || more
			break
		}

		room := min(n, wire.MaxPayload-len(payload))
		payload = append(payload, buf[:room]...)
		waste += n - room
		req.Cut = req.Cut || room < n
	}

	req.Len = len(payload)
	return payload
}

// readBefore reads what comes next. With n = 0 nothing came: more says that the end was not seen.
func readBefore(ctx context.Context, fd int, buf []byte, end time.Time) (n int, more bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, true // we were started by hand
	}
	if kind := uint32(st.Mode) & unix.S_IFMT; kind != unix.S_IFIFO && kind != unix.S_IFSOCK {
		return 0, true // the same: some other file of ours has the number
	}

	n, err := readFD(ctx, fd, buf, end)
	return n, err != nil
}

// readFD reads what comes next, and waits for it in poll: n = 0 without an error is the end.
func readFD(ctx context.Context, fd int, buf []byte, end time.Time) (n int, err error) {
	for {
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			return 0, os.ErrDeadlineExceeded
		}

		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, int(min(left, restPiece)/time.Millisecond)+1)
		if err == unix.EINTR || err == nil && ready == 0 {
			continue
		}
		if err != nil {
			return 0, err
		}

		n, err = unix.Read(fd, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}

		return max(n, 0), err
	}
}

// before gives a reader that waits for r until a time and no longer. Go's own deadlines do not work for a stdin that
// was inherited: it is not in the mode that they need.
func before(ctx context.Context, r io.Reader, end time.Time) io.Reader {
	if f, ok := r.(*os.File); ok {
		return readFunc(func(b []byte) (int, error) {
			n, err := readFD(ctx, int(f.Fd()), b, end)
			if n == 0 && err == nil && len(b) > 0 {
				err = io.EOF
			}
			return n, err
		})
	}
	return r
}

// readFunc is an io.Reader made of a function.
type readFunc func(b []byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }
