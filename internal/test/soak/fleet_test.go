//go:build linux

package soak

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"belay/internal/wire"
)

// fleet is many agents at work beside one daemon.
type fleet struct {
	bin, root, state string // folders: programs, the agents' own files, belay's
	pace             time.Duration
	total            int64    // retention.total_bytes
	settings         []string // of the daemon; the rest are the usual ones
	hooks            captured
	db               *sql.DB
	spawn            chan struct{} // a place for each hook client that runs

	mu struct {
		sync.Mutex
		acked  map[string]bool // ids of events that were answered with kept: disk
		talks  []*told         // every session there ever was
		faults []string
	}
	sent, refused, hooked, died, ended, resumed atomic.Int64
}

// told is a session, and the newest words of it that were acknowledged.
type told struct {
	agent, id string
	word      atomic.Pointer[string]
}

func (f *fleet) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.faults) < 50 {
		f.mu.faults = append(f.mu.faults, fmt.Sprintf(format, args...))
	}
}

// member plays one agent after the other at one place until ctx ends: it works, is killed in the middle and comes back,
// or ends well and a new session takes its place.
func (f *fleet) member(ctx context.Context, n int, rng *rand.Rand) {
	m := &member{fleet: f, rng: rng, n: n}
	defer m.hangUp()
	for born := 0; ctx.Err() == nil; born++ {
		agent := agents[n%len(agents)]
		id := fmt.Sprintf(
			"%08x-%04x-4%03x-8%03x-%012x", rng.Uint32(), n&0xffff, born&0xfff, rng.IntN(1<<12),
			rng.Int64N(1<<48),
		)

		if agent == "opencode" {
			id = "ses_" + strings.ReplaceAll(id, "-", "")[:26]
		}

		m.talk = &talk{agent: agent, id: id, cwd: filepath.Join(f.root, "work", fmt.Sprint(n)), source: "startup"}
		m.file = path(agent, f.root, id)
		if err := os.MkdirAll(m.cwd, 0o700); err != nil {
			f.fault("%v", err)
			return
		}

		m.told = &told{agent: agent, id: id}
		f.mu.Lock()
		f.mu.talks = append(f.mu.talks, m.told)
		f.mu.Unlock()
		for ctx.Err() == nil && m.life(ctx) {
			m.source = "resume"
			f.resumed.Add(1)
		}
	}
}

type member struct {
	*fleet
	*talk
	*told
	rng   *rand.Rand
	n     int
	agent *exec.Cmd
	conn  *wire.Conn
	event int
}

// life is one process of the agent: it says whether the session will be resumed.
func (m *member) life(ctx context.Context) (again bool) {
	m.agent = exec.Command("sleep", "100000")
	m.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.agent.Start(); err != nil {
		m.fault("start an agent: %v", err)
		return false
	}

	defer func() {
		_ = m.agent.Process.Kill()
		_ = m.agent.Wait() // it says that it was killed
	}()

	m.happens(ctx, begins)
	for rounds := 1 + m.rng.IntN(20); rounds > 0 && m.pause(ctx); rounds-- {
		m.round++
		m.prompt = fmt.Sprintf(
			"please do step-%s-%d of the plan %s", m.talk.id[len(m.talk.id)-6:], m.round,
			strings.Repeat("with care ", m.rng.IntN(20)),
		)

		m.happens(ctx, asked)
		for calls := m.rng.IntN(4); calls > 0 && m.pause(ctx); calls-- {
			m.call++
			m.command, m.output = fmt.Sprintf(
				"make step-%d", m.call,
			), strings.Repeat(
				fmt.Sprintf("line of output %d\n", m.rng.IntN(1000)), m.rng.IntN(100),
			)

			m.happens(ctx, toolBegins)
			if m.rng.IntN(40) == 0 {
				m.died.Add(1)
				return true // kill -9 in the middle of a call
			}
			if !m.pause(ctx) {
				return false
			}

			m.happens(ctx, toolEnds)
		}

		m.answer = fmt.Sprintf(
			"done-%s-%d: it works now. %s", m.talk.id[len(m.talk.id)-6:], m.round,
			strings.Repeat("The tests pass. ", m.rng.IntN(40)),
		)

		m.happens(ctx, handsBack)
	}

	if ctx.Err() != nil || m.rng.IntN(3) == 0 {
		m.died.Add(1)
		return ctx.Err() == nil // killed at rest
	}

	m.ended.Add(1)
	m.happens(ctx, ends)
	return m.rng.IntN(2) == 0
}

