// Package storetest is the conformance suite that every checkpoint.Store must pass: Run for the contract, Faults for
// stores on a vfs.FS, where each operation on the disk fails in turn and the power is cut.
//
// Beyond the words of checkpoint.Store it holds one thing down: bad input (number 0, an unknown level) is an error that
// is fs.ErrInvalid, so that a breaker can tell it from a failing store.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/checkpoint"
)

// Run checks a store's contract. open gives a new, empty store each time; Run closes it.
func Run(t *testing.T, open func(t *testing.T) checkpoint.Store) {
	tests := []struct {
		name string
		test func(t *testing.T, s checkpoint.Store)
	}{
		{"Unknown", testUnknown},
		{"Bytes", testBytes},
		{"OwnCopy", testOwnCopy},
		{"ListOrder", testListOrder},
		{"Taken", testTaken},
		{"BadInput", testBadInput},
		{"Delete", testDelete},
		{"HostileKeys", testHostileKeys},
		{"Cancelled", testCancelled},
		{"ProbeLeavesNothing", testProbe},
		{"Concurrent", testConcurrent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t)
			tt.test(t, s)
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func full(n uint64) checkpoint.Meta {
	return checkpoint.Meta{Number: n, Level: checkpoint.Full, At: time.Now()}
}

func sparse(n uint64) checkpoint.Meta {
	return checkpoint.Meta{Number: n, Level: checkpoint.Sparse, At: time.Now()}
}

func key(session string) checkpoint.Key {
	return checkpoint.Key{Agent: "agent", Session: session}
}

func put(t *testing.T, s checkpoint.Store, k checkpoint.Key, m checkpoint.Meta, data string) {
	t.Helper()
	if err := s.Put(t.Context(), k, m, []byte(data)); err != nil {
		t.Fatalf("put %d of %q: %v", m.Number, k, err)
	}
}

// holds checks that a session has exactly these numbers, newest first, with the level and bytes of each.
func holds(t *testing.T, s checkpoint.Store, k checkpoint.Key, want ...stored) {
	t.Helper()
	list, err := s.List(t.Context(), k)
	if err != nil {
		t.Errorf("list %q: %v", k, err)
		return
	}
	if len(list) != len(want) {
		t.Errorf("list %q: got %+v, want %d checkpoints", k, list, len(want))
		return
	}

	for i, w := range want {
		got := list[i]
		if got.Number != w.m.Number || got.Level != w.m.Level || got.Bytes != int64(len(w.data)) {
			t.Errorf(
				"list %q at %d: got %+v, want number %d, level %s, %d bytes", k, i, got, w.m.Number, w.m.Level,
				len(w.data),
			)
		}

		data, err := s.Get(t.Context(), k, w.m.Number)
		if err != nil || string(data) != w.data {
			t.Errorf("get %d of %q: got %s, %v, want %s", w.m.Number, k, short(data), err, short([]byte(w.data)))
		}
	}
}

type stored struct {
	m    checkpoint.Meta
	data string
}

func short(data []byte) string {
	if len(data) > 40 {
		return fmt.Sprintf("%q... (%d bytes)", data[:40], len(data))
	}
	return fmt.Sprintf("%q", data)
}

func testUnknown(t *testing.T, s checkpoint.Store) {
	holds(t, s, key("nobody"))
	if _, err := s.Get(t.Context(), key("nobody"), 1); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("get from an unknown session: got %v, want ErrNotFound", err)
	}
	if err := s.Delete(t.Context(), key("nobody"), 1); err != nil {
		t.Errorf("delete from an unknown session: got %v, want nil", err)
	}
	if got, err := s.Sessions(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("sessions of an empty store: got %q, %v", got, err)
	}

	put(t, s, key("a"), full(1), "x")
	for _, n := range []uint64{0, 2, math.MaxUint64} {
		if _, err := s.Get(t.Context(), key("a"), n); !errors.Is(err, checkpoint.ErrNotFound) {
			t.Errorf("get number %d: got %v, want ErrNotFound", n, err)
		}
	}
}

func testBytes(t *testing.T, s checkpoint.Store) {
	big := make([]byte, 8<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(big) // never fails
	want := []stored{
		{full(4), string(big)},
		{sparse(3), "\x00\xff\r\n---\n\x1a\xc3\x28"},
		{full(2), ""},
		{sparse(1), "text\n"},
	}

	for _, w := range want {
		put(t, s, key("a"), w.m, w.data)
	}

	holds(t, s, key("a"), want...)
	list, err := s.List(t.Context(), key("a"))
	if err != nil {
		t.Fatalf("list: %v", err)
	}

	for _, m := range list {
		if d := time.Since(m.At).Abs(); d > time.Hour {
			t.Errorf("number %d, put now, is listed as of %s", m.Number, m.At)
		}
	}
}

func testOwnCopy(t *testing.T, s checkpoint.Store) {
	data := []byte("mine")
	if err := s.Put(t.Context(), key("a"), full(1), data); err != nil {
		t.Fatalf("put: %v", err)
	}

	copy(data, "XXXX")
	got, err := s.Get(t.Context(), key("a"), 1)
	if err != nil || string(got) != "mine" {
		t.Fatalf("after the caller changed its slice: got %q, %v, want %q", got, err, "mine")
	}

	copy(got, "YYYY")
	holds(t, s, key("a"), stored{full(1), "mine"})
}

func testListOrder(t *testing.T, s checkpoint.Store) {
	numbers := []uint64{9, 1_000_000, 10, 999_999, 1, math.MaxUint64, 100}
	for _, n := range numbers {
		put(t, s, key("a"), sparse(n), fmt.Sprint(n))
	}

	slices.Sort(numbers)
	var want []stored
	for _, n := range slices.Backward(numbers) {
		want = append(want, stored{sparse(n), fmt.Sprint(n)})
	}

	holds(t, s, key("a"), want...)
}

func testTaken(t *testing.T, s checkpoint.Store) {
	put(t, s, key("a"), full(7), "first")
	for _, m := range []checkpoint.Meta{full(7), sparse(7)} {
		if err := s.Put(t.Context(), key("a"), m, []byte("second")); !errors.Is(err, checkpoint.ErrExists) {
			t.Errorf("put %s 7 again: got %v, want ErrExists", m.Level, err)
		}
	}

	holds(t, s, key("a"), stored{full(7), "first"})
	put(t, s, key("b"), sparse(7), "another session's 7")
	holds(t, s, key("b"), stored{sparse(7), "another session's 7"})
}

func testBadInput(t *testing.T, s checkpoint.Store) {
	for _, m := range []checkpoint.Meta{
		{},
		full(0),
		{Number: 1},
		{Number: 1, Level: "full"},
		{Number: 1, Level: "../../FULL"},
	} {
		if err := s.Put(t.Context(), key("a"), m, []byte("x")); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("put %+v: got %v, want fs.ErrInvalid", m, err)
		}
	}

	holds(t, s, key("a"))
	if got, err := s.Sessions(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("sessions after refused puts: got %q, %v, want none", got, err)
	}
}

func testDelete(t *testing.T, s checkpoint.Store) {
	for n := uint64(1); n <= 3; n++ {
		put(t, s, key("a"), full(n), fmt.Sprint(n))
	}

	put(t, s, key("b"), full(2), "b")
	remove := func(n uint64) {
		t.Helper()
		if err := s.Delete(t.Context(), key("a"), n); err != nil {
			t.Errorf("delete %d: %v", n, err)
		}
	}

	remove(2)
	remove(2)
	remove(99)
	if _, err := s.Get(t.Context(), key("a"), 2); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("get a deleted number: got %v, want ErrNotFound", err)
	}

	holds(t, s, key("a"), stored{full(3), "3"}, stored{full(1), "1"})
	holds(t, s, key("b"), stored{full(2), "b"})
	remove(1)
	remove(3)
	holds(t, s, key("a"))
	if got, err := s.Sessions(t.Context()); err != nil || !slices.Equal(got, []string{key("b").Dir()}) {
		t.Errorf("sessions: got %q, %v, want only the one that still has a checkpoint", got, err)
	}

	put(t, s, key("a"), full(4), "4")
	holds(t, s, key("a"), stored{full(4), "4"})
}

