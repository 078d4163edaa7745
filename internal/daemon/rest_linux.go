package daemon

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the pages of the program's own file that nobody may write out of the process. They stay in the system's
// cache, and each comes back when it is next used: what remains is what a daemon at rest uses, not what its start did.
func unmapProgram() {
	if !isFixed("/proc/self/exe") {
		return
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // it stays as it is
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line) // from-to rights offset device inode path
		if !strings.HasSuffix(line, " "+exe+"\n") || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		if from, to, ok := span(fields[0]); ok {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED) // a hint
		}
	}
}

// isFixed says whether a program always lies at the same place in memory. One that does not has, among the pages that nobody may
// write, some that were written when it began: those are not in its file, and would be lost.
func isFixed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()   // read only
	var head [18]byte // of an ELF file: the last two bytes, in either order, are its type, and 2 is ET_EXEC
	_, err = io.ReadFull(f, head[:])
	return err == nil && string(head[:4]) == "\x7fELF" && head[16]|head[17] == 2
}
