// Package vfstest holds the disks that tests use in place of the real one: Mem keeps everything in memory and can lose
// power, Fault makes chosen operations of any vfs.FS fail and lists all of them. Sweep puts both together: a script
// meets every fault at every operation.
//
// Mem promises to be as unkind as a disk may be: what was not synced is there, or not, or in part, and a file whose
// name was not synced (SyncDir) may be gone although its bytes were. It knows no links, owners or quotas, and modes are
// kept but not enforced. It is not linked into the product.
package vfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"belay/internal/vfs"
)

// sector is what a disk writes whole, or not at all.
const sector = 512

// Mem is a file system in memory. The folders "/" and "." are always there. It is safe for concurrent use.
type Mem struct {
	mu struct {
		sync.Mutex
		names  map[string]*node // as programs see them
		stable map[string]*node // as of the last SyncDir of their folder
	}
}

// node is a file or a folder; names point to it.
type node struct {
	dir    bool
	mode   fs.FileMode
	mod    time.Time
	data   []byte // as programs see it
	stable []byte // as of the last Sync
	todo   []change
}

// change is one write (data at off) or one truncation (data nil, to off) since the last Sync.
type change struct {
	off  int64
	data []byte
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	m := &Mem{}
	m.mu.names, m.mu.stable = map[string]*node{}, map[string]*node{}
	for _, top := range []string{"/", "."} {
		n := &node{dir: true, mode: fs.ModeDir | vfs.DirMode}
		m.mu.names[top], m.mu.stable[top] = n, n
	}
	return m
}

// CrashClone returns what the disk holds if the power goes now: all that was synced, and of the rest a share that the
// seed decides. The original goes on unchanged, and so do the files that are open in it.
func (m *Mem) CrashClone(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	rnd := rand.New(rand.NewPCG(seed, 0xbe1a))
	left := map[string]*node{}
	for _, name := range unionOfNames(m.mu.names, m.mu.stable) {
		n := m.mu.stable[name]
		if now := m.mu.names[name]; now != n && rnd.IntN(2) == 0 {
			n = now
		}
		if n != nil {
			left[name] = n
		}
	}

	m.keepMoved(left, rnd)
	clone := NewMem()
	survivors := map[*node]*node{} // two names of one file stay one file
	for _, name := range unionOfNames(left, nil) {
		if _, ok := clone.mu.names[name]; ok || clone.mu.names[filepath.Dir(name)] == nil {
			continue // "/" and ".", and what lies in a folder that is gone
		}

		n := left[name]
		s := survivors[n]
		if s == nil {
			data := n.afterCrash(rnd)
			s = &node{dir: n.dir, mode: n.mode, mod: n.mod, data: data, stable: append([]byte(nil), data...)}
			survivors[n] = s
		}

		clone.mu.names[name], clone.mu.stable[name] = s, s
	}

	return clone
}

// keepMoved gives each file that was renamed one of its two names, where chance left it neither: every file system that
// is in use renames a file as one step. It is called under the lock.
func (m *Mem) keepMoved(left map[string]*node, rnd *rand.Rand) {
	there, moved := map[*node]bool{}, map[*node]string{}
	for _, n := range left {
		there[n] = true
	}

	for name, n := range m.mu.names {
		moved[n] = name
	}

	for _, old := range unionOfNames(m.mu.stable, nil) {
		n := m.mu.stable[old]
		name, ok := moved[n]
		if n.dir || !ok || there[n] {
			continue
		}
		if left[old] == nil && rnd.IntN(2) == 0 {
			name = old
		}

		left[name] = n
	}
}

// unionOfNames is sorted, so that one seed always gives one disk and folders come before what they hold.
func unionOfNames(a, b map[string]*node) []string {
	var out []string
	for name := range a {
		out = append(out, name)
	}

	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}

	sort.Strings(out)
	return out
}

// afterCrash gives the bytes that a crash leaves of a file: the unsynced changes up to a random byte, or, as disks also
// write out of order, any mixture of old and new sectors.
func (n *node) afterCrash(rnd *rand.Rand) []byte {
	data := append([]byte(nil), n.stable...)
	if len(n.todo) == 0 {
		return data
	}

	if rnd.IntN(2) == 0 {
		for _, c := range n.todo[:rnd.IntN(len(n.todo)+1)] {
			data = c.apply(data)
		}

		last := n.todo[rnd.IntN(len(n.todo))]
		if cut := rnd.IntN(len(last.data) + 1); cut > 0 {
			data = change{last.off, last.data[:cut]}.apply(data)
		}

		return data
	}

	whole := append([]byte(nil), data...)
	for _, c := range n.todo {
		whole = c.apply(whole)
	}

	if rnd.IntN(2) == 0 {
		data = resize(data, int64(len(whole)))
	}

	for at := 0; at < len(data) && at < len(whole); at += sector {
		if rnd.IntN(2) == 0 {
			copy(data[at:min(at+sector, len(data))], whole[at:])
		}
	}

	return data
}

