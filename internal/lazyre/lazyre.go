// Package lazyre compiles regular expressions when they are first used. A program that is started by every hook and
// command must not compile all of them before main: together that was a quarter of belay's start.
package lazyre

import (
	"regexp"
	"sync"
)

// New gives a function that compiles expr at its first call and returns the same expression ever after. A faulty one
// panics then, as regexp.MustCompile does.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
