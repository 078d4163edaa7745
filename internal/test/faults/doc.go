// Package faults holds the tests that do to the real programs what a bad machine does: full and read-only disks, EIO,
// kill -9, SIGSTOP, clocks that jump, clients of other versions, floods. It has no code of its own.
//
// The short forms are what CI runs. BELAY_LONG=1 makes them long (scripts/test --long). What a machine does not allow
// (a mount, strace) is skipped with the reason.
package faults
