package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"belay/internal/vfs"
)

var start = time.UnixMilli(1775000000000)

func header(id string) []byte { return fmt.Appendf(nil, `{"v":1,"op":"hook","id":%q}`, id) }

func write(t *testing.T, dir, id, payload string, at time.Time) {
	t.Helper()
	if n, err := Write(vfs.OS{}, dir, DefaultLimits(), header(id), []byte(payload), at); n != 0 || err != nil {
		t.Fatalf("write %s: dropped %d, error %v, want 0 and none", id, n, err)
	}
}

// drained gives the payloads that a Drain takes.
func drained(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	n, err := Drain(t.Context(), vfs.OS{}, dir, func(_, payload []byte) error {
		got = append(got, string(payload))
		return nil
	})

	if err != nil || n != len(got) {
		t.Fatalf("drain: n %d, error %v, want %d and none", n, err, len(got))
	}

	return got
}

func wantList(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func wantDropped(t *testing.T, dir string, want int) {
	t.Helper()
	if got, err := Dropped(vfs.OS{}, dir); got != want || err != nil {
		t.Errorf("dropped: got %d, %v, want %d and no error", got, err, want)
	}
}

func TestEventsComeBackWholeAndInOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "spool")
	write(t, dir, "b", "second\nwith a line end\x00", start.Add(time.Second))
	write(t, dir, "c", "third", start.Add(time.Second))
	write(t, dir, "a", "first", start)
	var headers []string
	var payloads []string
	n, err := Drain(t.Context(), vfs.OS{}, dir, func(h, p []byte) error {
		headers, payloads = append(headers, string(h)), append(payloads, string(p))
		return nil
	})

	if n != 3 || err != nil {
		t.Fatalf("drain: got %d, %v, want 3 and no error", n, err)
	}

	wantList(t, headers, string(header("a")), string(header("b")), string(header("c")))
	wantList(t, payloads, "first", "second\nwith a line end\x00", "third")
	if n, _, err := Pending(vfs.OS{}, dir); n != 0 || err != nil {
		t.Errorf("pending after drain: got %d, %v, want 0", n, err)
	}

	wantList(t, drained(t, dir))
	wantDropped(t, dir, 0)
}

// The clock is set back by a day while no daemon runs, and forward again.
func TestOrderWhenTheClockIsSetBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	write(t, dir, "c", "first", start)
	write(t, dir, "a", "second", start.Add(-24*time.Hour))
	write(t, dir, "b", "third", start.Add(-24*time.Hour+time.Second))
	write(t, dir, "a0", "fourth", start.Add(time.Hour))
	wantList(t, drained(t, dir), "first", "second", "third", "fourth")
}

func TestX04ModesUnderAnyUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "state", "spool")
	write(t, dir, "a", "p", start)
	if err := Count(vfs.OS{}, dir, 1); err != nil {
		t.Fatal(err)
	}

	err := filepath.WalkDir(filepath.Dir(dir), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o, want nothing for group and others", filepath.Base(p), fi.Mode().Perm())
		}

		return err
	})

	if err != nil {
		t.Fatal(err)
	}
}

func TestLimits(t *testing.T) {
	kb5 := strings.Repeat("x", 5000) // two blocks
	tests := []struct {
		name    string
		limits  Limits
		events  []string
		step    time.Duration
		want    []string
		dropped int
	}{
		{"all fit", Limits{3 * block, time.Hour}, []string{"a", "b", "c"}, time.Second, []string{"a", "b", "c"}, 0},
		{"the oldest makes room", Limits{3 * block, time.Hour}, []string{"a", "b", "c", "d"}, time.Second,
			[]string{"b", "c", "d"}, 1},
		{"a big one pushes two out", Limits{3 * block, time.Hour}, []string{"a", "b", "c", kb5}, time.Second,
			[]string{"c", kb5}, 2},
		{"too old", Limits{9 * block, time.Hour}, []string{"a", "b", "c"}, 40 * time.Minute, []string{"b", "c"}, 1},
		{"larger than the spool", Limits{block, time.Hour}, []string{"a", kb5}, time.Second, []string{"a"}, 1},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			dropped := 0
			for i, p := range tt.events {
				at := start.Add(time.Duration(i) * tt.step)
				n, err := Write(vfs.OS{}, dir, tt.limits, header(fmt.Sprint(i)), []byte(p), at)
				if err != nil {
					t.Fatal(err)
				}
				dropped += n
			}

			if dropped != tt.dropped {
				t.Errorf("dropped by Write: got %d, want %d", dropped, tt.dropped)
			}

			wantDropped(t, dir, tt.dropped)
			wantDropped(t, dir, 0)
			wantList(t, drained(t, dir), tt.want...)
		})
	}
}

