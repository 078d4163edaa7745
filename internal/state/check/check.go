// Package check checks a whole state folder and reports every rule that is broken in it: modes, owners and names, the
// journal, the saved states, every checkpoint to its last byte, the mirrors, the spool and the small files. It is what
// `belay doctor store` runs, and the oracle at the end of belay's own tests.
//
// It promises: it only reads, and takes no lock; beside a daemon that works it raises no false alarm, because what
// looks broken is looked at again; what a crash may leave and the next start mends (a temporary file, a torn tail, a
// checkpoint that the journal does not know yet) is no broken rule.
//
// It does not promise to find what was lost without a trace: a whole session's folder that is gone, or a newest
// checkpoint. A transcript's cursor means something to its reader alone and goes back when an agent rewrites its file,
// so the order of checkpoints is held by the numbers of messages and of news in them.
package check

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"
	"time"

	"belay/checkpoint"
	"belay/internal/state"
	"belay/internal/state/spool"
)

// Rule is what must hold.
type Rule string

// The rules.
const (
	Readable   Rule = "readable"   // all of the folder can be read
	Private    Rule = "private"    // folders 0700, files 0600, all of this user's own, no links
	Known      Rule = "known"      // no names but belay's own
	Swept      Rule = "swept"      // no temporary file is older than the daemon
	Journal    Rule = "journal"    // every record is whole, and none is missing
	Numbers    Rule = "numbers"    // no state is ahead of the journal
	State      Rule = "state"      // a saved state reads, and lies in its session's folder
	Checkpoint Rule = "checkpoint" // it is what was written, under its own number, level and session
	Chain      Rule = "chain"      // a SPARSE has its FULL, and a session that had a FULL has a whole one
	Once       Rule = "once"       // checkpoints go on where the one before ended
	Budget     Rule = "budget"     // retention is kept
	Mirror     Rule = "mirror"     // every copy of a transcript reads to its end
	Spool      Rule = "spool"      // every waiting event reads, and all are within their limits
	Lists      Rule = "lists"      // breaker, heartbeat and list of active sessions read
	Aside      Rule = "aside"      // a damaged file that was set aside has been seen by somebody
)

// Finding is one broken rule.
type Finding struct {
	Rule Rule   `json:"rule"`
	Path string `json:"path"` // below the state folder
	Said string `json:"said"`
	Do   string `json:"do"`
	// Note marks what a person should know and what is no fault of the store.
	Note bool `json:"note,omitempty"`
}

// Options of a check. The zero value checks everything for a folder on which no daemon works.
type Options struct {
	// Daemon is when the daemon that works on the folder was started; zero when none does.
	Daemon time.Time
	// Session leaves out all sessions but those it accepts, by their folder (Key.Dir); nil: none.
	Session func(dir string) bool
	// Retention, Total and Spool are the bounds that hold; zero fields are none.
	Retention checkpoint.Policy
	Total     int64
	Spool     spool.Limits
	// Step is called before each session, with how many there are.
	Step func(all int)
}

// again is how long after a first look the second one comes, where a daemon works: a save is over by then.
const again = 300 * time.Millisecond

// Checker is a store that keeps its checkpoints as files in the state folder and lets the check look at each. Of
// another store the check sees what List and Get give.
type Checker interface {
	// Names are what the store makes below the state folder, as patterns of path.Match; a folder's name ends in a
	// slash.
	Names() []string
	// Walk calls fn for each file that bears a checkpoint's name in a session's folder (checkpoint.Key.Dir), lowest
	// number first, until fn says false. path is below the state folder.
	Walk(session string, fn func(path string, m checkpoint.Meta, info fs.FileInfo) bool) error
}

// Check gives every finding. It ends early when ctx does. A folder that is not there has none.
func Check(ctx context.Context, d state.Dir, o Options) iter.Seq[Finding] {
	return func(yield func(Finding) bool) {
		c := &check{d: d, o: o, yield: yield}
		c.run(ctx)
	}
}

// check is one run.
type check struct {
	d     state.Dir
	o     Options
	yield func(Finding) bool
	done  bool // nobody wants more
	store checkpoint.Store
	names []string // that belay or its store makes in the folder
	// hopeless is set when the folder itself cannot be used.
	hopeless bool

	seqs map[string]uint64 // the journal's number in each state, by the session's folder
	kept map[string]int64  // bytes of each session's checkpoints
}

// part is one part of a run: it hands what it finds to say.
type part func(ctx context.Context, say func(Finding))

// do runs a part, and a second time where a daemon works: what both runs find is reported.
func (c *check) do(ctx context.Context, p part) {
	if c.done || c.hopeless || ctx.Err() != nil {
		return
	}

	found := p.findings(ctx)
	if len(found) > 0 && !c.o.Daemon.IsZero() {
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}

		second := p.findings(ctx)
		found = slices.DeleteFunc(found, func(f Finding) bool {
			return !slices.ContainsFunc(second, func(s Finding) bool { return s.Rule == f.Rule && s.Path == f.Path })
		})
	}

	for _, f := range found {
		if !c.done && !c.yield(f) {
			c.done = true
		}
	}
}

func (p part) findings(ctx context.Context) (found []Finding) {
	p(ctx, func(f Finding) { found = append(found, f) })
	return found
}

func (c *check) run(ctx context.Context) {
	c.seqs, c.kept = map[string]uint64{}, map[string]int64{}
	if _, err := c.d.FS.Lstat(c.d.Root); errors.Is(err, fs.ErrNotExist) {
		return
	}

	c.names = names
	var err error
	if c.store, err = c.d.OpenStore(); err != nil {
		c.do(ctx, func(_ context.Context, say func(Finding)) { say(unreadable("", err)) })
		return
	}

	defer c.store.Close() // nothing is written through it
	if checker, ok := c.store.(Checker); ok {
		c.names = slices.Concat(names, checker.Names())
	}

	c.do(ctx, c.root)
	folders := c.sessions()
	for _, dir := range folders {
		if c.o.Step != nil {
			c.o.Step(len(folders))
		}
		c.do(ctx, func(ctx context.Context, say func(Finding)) { c.session(ctx, dir, say) })
	}

	c.do(ctx, c.journal) // after the states: it only grows meanwhile
	if c.o.Session != nil {
		return
	}

	for _, dir := range []string{"journal", "spool", "install"} {
		c.do(ctx, func(_ context.Context, say func(Finding)) { c.tree(dir, say) })
	}

	c.do(ctx, c.spool)
	c.do(ctx, c.lists)
	c.do(ctx, c.sum)
}

// sessions lists the folders of sessions, as Key.Dir names them. What cannot be listed is told by the walk over names.
func (c *check) sessions() []string {
	var list []string
	agents, _ := c.d.FS.ReadDir(c.d.Sessions())
	for _, a := range agents {
		ids, _ := c.d.FS.ReadDir(filepath.Join(c.d.Sessions(), a.Name()))
		for _, id := range ids {
			if dir := a.Name() + "/" + id.Name(); id.IsDir() && (c.o.Session == nil || c.o.Session(dir)) {
				list = append(list, dir)
			}
		}
	}

	return list
}
