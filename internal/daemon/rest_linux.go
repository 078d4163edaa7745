package daemon

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the pages of the program's own file that nobody may write out of the process. They stay in the system's
// cache, and each comes back when it is next used: what remains is what a daemon at rest uses, not what its start did.
func unmapProgram() {
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
