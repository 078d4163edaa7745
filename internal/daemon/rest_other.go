//go:build !linux

package daemon

// unmapProgram has nothing to go by here.
func unmapProgram() {}
