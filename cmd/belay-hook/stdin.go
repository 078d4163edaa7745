package main

import "syscall"

const (
	maxPayload = 16 << 20 // the same as wire.MaxPayload
	firstRead  = 64 << 10
	// headRoom is kept free before the payload for the header, so that both leave in one write. The longest header is a
	// path of 4,096 bytes and two words, each byte of them escaped to six.
	headRoom = 32 << 10
	maxWord  = 256
)

// input is what came on stdin: buf[headRoom:] holds it.
type input struct {
	buf  []byte
	cut  bool // more came than is kept, or nobody can wait for the end
	rest bool // the end was not seen in time: more may come
}

func (in input) len() int { return len(in.buf) - headRoom }

// message puts the header right before the payload.
func (in input) message(header []byte) []byte {
	start := headRoom - len(header)
	if start < 0 {
		return append(header, in.buf[headRoom:]...) // cannot be, with words and paths of bounded length
	}
	copy(in.buf[start:], header)
	return in.buf[start:]
}

// readStdin reads to the end of stdin or the deadline. What is over the bound is read and dropped: an agent that writes
// into a closed pipe may take that as an error of its own. For the same reason a slow writer's pipe can be handed on.
func readStdin(end deadline) input {
	in := input{buf: make([]byte, headRoom, headRoom+firstRead)}
	var waste []byte
	for {
		if !readable(end) {
			in.rest = hasWriter(0)
			in.cut = in.cut || !in.rest
			return in
		}

		room := in.buf[len(in.buf):cap(in.buf)]
		if in.len() >= maxPayload {
			if waste == nil {
				waste = make([]byte, firstRead)
			}
			room = waste
		}

		n, err := syscall.Read(0, room)
		switch {
		case err == syscall.EINTR || err == syscall.EAGAIN:
			continue
		case err != nil || n <= 0:
			return in
		case waste != nil:
			in.cut = true
			continue
		}

		in.buf = in.buf[:len(in.buf)+n]
		if len(in.buf) == cap(in.buf) {
			in.buf = grown(in.buf)
		}
	}
}

// grown gives b room to read on, never beyond the bound.
func grown(b []byte) []byte {
	size := min(4*cap(b), headRoom+maxPayload)
	if size == cap(b) {
		return b
	}
	bigger := make([]byte, len(b), size)
	copy(bigger[headRoom:], b[headRoom:])
	return bigger
}

// hasWriter says whether a descriptor is a pipe or socket, which another process fills for us alone. A terminal is
// none: who reads on from it in the background takes the user's next words.
func hasWriter(fd int) bool {
	var st syscall.Stat_t
	if syscall.Fstat(fd, &st) != nil {
		return false
	}
	kind := uint32(st.Mode) & syscall.S_IFMT
	return kind == syscall.S_IFIFO || kind == syscall.S_IFSOCK
}

// readable waits for bytes or the end on stdin.
func readable(end deadline) bool {
	var set syscall.FdSet
	return selected(0, &set, &set, nil, end)
}

// writable waits for room on an inherited descriptor.
func writable(fd int, end deadline) bool {
	var set syscall.FdSet
	return selected(fd, &set, nil, &set, end)
}

// selected waits for one descriptor, in the set that is r or w.
func selected(fd int, set, r, w *syscall.FdSet, end deadline) bool {
	for {
		set.Bits[0] = 1 << fd
		left := end.left()
		if left == 0 {
			return false
		}

		tv := timeval(left)
		err := selectFds(fd+1, r, w, &tv)
		if err == syscall.EINTR {
			continue
		}

		return err != nil || set.Bits[0] != 0 // on an error reading or writing finds out
	}
}
