//go:build race

package agentzero

const hugeChat = 32 << 20 // the race detector is slow, and memory is not measured under it
