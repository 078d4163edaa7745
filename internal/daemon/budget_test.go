package daemon

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/daemon/session"
	"belay/internal/state/mirror"
)

// bound changes retention.total_bytes of a running daemon.
func (r *running) bound(bytes int64) {
	opt := *r.d.settings.Load()
	opt.TotalBytes = bytes
	r.d.Reload(opt)
}

// folderOf is where a session of Claude Code's lies.
func (r *running) folderOf(id string) string {
	return r.l.dir.Session(checkpoint.NewKey("claude-code", "", id, ""))
}

// noise is text that does not get smaller.
func noise(n int) string {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x ", sha256.Sum256([]byte(fmt.Sprint(n, i))))
	}
	return b.String()
}

// sized is how many bytes all files of a folder have, half-made ones too.
func sized(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info os.FileInfo
			if info, err = e.Info(); err == nil {
				bytes += info.Size()
			}
		}

		if errors.Is(err, os.ErrNotExist) {
			return nil // renamed or removed meanwhile
		}

		return err
	})

	if err != nil {
		t.Fatal(err)
	}

	return bytes
}

// Sessions at rest give up their copies of transcripts too, the oldest first; each keeps its last good FULL and its
// state.
func TestG04MirrorsCountAndGoOldestFirst(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t), func(d *Daemon) { d.times.session.IdleAfter = 20 * time.Millisecond })
	ids := []string{sessionA, sessionB, sessionC}
	for i, id := range ids {
		file := strings.Replace(path, sessionA, id, 1)
		appendLines(t, file, record(id, "user", "wish", 0), record(id, "assistant", noise(100_000+i), 1))
		r.claude(
			file, startOf(id, "startup", "/proj"),
			payload{"hook_event_name": "SessionEnd", "session_id": id, "cwd": "/proj", "reason": "exit"},
		)

		until(t, "the session leaves memory with its mirror", func() bool {
			return len(r.l.sessions.Active()) == 0 && exists(filepath.Join(r.folderOf(id), mirror.FileName))
		})
	}

	whole := sized(t, r.l.dir.Sessions())
	r.bound(whole * 9 / 10)
	if err := r.l.budget.keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := sized(t, r.l.dir.Sessions()), whole*9/10; got > want {
		t.Errorf("%d bytes are kept, want at most %d", got, want)
	}

	for i, id := range ids {
		if got, want := exists(filepath.Join(r.folderOf(id), mirror.FileName)), i > 0; got != want {
			t.Errorf("session %d has a mirror: %t, want %t", i, got, want)
		}
		if len(r.checkpoints("claude-code", id)) == 0 {
			t.Errorf("session %d has no checkpoint left", i)
		}
	}

	if got, want := r.count("kept_bytes"), sized(t, r.l.dir.Sessions()); got != want {
		t.Errorf("%d bytes are counted, %d are there", got, want)
	}
}

// Where there is no room a mirror waits and says so; checkpoints are taken. When there is room again the mirror goes
// on.
func TestG04AMirrorWithoutRoomWaits(t *testing.T) {
	path := transcriptPath(t, sessionA)
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.TotalBytes = 1 << 10 })
	r.rounds("other", 0, 1)
	r.checkpoint("other") // takes all the room
	appendLines(t, path, record(sessionA, "user", "wish", 0), record(sessionA, "assistant", noise(10_000), 1))
	r.claude(path, startOf(sessionA, "startup", "/proj"))
	until(t, "first sight", func() bool { return len(r.checkpoints("claude-code", sessionA)) == 1 })
	until(t, "the mirror says why it waits", func() bool {
		st := r.session("claude-code", sessionA)
		return st.Transcript != nil && st.Transcript.MirrorError == session.ErrFull.Error()
	})

	name := filepath.Join(r.folderOf(sessionA), mirror.FileName)
	if exists(name) {
		t.Error("there is a mirror where there was no room")
	}

	r.bound(1 << 20)
	until(
		t, "the mirror goes on",
		func() bool { return exists(name) && r.session("claude-code", sessionA).Transcript.MirrorError == "" },
	)
}

// Sessions that are in memory and rest cut themselves when all others have no more to give.
func TestG04ActiveSessionsCutThemselves(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.Gates.ForcedTime = 0 })
	for i := range 3 {
		for j := range 4 {
			r.rounds(fmt.Sprint("s", i), j, 1)
			r.checkpoint(fmt.Sprint("s", i))
		}
	}

	r.bound(1)
	if err := r.l.budget.keep(t.Context()); err != nil {
		t.Fatal(err)
	}

	for i := range 3 {
		list := r.checkpoints("tester", fmt.Sprint("s", i))
		if len(list) != 1 || list[0].Level != checkpoint.Full || list[0].Number != 4 {
			t.Errorf("session %d keeps %+v, want its newest FULL alone", i, list)
		}
	}

	r.rounds("s0", 4, 1)
	if got := r.checkpoint("s0"); !got.Decision.Take {
		t.Errorf("a checkpoint is refused where the bound is met: %+v", got)
	}
}

// A disk that hangs while room is made holds up no checkpoint for ever.
func TestACheckpointDoesNotWaitForRoomForEver(t *testing.T) {
	r := start(t, tempDir(t), func(d *Daemon) { d.opt.TotalBytes, d.times.room = 1<<10, 20*time.Millisecond })
	r.l.budget.turn <- struct{}{} // somebody makes room, and hangs
	r.l.budget.tight.Store(false)
	for i := range 2 {
		r.rounds("s", i, 1)
		if got := r.checkpoint("s"); !got.Decision.Take {
			t.Errorf("checkpoint %d: %+v, want it taken", i, got)
		}
	}

	<-r.l.budget.turn
}
