//go:build linux

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/vfs"
	"belay/internal/wire"
)

const claudeSession = "11111111-2222-4333-8444-555555555555"

// beats lists when heartbeats reached sessions.
func (w *world) beats() (list []time.Time) {
	w.t.Helper()
	_, err := journal.Scan(vfs.OS{}, filepath.Join(w.state, "journal"), 0, func(_ uint64, payload []byte) error {
		var e checkpoint.Event
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		if e.Kind == checkpoint.EventBeat {
			list = append(list, e.At)
		}

		return nil
	})

	if err != nil {
		w.t.Error(err)
	}

	return list
}

// prompts lists what the user said in Claude's session, as the state has it.
func (w *world) prompts() (list []string) {
	w.t.Helper()
	for _, m := range w.states()[claudeSession].Messages {
		if m.Role == checkpoint.RoleUser {
			list = append(list, m.Text)
		}
	}
	return list
}

// A suspended machine: the daemon stands still for longer than hooks wait and longer than several heartbeats.
func TestSuspended(t *testing.T) {
	const every = 2 * time.Second
	w := newWorld(t, "BELAY_HEARTBEAT_EVERY=@every 2s", "BELAY_JOURNAL_SEGMENT=16MB")
	d := w.start()
	for i := range 3 {
		w.prompt(claudeSession, fmt.Sprint("before ", i))
	}

	until(t, "a beat", func() bool { return len(w.beats()) > 0 })
	if err := d.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	hooks, asleep := 10, 4*every
	if long() {
		hooks, asleep = 100, time.Minute
	}

	began := time.Now()
	for i := range hooks {
		w.prompt(claudeSession, fmt.Sprint("asleep ", i))
	}

	w.quiet()
	if got := w.spooled(); got != hooks {
		t.Errorf("%d events are in the spool, want %d", got, hooks)
	}

	time.Sleep(asleep - time.Since(began)) // the length of the sleep is what this test is about
	if err := d.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	woke := time.Now()
	until(t, "the spool is empty", func() bool { return w.spooled() == 0 })
	until(t, "a beat after it", func() bool { list := w.beats(); return list[len(list)-1].After(woke) })
	until(t, "the time of the next beat", func() bool { return time.Since(woke) > every*9/10 })
	missed := 0
	for _, at := range w.beats() {
		if at.After(woke) && at.Before(woke.Add(every*9/10)) {
			missed++
		}
	}

	if missed > 1 {
		t.Errorf("%d beats at once after %d were missed, want one", missed, asleep/every)
	}
	if err := d.stop(); err != nil {
		t.Errorf("the daemon's end: %v", err)
	}
	if got, want := w.states()[claudeSession].Rounds, hooks+3-1; got != want {
		t.Errorf("%d rounds, want %d: each prompt once", got, want)
	}

	for i, said := range w.prompts()[3:] { // the newest 20 are kept
		if want := fmt.Sprint("asleep ", max(hooks+3-20, 0)+i); said != want {
			t.Errorf("prompt %d is %q, want %q: in their order", i, said, want)
		}
	}
}

// Daemon and clients are killed at random moments, clients in the middle of a header and of a payload. What was
// acknowledged is kept, and no prompt counts twice. BELAY_SEED repeats a run.
func TestKillDaemonAndClients(t *testing.T) {
	kills := 8
	if long() {
		kills = 300
	}

	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("BELAY_SEED"), 10, 64); err == nil {
		seed = n
	}

	t.Logf("seed %d, %d kills", seed, kills)
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	k := &killer{w: w}
	for range kills {
		k.run(time.Duration(50+rng.IntN(250))*time.Millisecond, rng.Uint64())
		w.compare()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}

	w.quiet()
	d := w.start()
	until(t, "the spool is empty", func() bool { return w.spooled() == 0 })
	w.healed()
	d.kill()
	acked := w.compare()
	states := w.states()
	for i, session := range hookSessions {
		done, tried := int(k.done[i].Load()), int(k.tried[i].Load())
		got := 0
		if s := states[session]; s != nil {
			got = s.Rounds
		}

		if got < done-1 || got > tried {
			t.Errorf(
				"hooks of %s: %d ended, %d rounds are there, %d were started; want each that ended there once",
				session, done, got, tried,
			)
		}
	}

	t.Logf(
		"%d rounds acknowledged as on disk; hooks: %d of %d ended by themselves", acked,
		k.done[0].Load()+k.done[1].Load(), k.tried[0].Load()+k.tried[1].Load(),
	)

	if acked == 0 || k.done[0].Load() == 0 || k.done[0].Load() == k.tried[0].Load() {
		t.Error("nothing was acknowledged or no client was killed: the test proved nothing")
	}
}

