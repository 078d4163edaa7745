package main

import "syscall"

// The bound of one string from the command line: an event record holds no more.
const maxText = 64 << 10

// caller is what is true of every request of this process.
type caller struct {
	pid int64 // the agent's
	cwd string
}

// hookHeader is the line before a hook's payload. len comes last.
func hookHeader(h hookCall, in input, from caller) []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"v":1,"op":"hook","agent":`...)
	b = appendString(b, cut(h.agent, maxWord))
	b = append(b, `,"event":`...)
	b = appendString(b, cut(h.event, maxWord))
	b = appendCaller(b, from)
	if in.cut {
		b = append(b, `,"cut":true`...)
	}
	if in.rest {
		b = append(b, `,"rest":true`...)
	}

	b = append(b, `,"len":`...)
	b = appendInt(b, int64(in.len()))
	return append(b, "}\n"...)
}

// verbHeader is the whole request of a verb.
func verbHeader(v verbCall, from caller) []byte {
	b := make([]byte, 0, 512)
	b = append(b, `{"v":1,"op":"verb","event":`...)
	b = appendString(b, v.name)
	if v.agent != "" {
		b = append(b, `,"agent":`...)
		b = appendString(b, v.agent)
	}
	if v.session != "" {
		b = append(b, `,"session":`...)
		b = appendString(b, v.session)
	}

	b = appendCaller(b, from)
	b = append(b, `,"body":{`...)
	for i, f := range v.flags {
		if i > 0 {
			b = append(b, ',')
		}

		b = appendString(b, f.name)
		b = append(b, ':')
		if f.isText {
			b = appendString(b, f.text)
		} else {
			b = append(b, "true"...)
		}
	}

	return append(b, "},\"len\":0}\n"...)
}

func appendCaller(b []byte, from caller) []byte {
	b = append(b, `,"id":"`...)
	b = appendID(b)
	b = append(b, `","pid":`...)
	b = appendInt(b, from.pid)
	if from.cwd != "" {
		b = append(b, `,"workspace":`...)
		b = appendString(b, cut(from.cwd, 4096))
	}

	return b
}

// appendID adds an id that no other event has: time, process, chance. Ids of one machine sort by time.
func appendID(b []byte) []byte {
	b = appendHex(b, uint64(wallNanos()))
	b = append(b, '-')
	b = appendInt(b, int64(syscall.Getpid()))
	b = append(b, '-')
	return appendHex(b, runtimeRand())
}

// agentPID is the agent's process: the one it names itself, else our parent.
func agentPID(named string, parent int) int64 {
	var n int64
	for i := 0; i < len(named); i++ {
		d := named[i]
		if d < '0' || d > '9' || n > 1<<31 {
			return int64(parent)
		}
		n = n*10 + int64(d-'0')
	}

	if n == 0 {
		return int64(parent)
	}

	return n
}

const hexDigits = "0123456789abcdef"

// appendString adds s as a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // range gives U+FFFD for each bad byte
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		case r < 0x80:
			b = append(b, byte(r))
		default:
			b = append(b, string(r)...)
		}
	}

	return append(b, '"')
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendInt(append(b, '-'), -n)
	}
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// appendHex adds 16 digits.
func appendHex(b []byte, n uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[n>>shift&15])
	}
	return b
}

// cut shortens s to at most n bytes. A character that is cut through becomes U+FFFD in appendString.
func cut(s string, n int) string { return s[:min(len(s), n)] }
