package wire

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the longest path that can be bound on every system belay runs on: sun_path holds 104 bytes on macOS
// and 108 on Linux, one of them the final NUL.
const maxSocketPath = 103

// SocketPlaces gives the places where the daemon of a state folder may listen, the first that works is taken. Client and
// daemon compute the same list; belay-hook has a copy of this arithmetic, held equal by a test.
func SocketPlaces(stateDir string) []string {
	var places []string
	if p := filepath.Join(stateDir, "belay.sock"); len(p) <= maxSocketPath {
		places = append(places, p)
	}
	return append(places, fmt.Sprintf("/tmp/belay-%d/%016x.sock", os.Getuid(), fnv64(stateDir)))
}

// fnv64 is FNV-1a: small enough for the hook client to have its own copy.
func fnv64(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	return h
}