var hookSessions = [2]string{"aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"}

type killer struct {
	w           *world
	done, tried [2]atomic.Int64
}

// run is one life of a daemon, under the load of clients that die too.
func (k *killer) run(life time.Duration, seed uint64) {
	w := k.w
	d := w.launch()
	if seed%4 > 0 { // else it is killed while it starts
		until(w.t, "a daemon answers", func() bool {
			if w.status() == nil && len(w.procs("daemon")) == 0 {
				// ours found the lock of one that was still dying: as the next hook does, this starts another
				_, _ = w.belay("intake")
			}
			return w.status() != nil
		})
	}

	ctx, cancel := context.WithTimeout(context.Background(), life)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if c, err := wire.Dial(ctx, w.state, ""); err == nil {
					for err == nil && ctx.Err() == nil {
						_, err = w.round(c, fmt.Sprint("client", i), 300)
					}
					_ = c.Close()
				}
			}
		})
	}

	clients.Go(func() {
		for rng := rand.New(rand.NewPCG(seed, 9)); ctx.Err() == nil; {
			k.cutOff(rng)
		}
	})

	for i := range hookSessions {
		clients.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, uint64(i))); ctx.Err() == nil; {
				k.hook(i, rng)
			}
		})
	}

	<-ctx.Done()
	_ = d.Process.Kill() // another may have the lock: hooks start one too
	for _, pid := range w.procs("daemon") {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}

	clients.Wait()
	_ = d.Wait() // it says that it was killed
	for _, pid := range w.procs("daemon") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// cutOff is a client that dies in the middle of a header or of a payload.
func (k *killer) cutOff(rng *rand.Rand) {
	c, err := net.Dial("unix", filepath.Join(k.w.state, "belay.sock"))
	if err != nil {
		return
	}

	defer c.Close()
	whole := `{"v":1,"op":"hook","agent":"claude-code","event":"UserPromptSubmit","len":100000}` + "\n" + strings.Repeat(
		"x", 100_000,
	)

	_, _ = c.Write([]byte(whole[:1+rng.IntN(len(whole)-1)])) // the daemon may die first
}

// hook runs a hook with a big payload, and kills every third.
func (k *killer) hook(i int, rng *rand.Rand) {
	n := k.tried[i].Add(1)
	cmd := exec.Command(filepath.Join(k.w.bin, "belay-hook"), "claude-code", "UserPromptSubmit")
	cmd.Env = k.w.env
	cmd.Stdin = strings.NewReader(
		fmt.Sprintf(`{"session_id":%q,"hook_event_name":"UserPromptSubmit","cwd":"/proj","prompt":"wish %d","more":%q}`,
			hookSessions[i], n, strings.Repeat("x", 200_000)),
	)

	if err := cmd.Start(); err != nil {
		k.w.t.Error(err)
		return
	}

	dies := rng.IntN(3) == 0
	if dies {
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond) // the random moment is what this test is about
		_ = cmd.Process.Kill()                                       // it may have ended
	}

	if err := cmd.Wait(); err == nil {
		k.done[i].Add(1)
	} else if !dies {
		k.w.t.Errorf("belay-hook: %v, want exit 0", err)
	}
}

