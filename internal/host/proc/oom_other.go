//go:build unix && !linux

package proc

// countOOM is not known here.
func countOOM(string) OOMCount { return OOMCount{own: -1, machine: -1} }