func TestWriteRefusesAnEventWithoutHeader(t *testing.T) {
	for _, h := range []string{"", "\n", "a\nb"} {
		_, err := Write(vfs.OS{}, t.TempDir(), DefaultLimits(), []byte(h), nil, start)
		if !errors.Is(err, ErrNoHeader) {
			t.Errorf("header %q: got %v, want ErrNoHeader", h, err)
		}
	}
}

func TestIDsMakeSafeNames(t *testing.T) {
	for _, id := range []string{"", "../../x", "a/b", strings.Repeat("y", 200), "é", "a.b"} {
		dir := t.TempDir()
		write(t, dir, id, "p", start)
		wantList(t, drained(t, dir), "p")
	}
}

func TestPoisonIsSetAsideAfterThreeTries(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", "poison", start)
	write(t, dir, "b", "good", start.Add(time.Second))
	boom := errors.New("boom")
	for try := 1; try <= 4; try++ {
		var got []string
		n, err := Drain(t.Context(), vfs.OS{}, dir, func(_, p []byte) error {
			got = append(got, string(p))
			if string(p) == "poison" {
				return boom
			}
			return nil
		})

		switch {
		case try == 1 && (n != 1 || !errors.Is(err, boom) || len(got) != 2):
			t.Errorf("try 1: got n %d, error %v, events %q; want the good one taken and boom told", n, err, got)
		case (try == 2 || try == 3) && (n != 0 || !errors.Is(err, boom) || len(got) != 1):
			t.Errorf("try %d: got n %d, error %v, events %q; want the poison alone", try, n, err, got)
		case try == 4 && (n != 0 || err != nil || len(got) != 0):
			t.Errorf("try 4: got n %d, error %v, events %q; want nothing left", n, err, got)
		}
	}

	bad, err := os.ReadDir(filepath.Join(dir, badDir))
	if err != nil || len(bad) != 1 {
		t.Errorf("set aside: got %d files, %v, want 1", len(bad), err)
	}

	wantDropped(t, dir, 1)
}

func TestABrokenFileIsNotGivenOut(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1775000000000-a.2"), []byte("no line end"), 0o600); err != nil {
		t.Fatal(err)
	}

	n, err := Drain(t.Context(), vfs.OS{}, dir, func(h, _ []byte) error {
		t.Errorf("got %q, want nothing", h)
		return nil
	})

	if n != 0 || !errors.Is(err, ErrNoHeader) {
		t.Errorf("got %d, %v, want 0 and ErrNoHeader", n, err)
	}

	wantDropped(t, dir, 1)
}

func TestNobodyThereBlamesNoFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", "one", start)
	write(t, dir, "b", "two", start)
	for range 5 {
		calls := 0
		_, err := Drain(t.Context(), vfs.OS{}, dir, func(_, _ []byte) error {
			calls++
			return fmt.Errorf("%w: daemon went away", ErrStop)
		})

		if !errors.Is(err, ErrStop) || calls != 1 {
			t.Fatalf("got %v after %d calls, want ErrStop after 1", err, calls)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 5 {
		_, err := Drain(ctx, vfs.OS{}, dir, func(_, _ []byte) error {
			cancel()
			return errors.New("cut off")
		})
		if err == nil {
			t.Fatal("drain that was ended: got no error")
		}
	}

	wantList(t, drained(t, dir), "one", "two")
	wantDropped(t, dir, 0)
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"notes.txt", "1775000000000-a", ".hidden", "x-y.0"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a\nb"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if n, err := Write(vfs.OS{}, dir, Limits{block, time.Hour}, header("a"), nil, start); n != 0 || err != nil {
		t.Errorf("got %d, %v, want nothing dropped", n, err)
	}

	wantList(t, drained(t, dir), "")
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("got %d files, want the 4 foreign ones", len(left))
	}
}