func testHostileKeys(t *testing.T, s checkpoint.Store) {
	var keys []checkpoint.Key
	for _, id := range []string{
		"", ".", "..", "../..", "../../etc/passwd", "/", "/etc", "a/b", "a\\b", "%", "%2F", "%2f", "%00", "\x00",
		"\n", "\r\n",
		"a\x00b", "-rf", "~", "a", "A", "con", "nul.", "a ", " a", "\xff\xfe", "ü", "u\u0308", "checkpoints",
		"000001-full.md",
		"sessions", ".belay-probe", "c", "a%00c.b", strings.Repeat("x", 300), strings.Repeat("x", 299) + "y",
		strings.Repeat("/", 5000), "8f4e3c1a-1111-4222-8333-444455556666", "$(reboot)", "*", "a:b", "a|b",
	} {
		keys = append(keys, key(id), checkpoint.Key{Agent: id, Session: "s"})
	}

	keys = append(keys,
		checkpoint.Key{Agent: "x", Session: "y", Account: "z"},
		checkpoint.Key{Agent: "x", Session: "y", Child: "z"},
		checkpoint.Key{Agent: "x", Session: "y", Workspace: "z"},
		checkpoint.Key{Agent: "x", Session: "y"},
		checkpoint.Key{Agent: "x/y", Session: "z"},
		checkpoint.Key{Agent: "x", Session: "y/z"},
		checkpoint.Key{Agent: "x", Session: "y", Child: "../../z"},
	)

	for i, k := range keys {
		put(t, s, k, full(1), fmt.Sprintf("content %d", i))
	}

	var dirs []string
	for i, k := range keys {
		holds(t, s, k, stored{full(1), fmt.Sprintf("content %d", i)})
		dirs = append(dirs, k.Dir())
	}

	got, err := s.Sessions(t.Context())
	slices.Sort(got)
	slices.Sort(dirs)
	if err != nil || !slices.Equal(got, dirs) {
		t.Errorf("sessions: got %d, %v, want the folders of all %d keys", len(got), err, len(dirs))
	}
}

