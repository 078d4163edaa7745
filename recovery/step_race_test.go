//go:build race

package recovery

const capStep = 41