// Daemons that race for the lock: one stays, whoever of them is killed.
func TestDaemonsRace(t *testing.T) {
	w := newWorld(t)
	rounds := 2
	if long() {
		rounds = 40
	}

	for i := range rounds {
		var racers []*daemonProc
		for range 6 {
			racers = append(racers, w.launch())
		}

		ended := make(chan error, len(racers))
		for _, d := range racers {
			go func() { ended <- d.Wait() }()
		}

		for range len(racers) - 1 {
			if err := <-ended; err == nil || err.(*exec.ExitError).ExitCode() != 1 {
				t.Errorf("a daemon that found another: %v, want exit code 1", err)
			}
		}

		until(t, "the one that stays answers", func() bool { return w.status() != nil })
		if reply := w.rounds("s", 3, 100); reply.Kept != wire.KeptDisk {
			t.Errorf("answer %+v, want it on disk", reply)
		}

		pids := w.procs("daemon")
		if st := w.status(); len(pids) != 1 || st.PID != pids[0] {
			t.Errorf("race %d: daemons %v, %d answers; want one", i, pids, st.PID)
		}

		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}

		<-ended
	}

	w.compare()
	if got := w.states()["s"].Rounds; got != 3*rounds {
		t.Errorf("%d rounds, want %d", got, 3*rounds)
	}
}

// newerHook is the hook of a later version: the same program, saying another number. It costs no build.
func newerHook(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"belay", "belay-hook"} {
		data, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}

		later := bytes.ReplaceAll(data, []byte(`{"v":1,"op":"hook"`), []byte(`{"v":2,"op":"hook"`))
		if name == "belay-hook" && bytes.Equal(later, data) {
			t.Fatal("the hook holds no header that could be changed")
		}
		if err := os.WriteFile(filepath.Join(dir, name), later, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// newer builds the programs as a later version would be, with another number of the protocol and a field more.
func newer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}

	replace := map[string]string{}
	for file, change := range map[string][2]string{
		"internal/wire/wire.go":    {"const Version = 1\n", "const Version = 2\n"},
		"cmd/belay-hook/header.go": {`{"v":1,`, `{"v":2,"brand_new":[{"a":1}],`},
	} {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}

		later := strings.ReplaceAll(string(data), change[0], change[1])
		if later == string(data) {
			t.Fatalf("%s holds no %q", file, change[0])
		}

		name := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(name, []byte(later), 0o600); err != nil {
			t.Fatal(err)
		}

		replace[filepath.Join(root, file)] = name
	}

	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}

	to := filepath.Join(filepath.Dir(bin), "newer")
	if err := build(to, "-overlay", filepath.Join(dir, "overlay.json")); err != nil {
		t.Fatal(err)
	}

	return to
}

// D15: daemon and clients of different versions, both ways: no restart, every event once.
func TestD15OldAndNew(t *testing.T) {
	events, later := 30, ""
	if long() {
		events, later = 500, newer(t)
	}

	for _, tc := range []struct{ name, daemon, client string }{
		{"old daemon, new hook", bin, newerHook(t)},
		{"old daemon, new programs", bin, later},
		{"new daemon, old client", later, bin},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.daemon == "" || tc.client == "" {
				t.Skip("builds both programs anew: BELAY_LONG=1 runs it")
			}

			w := newWorld(t)
			w.bin = tc.daemon
			d := w.start()
			w.bin = tc.client
			for i := range events {
				w.prompt(claudeSession, fmt.Sprint("wish ", i))
			}

			w.quiet()
			until(t, "the spool is empty", func() bool { return w.spooled() == 0 })
			if out, err := w.belay("status"); err != nil || !strings.Contains(out, "wish 0") {
				t.Errorf("belay status: %v\n%s\nwant the session", err, out)
			}
			if pids := w.procs("daemon"); len(pids) != 1 || pids[0] != d.Process.Pid {
				t.Errorf("daemons %v, want the first alone, %d", pids, d.Process.Pid)
			}

			d.kill()
			if got := w.states()[claudeSession].Rounds; got != events-1 {
				t.Errorf("%d rounds, want %d", got, events-1)
			}
		})
	}
}
