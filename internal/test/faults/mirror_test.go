//go:build linux

package faults

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"belay/internal/wire"
)

// secretOfTheUser has the form of a key that belay takes out of whatever it keeps: only an exact mirror may hold it.
const secretOfTheUser = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"

// The daemon is killed at random moments while it keeps an exact copy of a growing transcript: what was in the copy
// stays, the next daemon completes it, a person can read it, and none of it lies unencrypted anywhere in the state
// folder.
func TestKillDuringAnExactMirror(t *testing.T) {
	kills := 6
	if long() {
		kills = 100
	}

	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("BELAY_SEED"), 10, 64); err == nil {
		seed = n
	}

	t.Logf("seed %d, %d kills", seed, kills)
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t, "BELAY_MIRROR=exact")
	path := filepath.Join(t.TempDir(), claudeSession+".jsonl")
	appendTo(t, path, transcriptLine(0, "the first wish"))
	var before string
	for i := range kills {
		d := w.start()
		w.follow(path)
		ctx, cancel := context.WithCancel(t.Context())
		var agent sync.WaitGroup
		agent.Go(func() { writeOn(ctx, t, path, i) })
		until(t, "the copy grows", func() bool { return len(w.exactCopy()) > len(before) })
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // the random moment is what this test is about
		before = w.exactCopy()
		d.kill()
		cancel()
		agent.Wait()
		now := w.exactCopy()
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.HasPrefix(now, before) || !strings.HasPrefix(string(source), now) {
			t.Fatalf(
				"kill %d of seed %d: %d bytes were in the copy, now %d; they are not the beginning of the transcript's %d",
				i, seed, len(before), len(now), len(source),
			)
		}

		w.noneIsPlain(secretOfTheUser)
		before = now
	}

	d := w.start()
	w.follow(path)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	until(t, "the copy is complete", func() bool { return w.exactCopy() == string(source) })
	if err := d.stop(); err != nil {
		t.Errorf("the daemon's end: %v", err)
	}
	if got := strings.Count(w.exactCopy(), secretOfTheUser); got < kills {
		t.Errorf("the copy holds the secret %d times in %d lives of the daemon: the test proved nothing", got, kills)
	}

	w.noneIsPlain(secretOfTheUser)
	t.Logf("%d bytes of transcript, all in the copy", len(source))
}

// follow is the hook that tells the daemon of a transcript.
func (w *world) follow(path string) {
	w.t.Helper()
	payload := fmt.Sprintf(
		`{"session_id":%q,"transcript_path":%q,"hook_event_name":"SessionStart","source":"resume","cwd":"/proj"}`,
		claudeSession, path,
	)

	if reply, err := w.do(
		wire.Request{Op: "hook", Agent: "claude-code", Event: "SessionStart"}, []byte(payload),
	); err != nil ||
		!reply.OK {
		w.t.Fatalf("SessionStart: %+v, %v", reply, err)
	}
}

// writeOn is the agent: it appends to its transcript until it is told to end.
func writeOn(ctx context.Context, t *testing.T, path string, life int) {
	for n := 0; ctx.Err() == nil; n++ {
		appendTo(
			t,
			path,
			transcriptLine(
				n%10,
				fmt.Sprintf(
					"wish %d.%d, with the key %s, %s", life, n, secretOfTheUser,
					strings.Repeat("and so on ", n%50),
				),
			),
		)
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Millisecond): // the pace of a quick agent
		}
	}
}

// exactCopy is what a person gets of the transcript's copy; nothing while there is none.
func (w *world) exactCopy() string {
	w.t.Helper()
	out, err := w.belay("show", "--agent", "claude-code", "--session", claudeSession, "--mirror")
	if err != nil {
		return ""
	}
	return out
}

// noneIsPlain looks for a secret in every file of the state folder.
func (w *world) noneIsPlain(secret string) {
	w.t.Helper()
	files := 0
	err := filepath.WalkDir(w.state, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}

		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			w.t.Errorf("%s holds the secret unencrypted", path)
		}

		return err
	})

	if err != nil || files == 0 {
		w.t.Errorf("%d files looked at: %v", files, err)
	}
}