// pause is the model's time to think.
func (m *member) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(m.pace/2 + time.Duration(m.rng.Int64N(int64(m.pace)))):
		return true
	}
}

// happens writes the transcript and calls the hook, in one order or the other as real agents do.
func (m *member) happens(ctx context.Context, at moment) {
	late := at == handsBack && m.talk.agent == "claude-code"
	if !late {
		m.writes(at)
	}

	m.calls(ctx, at)
	if late {
		m.writes(at)
	}
}

func (m *member) writes(at moment) {
	if m.talk.agent == "other" {
		return
	}
	if err := m.write(at, m.db); err != nil {
		m.fault("%s writes: %v", m.talk.agent, err)
	}
}

// calls sends the event, seldom through the real client. Where nobody answers the real client is tried, as the agent
// would.
func (m *member) calls(ctx context.Context, at moment) {
	req, payload := m.hooks.request(m.talk, at)
	m.event++
	req.PID, req.ID = m.agent.Process.Pid, fmt.Sprintf("%s/%d", m.talk.id, m.event)
	withClient := m.talk.agent == "claude-code" && at != begins
	if withClient && m.rng.IntN(20) == 0 {
		m.hook(ctx, req, payload)
		return
	}

	m.sent.Add(1)
	reply, err := m.send(ctx, req, payload)
	switch {
	case err != nil:
		m.refused.Add(1)
		if withClient {
			m.hook(ctx, req, payload)
		}

	case !reply.OK:
		m.refused.Add(1)
		if reply.Code != wire.CodeStopping && reply.Code != wire.CodeInternal {
			m.fault("%s %s: %+v", req.Agent, req.Event, reply)
		}

	case reply.Kept == wire.KeptDisk && reply.Seq > 0:
		m.fleet.mu.Lock()
		m.fleet.mu.acked[req.ID] = true
		m.fleet.mu.Unlock()
		if at == asked {
			word := m.prompt[:strings.Index(m.prompt, " of ")]
			m.word.Store(&word)
		}

	case reply.Kept != "" && reply.Kept != wire.KeptDisk:
		m.fault("%s %s was kept in %q", req.Agent, req.Event, reply.Kept)
	}
}

func (m *member) send(ctx context.Context, req wire.Request, payload []byte) (wire.Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if m.conn == nil {
		conn, err := wire.Dial(ctx, m.state, "")
		if err != nil {
			return wire.Reply{}, err
		}
		m.conn = conn
	}

	reply, _, err := m.conn.Do(ctx, req, payload)
	if err != nil {
		m.hangUp()
	}

	return reply, err
}

func (m *member) hangUp() {
	if m.conn != nil {
		_ = m.conn.Close() // nothing is lost with it
		m.conn = nil
	}
}

// hook runs the real client, which starts a daemon or spools when none answers.
func (m *member) hook(ctx context.Context, req wire.Request, payload []byte) {
	select {
	case m.spawn <- struct{}{}:
		defer func() { <-m.spawn }()
	default:
		return // enough run: this machine is for the daemon
	}

	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, "belay-hook"), req.Agent, req.Event)
	cmd.Env = append(m.environment(), fmt.Sprintf("CLAUDE_PID=%d", req.PID))
	cmd.Dir = m.cwd
	cmd.Stdin = bytes.NewReader(payload)
	m.hooked.Add(1)
	if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
		m.fault("belay-hook %s: %v: %s", req.Event, err, out)
	}
}