func testCancelled(t *testing.T, s checkpoint.Store) {
	put(t, s, key("a"), full(1), "kept")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, listErr := s.List(ctx, key("a"))
	_, getErr := s.Get(ctx, key("a"), 1)
	_, sessionsErr := s.Sessions(ctx)
	for name, err := range map[string]error{
		"Put":      s.Put(ctx, key("a"), full(2), []byte("x")),
		"List":     listErr,
		"Get":      getErr,
		"Delete":   s.Delete(ctx, key("a"), 1),
		"Sessions": sessionsErr,
		"Probe":    s.Probe(ctx, 100),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: got %v, want context.Canceled", name, err)
		}
	}

	holds(t, s, key("a"), stored{full(1), "kept"})
}

func testProbe(t *testing.T, s checkpoint.Store) {
	put(t, s, key("a"), full(1), "x")
	for range 3 {
		if err := s.Probe(t.Context(), 100); err != nil {
			t.Errorf("probe: %v", err)
		}
	}

	holds(t, s, key("a"), stored{full(1), "x"})
	if got, err := s.Sessions(t.Context()); err != nil || !slices.Equal(got, []string{key("a").Dir()}) {
		t.Errorf("sessions after probes: got %q, %v", got, err)
	}
}

// testConcurrent writes several sessions at once, each from its own goroutine, while others read them and probe.
func testConcurrent(t *testing.T, s checkpoint.Store) {
	const sessions, each = 8, 12
	data := func(session, n int) []byte { return bytes.Repeat([]byte{byte(session), byte(n)}, 2000) }
	done := make(chan struct{})
	var writers, readers sync.WaitGroup
	for i := range sessions {
		writers.Go(func() {
			k := key(fmt.Sprint(i))
			for n := 1; n <= each; n++ {
				if err := s.Put(t.Context(), k, full(uint64(n)), data(i, n)); err != nil {
					t.Errorf("put %d of %s: %v", n, k, err)
				}
				if n > 4 {
					if err := s.Delete(t.Context(), k, uint64(n-4)); err != nil {
						t.Errorf("delete %d of %s: %v", n-4, k, err)
					}
				}
			}
		})
	}

	for i := range 2 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}

				readNewest(t, s, (i+n)%sessions, data)
				if err := s.Probe(t.Context(), 100); err != nil {
					t.Errorf("probe: %v", err)
				}
				if _, err := s.Sessions(t.Context()); err != nil {
					t.Errorf("sessions: %v", err)
				}
			}
		})
	}

	writers.Wait()
	close(done)
	readers.Wait()
	for i := range sessions {
		var want []stored
		for n := each; n > each-4; n-- {
			want = append(want, stored{full(uint64(n)), string(data(i, n))})
		}
		holds(t, s, key(fmt.Sprint(i)), want...)
	}
}

// readNewest reads a session that is being written: what it finds is whole.
func readNewest(t *testing.T, s checkpoint.Store, session int, data func(session, n int) []byte) {
	k := key(fmt.Sprint(session))
	list, err := s.List(t.Context(), k)
	if err != nil {
		t.Errorf("list %s: %v", k, err)
	}
	if len(list) == 0 {
		return
	}

	n := list[0].Number
	got, err := s.Get(t.Context(), k, n)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return // deleted in between
	}
	if err != nil || !bytes.Equal(got, data(session, int(n))) {
		t.Errorf("get %d of %s while it is written: got %s, %v", n, k, short(got), err)
	}
}
