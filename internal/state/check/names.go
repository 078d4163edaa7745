package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"belay/internal/vfs"
)

// names are all that belay makes in its state folder whatever its store is, as patterns of path.Match. A folder ends in
// a slash.
var names = []string{
	"belay.sock", "belay.lock", "belay.log", "belay-*.log", "belay-*.log.gz",
	"start.lock", "start.stamp", "drain.lock", "intake.[0-9].lock", "rest.[0-9].lock",
	"breaker.json", "beat.json", "active.json",
	"index.db", "index.db-wal", "index.db-shm", "index.db-journal",
	"journal/", "journal/" + twenty + ".log", "journal/damaged/", "journal/damaged/" + twenty + ".log",
	"spool/", "spool/dropped", "spool/dropped.read", "spool/" + thirteen + "-*.[0-9]*",
	"spool/bad/", "spool/bad/" + thirteen + "-*.[0-9]*",
	"install/", "install/*/", "install/*/*",
	"sessions/", "sessions/*/", "sessions/*/*/", "sessions/*/*/state.json", "sessions/*/*/state.json.bad",
	"sessions/*/*/transcript*.jsonl.zst", "sessions/*/*/transcript*.jsonl.age",
}

// aside are the names of what belay put away because it could not use it.
var aside = []string{"journal/damaged/*.log", "spool/bad/*", "sessions/*/*/state.json.bad"}

const (
	thirteen = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"
	twenty   = thirteen + "[0-9][0-9][0-9][0-9][0-9][0-9][0-9]"
)

func matches(list []string, rel string, dir bool) bool {
	if dir {
		rel += "/"
	}
	return slices.ContainsFunc(list, func(pattern string) bool {
		ok, _ := path.Match(pattern, rel) // the patterns are ours
		return ok
	})
}

// root checks the folder itself and what lies in it, as far as the sessions.
func (c *check) root(_ context.Context, say func(Finding)) {
	f, err := c.d.FS.OpenFile(c.d.Root, os.O_RDONLY, 0) // it may be a link of the user's own making
	if err != nil {
		c.hopeless = true
		say(unreadable("", err))
		return
	}

	defer f.Close() // read only: nothing can be lost
	info, err := f.Stat()
	if err != nil {
		say(unreadable("", err))
		return
	}

	if !info.IsDir() {
		c.hopeless = true
		say(Finding{Rule: Readable,
			Said: "the state folder is a file",
			Do:   "move it away; the daemon makes the folder"})
		return
	}

	c.private("", info, say)
	entries, ok := c.list("", say)
	if !ok {
		return
	}

	for _, e := range entries {
		c.entry(e.Name(), e, say)
	}

	for _, a := range c.listQuiet("sessions", say) {
		c.entry("sessions/"+a.Name(), a, say)
		for _, id := range c.listQuiet("sessions/"+a.Name(), say) {
			c.entry("sessions/"+a.Name()+"/"+id.Name(), id, say)
		}
	}
}

// tree checks all names below a folder.
func (c *check) tree(rel string, say func(Finding)) {
	for _, e := range c.listQuiet(rel, say) {
		name := rel + "/" + e.Name()
		c.entry(name, e, say)
		if e.IsDir() {
			c.tree(name, say)
		}
	}
}

func (c *check) list(rel string, say func(Finding)) ([]fs.DirEntry, bool) {
	entries, err := c.d.FS.ReadDir(filepath.Join(c.d.Root, rel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case errors.Is(err, syscall.ENOTDIR):
		return nil, false // its entry in the folder above is told
	case err != nil:
		say(unreadable(rel, err))
		return nil, false
	}

	return entries, true
}

func (c *check) listQuiet(rel string, say func(Finding)) []fs.DirEntry {
	entries, _ := c.list(rel, say)
	return entries
}

func unreadable(rel string, err error) Finding {
	return Finding{Rule: Readable, Path: rel, Said: err.Error(), Do: "make it readable for yourself, or check the disk"}
}

// entry checks one name: whose it is, who may read it, and that belay makes such a one.
func (c *check) entry(rel string, e fs.DirEntry, say func(Finding)) {
	info, err := e.Info()
	if err != nil {
		return // gone since it was listed
	}
	if !c.private(rel, info, say) {
		return
	}

	base := path.Base(rel)
	if made, temp := strings.CutSuffix(base, vfs.TempSuffix); temp && strings.HasPrefix(made, ".") && !e.IsDir() {
		rel := path.Join(path.Dir(rel), made[1:])
		if !matches(c.names, rel, false) {
			say(Finding{Rule: Known, Path: path.Join(path.Dir(rel), base),
				Said: "a temporary file of nothing that belay writes",
				Do:   "remove it"})
		} else if !c.o.Daemon.IsZero() &&
			info.ModTime().Before(c.d.SweepBefore(filepath.Join(c.d.Root, rel), c.o.Daemon)) {
			say(Finding{Rule: Swept, Path: path.Join(path.Dir(rel), base),
				Said: "a temporary file of an earlier run, which the daemon should have removed",
				Do:   "remove it"})
		}

		return
	}

	switch {
	case !matches(c.names, rel, e.IsDir()):
		say(Finding{Rule: Known, Path: rel,
			Said: "nothing that belay makes",
			Do:   "move it elsewhere: nothing else belongs in this folder"})
	case matches(aside, rel, false):
		say(Finding{
			Rule: Aside,
			Path: rel,
			Note: true,
			Said: fmt.Sprintf(
				"a damaged file that was set aside on %s", info.ModTime().UTC().Format("2006-01-02 15:04"),
			),
			Do: "look at it if you miss something, then remove it",
		})
	}
}

// private checks mode and owner, and says whether belay would use what is there.
func (c *check) private(rel string, info fs.FileInfo, say func(Finding)) bool {
	bad := func(format string, args ...any) {
		say(Finding{Rule: Private, Path: rel,
			Said: fmt.Sprintf(format, args...),
			Do:   "belay does not use what others may have touched: remove it, or make it yours alone (chmod go=)"})
	}

	if info.Mode()&fs.ModeSymlink != 0 {
		bad("a link; belay follows none in its folder")
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		bad("belongs to user %d", st.Uid)
		return false
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		bad("mode %04o: others can get at it", info.Mode().Perm())
	}

	return true
}
