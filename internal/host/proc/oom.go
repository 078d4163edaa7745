package proc

// OOM says whether the kernel killed for want of memory.
type OOM int

const (
	OOMNone      OOM = iota // it did not, or that cannot be told
	OOMElsewhere            // it did on this machine; nothing tells which process
	OOMOwn                  // it did in our control group
)

// OOMCount holds the kernel's counts of such kills at one moment.
type OOMCount struct{ own, machine int64 } // negative: not known

// CountOOM reads the counts now.
func CountOOM() OOMCount { return countOOM("/") }

// Since says what was killed since c was read.
func (c OOMCount) Since() OOM { return c.to(CountOOM()) }

func (c OOMCount) to(now OOMCount) OOM {
	switch {
	case c.own >= 0 && now.own > c.own:
		return OOMOwn
	case c.machine >= 0 && now.machine > c.machine:
		return OOMElsewhere
	}
	return OOMNone
}