func TestLeftOversOfACrashGoByAge(t *testing.T) {
	dir := t.TempDir()
	left := ".1775000000000-a.0" + vfs.TempSuffix
	if err := os.WriteFile(filepath.Join(dir, left), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}

	there := func() bool { _, err := os.Lstat(filepath.Join(dir, left)); return err == nil }
	write(t, dir, "b", "p", start.Add(time.Minute))
	if !there() {
		t.Error("a temporary file of a minute ago was removed under its writer")
	}

	write(t, dir, "c", "q", start.Add(2*time.Hour))
	if there() {
		t.Error("a temporary file of two hours ago is still there")
	}

	wantList(t, drained(t, dir), "p", "q")
	wantDropped(t, dir, 0)
}

func TestManyProcessesAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 10 {
				if err := Count(vfs.OS{}, dir, 2); err != nil {
					t.Error(err)
				}
				id := fmt.Sprintf("%d-%d", w, i)
				if _, err := Write(vfs.OS{}, dir, DefaultLimits(), header(id), []byte(id), start); err != nil {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	var mu sync.Mutex
	seen := map[string]bool{}
	for range 4 {
		wg.Go(func() {
			_, err := Drain(t.Context(), vfs.OS{}, dir, func(_, p []byte) error {
				mu.Lock()
				defer mu.Unlock()
				seen[string(p)] = true
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	if len(seen) != 80 {
		t.Errorf("got %d events, want 80", len(seen))
	}

	wantDropped(t, dir, 160)
}

func TestACrashWhileCountingLosesNoCount(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, takenFile), []byte("3\ntorn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Count(vfs.OS{}, dir, 5); err != nil {
		t.Fatal(err)
	}

	wantDropped(t, dir, 4)
	wantDropped(t, dir, 5)
	wantDropped(t, dir, 0)
}

// TestM06TenThousandEvents: a spool of weeks is emptied in order and in bounded time.
func TestM06TenThousandEvents(t *testing.T) {
	dir, err := os.MkdirTemp(
		"/dev/shm", "belay-spool",
	) // in memory where there is such a folder: this is about our own cost

	if err != nil {
		dir = t.TempDir()
	}

	defer os.RemoveAll(dir)
	payload := strings.Repeat("p", 235)
	for i := range 10_000 { // as Write names them, without its 10,000 syncs
		name := fmt.Sprintf("%013d-%05d.0", start.UnixMilli()+int64(i), i)
		data := fmt.Sprintf(`{"v":1,"id":"%05d","session":"s%d"}`+"\n%s", i, i%20, payload)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write(t, dir, "10000", payload, start.Add(10*time.Second))
	began, i := time.Now(), 0
	n, err := Drain(t.Context(), vfs.OS{}, dir, func(h, _ []byte) error {
		if want := fmt.Appendf(nil, `"id":"%05d"`, i); !bytes.Contains(h, want) {
			t.Errorf("event %d: got %s, want %s", i, h, want)
		}
		i++
		return nil
	})

	took := time.Since(began)
	if n != 10_001 || err != nil {
		t.Errorf("got %d, %v, want 10001 and no error", n, err)
	}
	if took > 10*time.Second { // under a second on an idle machine; the bound only tells linear from quadratic
		t.Errorf("drain took %v, want about a second", took)
	}

	t.Logf("10,001 events in %v", took)
}