func (c change) apply(data []byte) []byte {
	if c.data == nil {
		return resize(data, c.off)
	}
	if end := c.off + int64(len(c.data)); end > int64(len(data)) {
		data = resize(data, end)
	}

	copy(data[c.off:], c.data)
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

func fail(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// OpenFile works as os.OpenFile does.
func (m *Mem) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	writes := flag&(os.O_WRONLY|os.O_RDWR) != 0
	n := m.mu.names[name]
	switch {
	case n == nil && flag&os.O_CREATE == 0:
		return nil, fail("open", name, fs.ErrNotExist)
	case n == nil:
		if err := m.folder(filepath.Dir(name)); err != nil {
			return nil, fail("open", name, err)
		}
		n = &node{mode: perm.Perm(), mod: time.Now()}
		m.mu.names[name] = n

	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, fail("open", name, fs.ErrExist)
	case n.dir && writes:
		return nil, fail("open", name, syscall.EISDIR)
	}

	if flag&os.O_TRUNC != 0 && writes {
		n.change(change{})
	}

	return &memFile{m: m, n: n, name: name, flag: flag}, nil
}

// change is called under the lock.
func (n *node) change(c change) {
	n.todo = append(n.todo, c)
	n.data = c.apply(n.data)
	n.mod = time.Now()
}

func (m *Mem) folder(name string) error {
	switch n := m.mu.names[name]; {
	case n == nil:
		return fs.ErrNotExist
	case !n.dir:
		return syscall.ENOTDIR
	}
	return nil
}

// Rename works as os.Rename does, folders with all that is in them included.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	n, there := m.mu.names[oldName], m.mu.names[newName]
	err := m.folder(filepath.Dir(newName))
	switch {
	case n == nil:
		err = fs.ErrNotExist
	case there != nil && there.dir && (!n.dir || len(m.children(newName)) > 0):
		err = fs.ErrExist
	case there != nil && n.dir && !there.dir:
		err = syscall.ENOTDIR
	}

	if err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	if oldName == newName {
		return nil
	}

	for _, name := range unionOfNames(m.mu.names, nil) {
		if name == oldName || strings.HasPrefix(name, oldName+"/") {
			m.mu.names[newName+name[len(oldName):]] = m.mu.names[name]
			delete(m.mu.names, name)
		}
	}

	return nil
}

// Remove removes a file or an empty folder.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	n := m.mu.names[name]
	if n == nil {
		return fail("remove", name, fs.ErrNotExist)
	}
	if n.dir && len(m.children(name)) > 0 {
		return fail("remove", name, syscall.ENOTEMPTY)
	}

	delete(m.mu.names, name)
	return nil
}

// MkdirAll makes a folder and those above it.
func (m *Mem) MkdirAll(path string, perm fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var missing []string
	for name := filepath.Clean(path); ; name = filepath.Dir(name) {
		err := m.folder(name)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fail("mkdir", name, err)
		}

		missing = append(missing, name)
	}

	for _, name := range missing {
		m.mu.names[name] = &node{dir: true, mode: fs.ModeDir | perm.Perm(), mod: time.Now()}
	}

	return nil
}

// children lists the names directly in a folder; called under the lock.
func (m *Mem) children(dir string) []string {
	var out []string
	for name := range m.mu.names {
		if name != dir && filepath.Dir(name) == dir {
			out = append(out, name)
		}
	}

	sort.Strings(out)
	return out
}

// ReadDir lists a folder, sorted by name.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if err := m.folder(name); err != nil {
		return nil, fail("open", name, err)
	}

	var out []fs.DirEntry
	for _, child := range m.children(name) {
		out = append(out, fs.FileInfoToDirEntry(m.mu.names[child].info(child)))
	}

	return out, nil
}

// Lstat describes a file or folder.
func (m *Mem) Lstat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	n := m.mu.names[name]
	if n == nil {
		return nil, fail("lstat", name, fs.ErrNotExist)
	}

	return n.info(name), nil
}

// SyncDir makes the names in a folder survive a CrashClone, new, renamed and removed ones alike.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if err := m.folder(name); err != nil {
		return fail("sync", name, err)
	}

	for child := range m.mu.stable {
		if child != name && filepath.Dir(child) == name && m.mu.names[child] == nil {
			delete(m.mu.stable, child)
		}
	}

	for _, child := range m.children(name) {
		m.mu.stable[child] = m.mu.names[child]
	}

	return nil
}

// String lists all files with their sizes, for messages of tests.
func (m *Mem) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	for _, name := range unionOfNames(m.mu.names, nil) {
		if n := m.mu.names[name]; !n.dir {
			fmt.Fprintf(&b, "%s %d\n", name, len(n.data))
		}
	}

	return b.String()
}
