//go:build !race

package agentzero

const hugeChat = 128 << 20 // that of the field case
