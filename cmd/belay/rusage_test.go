package main

import (
	"os"
	"runtime"
	"syscall"
)

// peak is the most memory that a program has had, in bytes.
func peak(p *os.ProcessState) int64 {
	ru, ok := p.SysUsage().(*syscall.Rusage)
	switch {
	case !ok:
		return 0
	case runtime.GOOS == "darwin":
		return ru.Maxrss
	}

	return ru.Maxrss << 10
}
