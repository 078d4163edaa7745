package main

import (
	"syscall"
	_ "unsafe" // for go:linkname
)

// What packages os, time and math/rand would be linked for comes from the runtime directly. All names are ones that the
// runtime itself hands out by linkname; should a new Go take one back, the build fails.

//go:linkname runtimeArgs os.runtime_args
func runtimeArgs() []string

// runtimeEnvs spares the map that syscall.Getenv makes of the whole environment: a dozen page faults.
//
//go:linkname runtimeEnvs syscall.runtime_envs
func runtimeEnvs() []string

// nanotime is the monotonic clock: a jump of the wall clock must not stretch a deadline.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

//go:linkname runtimeRand runtime.rand
func runtimeRand() uint64

// deadline is a moment of the monotonic clock.
type deadline int64

func after(ns int64) deadline { return deadline(nanotime() + ns) }

// left is never negative.
func (d deadline) left() int64 { return max(int64(d)-nanotime(), 0) }

// wallNanos is the time of day in Unix nanoseconds.
func wallNanos() int64 {
	var tv syscall.Timeval
	if syscall.Gettimeofday(&tv) != nil {
		return 0
	}
	return syscall.TimevalToNsec(tv)
}

// timeval is never zero, which would mean "for ever" as a socket's timeout.
func timeval(ns int64) syscall.Timeval { return syscall.NsecToTimeval(max(ns, millisecond)) }

func sleep(ns int64) {
	tv := timeval(ns)
	_ = selectFds(0, nil, nil, &tv) // an early end only means one look more
}

// environ is the environment as the kernel gave it.
type environ []string

// get gives a variable's first value, "" when it is not set.
func (e environ) get(name string) string {
	for _, kv := range e {
		if len(kv) > len(name) && kv[len(name)] == '=' && kv[:len(name)] == name {
			return kv[len(name)+1:]
		}
	}
	return ""
}
