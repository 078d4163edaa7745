//go:build !race

package agentzero

const hugeChat = 30 << 20
