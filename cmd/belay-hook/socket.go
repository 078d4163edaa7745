package main

import "syscall"

const (
	// sendPiece bounds one write, because a socket's timeout starts again with each: a daemon that reads a little at a
	// time must not stretch the deadline. Almost every message is smaller and leaves in one write.
	sendPiece = 64 << 10
	firstLine = 4 << 10
	maxLine   = 1 << 20 // the same as wire.MaxLine
)

// ask sends the message to the first place where a daemon answers and gives what is to be printed. It is false when no
// daemon has taken the message.
func (c *client) ask(msg []byte) (out []byte, ok bool) {
	for _, place := range c.places {
		if !trusted(place) {
			c.say("no socket of ours at " + place)
			continue
		}

		fd, err := c.connect(place)
		if err != nil {
			c.say("connect " + place + ": " + err.Error())
			continue
		}

		out, ok = c.talk(fd, msg)
		_ = syscall.Close(fd) // nothing of ours is left in it
		if ok {
			return out, true
		}

		c.say("no answer from " + place)
	}
	return nil, false
}

func (c *client) connect(place string) (fd int, err error) {
	fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}

	for {
		if err = c.timeout(fd, syscall.SO_SNDTIMEO); err != nil { // a full backlog blocks connect
			break
		}

		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: place})
		if err == syscall.EINTR {
			continue
		}
		if err == nil && !peerIsOurs(fd) {
			err = syscall.EPERM
		}

		break
	}

	if err != nil {
		_ = syscall.Close(fd) // never used
		return -1, err
	}

	return fd, nil
}

// timeout hands what is left of the deadline to the kernel.
func (c *client) timeout(fd, option int) error {
	left := c.end.left()
	if left == 0 {
		return syscall.ETIMEDOUT
	}
	tv := timeval(left)
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, option, &tv)
}

// talk writes the message and reads the answer.
func (c *client) talk(fd int, msg []byte) (out []byte, ok bool) {
	for sent := 0; sent < len(msg); {
		if sent > 0 && c.timeout(fd, syscall.SO_SNDTIMEO) != nil {
			return nil, false
		}

		n, err := syscall.Write(fd, msg[sent:min(sent+sendPiece, len(msg))])
		if err != nil && err != syscall.EINTR {
			return nil, false
		}

		sent += max(n, 0)
	}

	buf := c.scratch[:0]
	var line int // length of the first line, with its end; 0 while it is not whole
	for {
		if line == 0 {
			line = indexByte(buf, '\n') + 1
		}

		if line > 0 {
			n, known := trailingLen(buf[:line])
			if !known || !taken(buf[:line]) {
				return nil, false
			}
			if len(buf) >= line+n {
				return buf[line : line+n], true
			}

			buf = withRoom(buf, line+n)
		} else {
			if len(buf) > maxLine {
				return nil, false
			}
			buf = withRoom(buf, len(buf)+1)
		}

		if c.timeout(fd, syscall.SO_RCVTIMEO) != nil {
			return nil, false
		}

		n, err := syscall.Read(fd, buf[len(buf):cap(buf)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return nil, false
		}

		buf = buf[:len(buf)+n]
	}
}

// withRoom gives b a capacity of at least n.
func withRoom(b []byte, n int) []byte {
	if cap(b) >= n {
		return b
	}
	bigger := make([]byte, len(b), max(n, 2*cap(b)))
	copy(bigger, b)
	return bigger
}

// trailingLen reads the number of bytes that follow a reply's line. The daemon puts "len" last, so that no parser is
// needed: the line ends with it or nothing follows. False for a number that no daemon of ours sends.
func trailingLen(line []byte) (n int, ok bool) {
	i := len(line)
	for i > 0 && (line[i-1] == '\n' || line[i-1] == '\r') {
		i--
	}

	if i == 0 || line[i-1] != '}' {
		return 0, false
	}

	end := i - 1
	i = end
	for i > 0 && line[i-1] >= '0' && line[i-1] <= '9' {
		i--
	}

	if i == end || !hasSuffix(line[:i], `"len":`) {
		return 0, true
	}

	for _, d := range line[i:end] {
		if n = n*10 + int(d-'0'); n > maxPayload {
			return 0, false
		}
	}

	return n, true
}

// taken says whether the daemon has the message or will never want it; false when another should be asked.
func taken(line []byte) bool {
	if hasPrefix(line, `{"ok":true`) {
		return true
	}
	return hasPrefix(line, `{"ok":false`) &&
		!contains(line, `"code":"stopping"`) && !contains(line, `"code":"internal"`)
}

func indexByte(b []byte, c byte) int {
	for i := range b {
		if b[i] == c {
			return i
		}
	}
	return -1
}

func hasPrefix(b []byte, p string) bool { return len(b) >= len(p) && string(b[:len(p)]) == p }

func hasSuffix(b []byte, s string) bool { return len(b) >= len(s) && string(b[len(b)-len(s):]) == s }

func contains(b []byte, s string) bool {
	for i := 0; i+len(s) <= len(b); i++ {
		if string(b[i:i+len(s)]) == s {
			return true
		}
	}
	return false
}
