// Package proofs holds the tests that go through several packages at once: what a user gets from `belay recover` on
// real transcripts, whole and cut. It has no code of its own.
package proofs
