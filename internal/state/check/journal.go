package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"belay/breaker"
	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state/spool"
	"belay/internal/vfs"
)

// journal reads the whole log, and compares it with the states that were read before.
func (c *check) journal(ctx context.Context, say func(Finding)) {
	events := 0
	rep, err := journal.Scan(c.d.FS, c.d.Journal(), 0, func(_ uint64, payload []byte) error {
		if json.Unmarshal(payload, new(checkpoint.Event)) != nil {
			events++
		}
		return ctx.Err()
	})

	if ctx.Err() != nil {
		return
	}

	bad := func(note bool, do, format string, args ...any) {
		say(Finding{Rule: Journal, Path: "journal", Said: fmt.Sprintf(format, args...), Do: do, Note: note})
	}
	const disk = "the daemon goes past it and keeps a copy in journal/damaged; check the disk"
	switch {
	case err != nil:
		say(unreadable("journal", err))
		return
	case rep.Damaged > 0:
		bad(false, disk, "%d places (%d bytes) in the middle hold no record, %d records are lost",
			rep.Damaged, rep.DamagedBytes, rep.Lost)
	case rep.Unreadable > 0:
		bad(false, disk, "%d segments cannot be read: %v", rep.Unreadable, rep.Err)
	case rep.Lost > rep.Dropped:
		bad(false, disk, "%d records are missing", rep.Lost-rep.Dropped)
	case rep.Err != nil:
		say(unreadable("journal", rep.Err))
	}

	if rep.Dropped > 0 {
		bad(
			true, "nothing: belay status told it then",
			"%d records had no room in memory while the disk failed", rep.Dropped,
		)
	}

	if events > 0 {
		bad(true, "a later belay wrote them; it reads them", "%d records are no events that this belay knows", events)
	}

	ahead, highest := 0, uint64(0)
	for _, seq := range c.seqs {
		if seq > rep.High {
			ahead++
		}
		highest = max(highest, seq)
	}

	if ahead > 0 {
		say(Finding{
			Rule: Numbers,
			Path: "journal",
			Said: fmt.Sprintf(
				"it ends at %d, and %d saved states go up to %d: its end is lost", rep.High, ahead, highest,
			),
			Do: "nothing: the daemon goes on above it, and the states keep what they hold",
		})
	}
}

func (c *check) spool(_ context.Context, say func(Finding)) {
	spool.Check(c.d.FS, c.d.Spool(), c.o.Spool, func(name string, err error) {
		say(Finding{Rule: Spool, Path: filepath.Join("spool", name),
			Said: err.Error(),
			Do:   "belay daemon takes the events in, and sets aside what it cannot read"})
	})
}

// lists checks the small files. Each is a help: without it the daemon does more work or a heartbeat too many.
func (c *check) lists(_ context.Context, say func(Finding)) {
	bad := func(path string, err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			say(Finding{Rule: Lists, Path: filepath.Base(path),
				Said: err.Error(),
				Do:   "remove it: the daemon writes it again"})
		}
	}

	bad(c.d.Breaker(), breaker.CheckFile(c.d.FS, c.d.Breaker()))
	bad(c.d.Active(), c.reads(c.d.Active(), new([]checkpoint.Key)))
	bad(c.d.Beat(), c.reads(c.d.Beat(), new(struct{ Last time.Time })))
}

func (c *check) reads(path string, v any) error {
	data, err := vfs.ReadFile(c.d.FS, path, 4<<20)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}
