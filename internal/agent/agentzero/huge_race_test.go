//go:build race

package agentzero

const hugeChat = 12 << 20 // the race detector is slow, and memory is not measured under it
