//go:build !linux

package wiretest

import "testing"

// Stranger is a user that tests act as.
const Stranger = 12345

// As skips the test: here a thread cannot be another user's.
func As(t *testing.T, _ int, _ func() error) {
	t.Helper()
	t.Skip("only Linux lets one thread act as another user")
}
