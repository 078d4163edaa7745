//go:build linux

package lab

const piVar = "BELAY_LAB_PI"
