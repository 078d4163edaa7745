// Package soak holds the tests of belay's bounds over time: what a daemon takes of memory, files and disk while many
// agents work beside it for long, die and come back, and what is kept of it all. It has no code of its own.
package soak
