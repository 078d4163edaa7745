//go:build linux

package index

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"belay/internal/state/check/checktest"
	"belay/internal/vfs/vfstest"
)

// long says whether the long forms are asked for.
func long() bool { return os.Getenv("BELAY_LONG") != "" }

// G02: the disk is full while SQLite writes, at each of many places. The index has a small disk of its own.
func TestG02FullDiskUnderTheIndex(t *testing.T) {
	f := newFolder(t)
	if err := syscall.Mount("belay-test", f.Root, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(f.Root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})

	for i := range 12 {
		f.save(
			t,
			talked(
				key("a", i), fmt.Sprint("/w/", i%3), fmt.Sprint("wish ", i),
				strings.Repeat(fmt.Sprint("more of ", i, " "), 200),
			),
		)
	}

	want := f.told(t)
	met, step := 0, int64(40<<10)
	if long() {
		step = 4 << 10
	}

	for free := int64(0); free < 200<<10; free += step {
		for _, there := range []bool{false, true} {
			when := fmt.Sprintf("%d bytes free, an index there before: %t", free, there)
			if !there {
				f.ruin(t)
			}

			for i := range 12 { // all is to be written again
				f.age(t, filepath.Join(f.Session(key("a", i)), "state.json"))
			}

			empty := fill(t, f.Root, free)
			if got := f.told(t); got != want {
				t.Fatalf("%s: told\n%s\nwant\n%s", when, got, want)
			}
			if f.reads(t) > 0 {
				met++
			}

			empty()
			f.wholeAgain(t, when, want)
		}
	}

	t.Logf("at %d places the index met the end of the disk", met)
	if met < 4 {
		t.Errorf("at %d places the index met the end of the disk: the test proved nothing", met)
	}
}

// ruin takes the index away as a person would.
func (f folder) ruin(t *testing.T) {
	t.Helper()
	for _, end := range besides {
		if err := os.Remove(f.Index() + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// wholeAgain is what must hold once a fault is over: one question later the index serves, and the store is whole.
func (f folder) wholeAgain(t *testing.T, when, want string) {
	t.Helper()
	if got := f.told(t); got != want {
		t.Fatalf("%s, afterwards: told\n%s\nwant\n%s", when, got, want)
	}
	if n := f.reads(t); n != 0 {
		t.Errorf("%s: %d files are read by a later list, want none: the index was not made whole", when, n)
	}

	checktest.Whole(t, f.Root)
	if t.Failed() {
		t.FailNow()
	}
}

// fill leaves so many bytes free on a folder's disk.
func fill(t *testing.T, dir string, free int64) (empty func()) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}

	n, err := io.Copy(file, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk took %d bytes, %v; want it full", n, err)
	}
	if err := errors.Join(file.Truncate(max(n-free, 0)), file.Close()); err != nil {
		t.Fatal(err)
	}

	return func() {
		if err := os.Remove(file.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// G02: the kernel answers SQLite with an input/output error, at the n-th call of each kind.
func TestG02InputOutputErrorsUnderTheIndex(t *testing.T) {
	if root := vfstest.Victim(); root != "" {
		fmt.Println(folderAt(root).told(t))
		return
	}

	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("no strace here: %v", err)
	}

	f := newFolder(t)
	for i := range 4 {
		f.save(t, talked(key("a", i), "/w/1", fmt.Sprint("wish ", i)))
	}

	want := f.told(t)
	for _, calls := range []string{
		"pwrite64", "fsync,fdatasync", "ftruncate", "pread64", "openat", "mmap", "unlink,unlinkat",
	} {
		fired, most := 0, 4
		if long() {
			most = 40
		}

		for n := 1; n <= most; n += 1 + n/3 {
			when := fmt.Sprintf("call %d of %s fails", n, calls)
			if n%2 == 0 {
				f.ruin(t)
			}

			for i := range 4 {
				f.age(t, filepath.Join(f.Session(key("a", i)), "state.json"))
			}

			got, hit := f.toldUnder(t, strace, calls, n)
			if !strings.HasPrefix(got, want) {
				t.Fatalf("%s: told\n%s\nwant\n%s", when, got, want)
			}

			f.wholeAgain(t, when, want)
			if !hit {
				break
			}

			fired++
		}

		t.Logf("%s: %d calls failed", calls, fired)
	}
}

// toldUnder is told by another process, whose n-th call on the index's files fails. It says whether there was such a
// call.
func (f folder) toldUnder(t *testing.T, strace, calls string, n int) (told string, hit bool) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "calls")
	args := []string{
		"-f",
		"-qq",
		"-o",
		log,
		"-e",
		"trace=" + calls,
		"-e",
		fmt.Sprintf("inject=%s:error=EIO:when=%d", calls, n),
	}

	for _, end := range besides {
		args = append(args, "-P", f.Index()+end)
	}

	cmd := exec.Command(strace, append(args, os.Args[0], "-test.run=^"+t.Name()+"$")...)
	cmd.Env = append(os.Environ(), vfstest.VictimIn+"="+f.Root)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if strings.Contains(said.String(), "ptrace") {
		t.Skipf("strace cannot hold a process here: %s", said.String())
	}
	if err != nil {
		t.Errorf("%v: %s", err, said.String())
	}

	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}

	return string(out), strings.Contains(string(data), "INJECTED")
}
