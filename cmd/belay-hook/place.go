package main

import "syscall"

// maxSocketPath and socketPlaces are internal/wire/socket.go once more, without its imports; a test holds them equal.
const maxSocketPath = 103

func socketPlaces(state string, uid int) []string {
	var places []string
	p := state + "/belay.sock"
	if state == "/" {
		p = "/belay.sock"
	}
	if len(p) <= maxSocketPath {
		places = append(places, p)
	}

	b := appendInt([]byte("/tmp/belay-"), int64(uid))
	b = appendHex(append(b, '/'), fnv64(state))
	return append(places, string(append(b, ".sock"...)))
}

func fnv64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}

// stateDir is the state folder by the environment, without dots and doubled slashes, because its name is hashed.
// Relative names are passed over: they would mean another folder in each workspace.
func stateDir(own, xdg, home string) string {
	switch {
	case isAbs(own):
		return clean(own)
	case isAbs(xdg):
		return clean(xdg + "/belay")
	case isAbs(home):
		return clean(home + "/.local/state/belay")
	}
	return ""
}

func isAbs(p string) bool { return len(p) > 0 && p[0] == '/' }

// clean is filepath.Clean for an absolute path.
func clean(p string) string {
	out := make([]byte, 0, len(p))
	for i := 0; i < len(p); {
		if p[i] == '/' {
			i++
			continue
		}

		j := i
		for j < len(p) && p[j] != '/' {
			j++
		}

		switch name := p[i:j]; name {
		case ".":
		case "..":
			out = out[:len(dirOf(string(out)))]
		default:
			out = append(append(out, '/'), name...)
		}

		i = j
	}

	if len(out) == 0 {
		return "/"
	}

	return string(out)
}

// dirOf is what stands before the last slash, "" when that is the first byte or there is none.
func dirOf(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return ""
}

// trusted says whether a socket may be talked to: a socket and no link, of ours, in a folder and no link, of ours, that
// nobody else can enter. Else a stranger could sit on the name and read what the agent does.
func trusted(socket string) bool {
	uid := uint32(syscall.Getuid())
	var st syscall.Stat_t
	dir := dirOf(socket)
	if dir == "" || syscall.Lstat(dir, &st) != nil {
		return false
	}
	if uint32(st.Mode)&syscall.S_IFMT != syscall.S_IFDIR || st.Uid != uid || st.Mode&0o077 != 0 {
		return false
	}
	if syscall.Lstat(socket, &st) != nil {
		return false
	}

	return uint32(st.Mode)&syscall.S_IFMT == syscall.S_IFSOCK && st.Uid == uid
}
