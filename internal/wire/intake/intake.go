// Package intake is what `belay intake` does, and how a daemon is started in the background.
//
// belay-hook starts an intake, detached, for an event that no daemon took. The intake starts a daemon if none answers,
// hands the event over with the id that it came with, and else keeps it in the spool, redacted. After a handover it
// also empties the spool, because events of other intakes may lie there that the daemon looked for before they came.
//
// It promises: it ends within Options.Wait and a little, after the rest of a slow payload is there, and in any case
// within the sum of all its waits, with the event in the spool; it never kills; at most eight intakes of one state
// folder wait at the same time (others spool at once and end); of many at once one starts the daemon; no event goes
// without being handed over, spooled or counted as dropped, but on a disk that hangs; nothing unredacted reaches a
// disk.
//
// It does not promise the order of events that are handed over while a daemon starts: their time is in the id and in
// the request's "spooled".
package intake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"belay/internal/state"
	"belay/internal/state/spool"
	"belay/internal/vfs"
	"belay/internal/wire"
)

// Errors of reading a request.
var (
	ErrNoRequest = errors.New("no request line on stdin")
	ErrLineSize  = errors.New("request line over the bound")
)

// Errors of handing over.
var (
	ErrRefused  = errors.New("daemon refused the event")
	ErrNoDaemon = errors.New("no daemon answered")
	ErrDropped  = errors.New("event dropped")
	ErrLate     = errors.New("something hangs")
)

const (
	slots       = 8
	defaultWait = 2 * time.Second
	grace       = time.Second
	pause       = 10 * time.Millisecond // between two looks at the socket; a random part of the same length is added
	startEvery  = time.Second           // a daemon that cannot start is not started more often
)

// Options of Run. StateDir, StartDaemon and Redact are needed.
type Options struct {
	StateDir string
	Socket   string       // the one place to look for the daemon; empty for those of the state folder
	Limits   spool.Limits // of the spool; zero means the default
	// StartDaemon starts a daemon in the background and returns at once, as StartDetached does.
	StartDaemon func() error
	// Redact removes secrets from a payload before it is spooled. The body of a verb goes through it too and must still
	// be JSON then.
	Redact   func(agent, event string, payload []byte) []byte
	Wait     time.Duration // for the daemon; 0 means 2 s
	RestWait time.Duration // for the rest of a payload; 0 means 10 s
	RestFD   int           // where that rest comes from; 0 means the descriptor RestFD
	Grace    time.Duration // for what does not wait and should not take any time; 0 means 1 s
	FS       vfs.FS        // of the spool; nil means the real one
}

type intake struct {
	opt    Options
	places []string
	spool  string
	lock   string // what the names of the locks start with
	held   atomic.Pointer[held]
}

// held is a request that is neither handed over nor spooled yet.
type held struct {
	req     wire.Request
	payload []byte
	unread  bool // there may be one
}

// Run takes one request from stdin and ends, whatever hangs: a daemon, a lock, the writer of stdin, a program that is
// being started, a disk. An empty stdin only starts the daemon. The error says what went wrong, also when the event is
// safe in the spool (no daemon could be started, say); it wraps ErrDropped or ErrRefused when the event is lost, and
// ErrLate when something hung and was left behind. `belay intake` exits 0 in any case.
func Run(ctx context.Context, stdin io.Reader, opt Options) error {
	in := newIntake(opt)
	ended := make(chan error, 1)
	go func() { ended <- in.run(ctx, stdin) }()
	last := time.NewTimer(in.opt.Wait + in.opt.RestWait + in.opt.Wait + in.opt.Grace) // stdin, its rest, the daemon
	defer last.Stop()
	select {
	case err := <-ended:
		return err
	case <-last.C:
	}

	saved := make(chan error, 1)
	go func() { saved <- in.save() }()
	last.Reset(in.opt.Grace)
	select {
	case err := <-saved:
		return errors.Join(ErrLate, err)
	case <-last.C:
		return errors.Join(ErrLate, ErrDropped) // the disk of the spool hangs, and so would the count
	}
}

func (in *intake) run(ctx context.Context, stdin io.Reader) error {
	in.lock = in.lockPrefix()
	req, payload, err := readRequest(before(ctx, stdin, time.Now().Add(in.opt.Wait)))
	empty := errors.Is(err, io.EOF)
	if err != nil && !empty {
		return errors.Join(err, in.count())
	}

	in.hold(req.Request, payload, empty)
	if req.Rest {
		payload = in.readRest(ctx, &req.Request, payload)
		in.hold(req.Request, payload, empty)
	}

	err = in.deliver(ctx, req.Request, payload, empty)
	in.held.Store(nil)
	return err
}

// hold says what is to be saved should anything hang from now on.
func (in *intake) hold(req wire.Request, payload []byte, empty bool) {
	if empty {
		in.held.Store(nil)
		return
	}
	in.held.Store(&held{req: req, payload: payload})
}

// save keeps what the work that hangs has in its hands. Should that come through later, the event's id tells the
// double.
func (in *intake) save() error {
	switch h := in.held.Load(); {
	case h == nil:
		return nil
	case h.unread:
		return errors.Join(ErrDropped, in.count())
	default:
		return in.keep(h.req, h.payload)
	}
}

// deliver hands the request over, else spools it.
func (in *intake) deliver(ctx context.Context, req wire.Request, payload []byte, empty bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, in.opt.Wait)
	defer cancel()
	if slot, got := in.trySlot("intake"); got {
		defer func() { _ = slot.Unlock() }() // the end of the process would do it
		switch err = in.handOver(ctx, req, payload, empty); {
		case err == nil:
			return in.emptySpool(ctx)
		case empty:
			return err
		case errors.Is(err, ErrRefused):
			return errors.Join(err, in.count())
		}
	}

	if empty {
		return nil // eight others see to the daemon
	}
	if errors.Is(err, ErrNoDaemon) {
		err = nil // the usual reason to be here
	}
	if kerr := in.keep(req, payload); kerr != nil {
		return errors.Join(err, kerr)
	}

	return errors.Join(err, in.emptySpool(ctx))
}

func newIntake(opt Options) *intake {
	if opt.Wait <= 0 {
		opt.Wait = defaultWait
	}
	if opt.RestWait <= 0 {
		opt.RestWait = defaultRestWait
	}
	if opt.RestFD == 0 {
		opt.RestFD = RestFD
	}
	if opt.Grace <= 0 {
		opt.Grace = grace
	}
	if opt.FS == nil {
		opt.FS = vfs.OS{}
	}
	if opt.Limits == (spool.Limits{}) {
		opt.Limits = spool.DefaultLimits()
	}

	opt.StateDir = filepath.Clean(opt.StateDir)
	opt.FS = vfs.Within(opt.FS, opt.StateDir)
	in := &intake{opt: opt, places: wire.SocketPlaces(opt.StateDir), spool: state.Dir{Root: opt.StateDir}.Spool()}
	in.held.Store(&held{unread: true})
	if opt.Socket != "" {
		in.places = []string{opt.Socket}
	}

	return in
}

// lockPrefix is a folder where a lock file can be made: the state folder, else the private one of the fallback socket.
func (in *intake) lockPrefix() string {
	places := wire.SocketPlaces(in.opt.StateDir)
	short := places[len(places)-1]
	for _, prefix := range []string{in.opt.StateDir + "/", strings.TrimSuffix(short, "sock")} {
		dir := filepath.Dir(prefix + "x")
		if vfs.MakeDir(vfs.OS{}, dir) != nil || wire.Private(dir) != nil {
			continue
		}

		// Made and kept: whether a folder can be written in is only known by trying.
		f, err := os.OpenFile(prefix+"start.lock", os.O_CREATE|os.O_RDWR|vfs.PlainFlags, vfs.FileMode)
		if err == nil {
			_ = f.Close() // nothing was written
			return prefix
		}
	}

	return ""
}

// trySlot takes one of the eight locks of a kind, without waiting.
func (in *intake) trySlot(kind string) (*flock.Flock, bool) {
	if in.lock == "" {
		return nil, false
	}

	first := rand.IntN(slots)
	for i := range slots {
		l := in.flock(fmt.Sprintf("%s.%d.lock", kind, (first+i)%slots))
		if ok, err := l.TryLock(); ok && err == nil {
			return l, true
		}
	}

	return nil, false
}

func (in *intake) flock(name string) *flock.Flock {
	return flock.New(in.lock+name,
		flock.SetPermissions(vfs.FileMode), flock.SetFlag(os.O_CREATE|os.O_RDONLY|vfs.PlainFlags))
}

// request is the line that belay-hook writes.
type request struct {
	wire.Request
	Rest bool `json:"rest"` // the payload goes on at RestFD; for intakes alone
}

// readRequest reads a header line and its payload. io.EOF means that there is no request.
func readRequest(r io.Reader) (req request, payload []byte, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > wire.MaxLine {
			return req, nil, ErrLineSize
		}
		if err == nil {
			break
		}
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return req, nil, io.EOF
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return req, nil, fmt.Errorf("%w: %d bytes without an end", ErrNoRequest, len(line))
		}
	}

	if err := json.Unmarshal(line, &req); err != nil {
		return req, nil, fmt.Errorf("%w: %w", ErrNoRequest, err)
	}
	if req.Len < 0 || req.Len > wire.MaxPayload {
		return req, nil, fmt.Errorf("%w: a payload of %d bytes", ErrNoRequest, req.Len)
	}

	req.Spooled = time.Now().UnixMilli() // from here on nobody waits for the answer
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(br, int64(req.Len)))
	if err != nil || int(n) < req.Len { // the hook was killed, or gave up filling a pipe
		req.Len, req.Cut, req.Rest = int(n), true, false // a rest would follow a hole
	}

	return req, buf.Bytes(), nil
}

// encode gives the header line of a request.
func encode(req wire.Request) ([]byte, error) {
	line, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request %s: %w", req.ID, err)
	}
	return append(line, '\n'), nil
}

// keep spools the event, redacted.
func (in *intake) keep(req wire.Request, payload []byte) error {
	if in.opt.Redact == nil {
		return errors.Join(ErrDropped, in.count())
	}
	if len(payload) > 0 {
		payload = in.opt.Redact(req.Agent, req.Event, payload)
	}

	if len(req.Body) > 0 {
		req.Body = in.opt.Redact(req.Agent, req.Event, req.Body)
		if !json.Valid(req.Body) {
			req.Body, req.Cut = nil, true
		}
	}

	req.Len = len(payload)
	header, err := encode(req)
	if err != nil {
		return errors.Join(err, in.count())
	}

	at := time.UnixMilli(
		req.Spooled,
	) // some intakes wait, some do not: the event's own time gives its place in the order
	dropped, err := spool.Write(in.opt.FS, in.spool, in.opt.Limits, header, payload, at)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrDropped, err), in.count())
	}
	if dropped > 0 {
		return fmt.Errorf("spool event %s: %w: %d, for room", req.ID, ErrDropped, dropped)
	}

	return nil
}

// count notes one lost event.
func (in *intake) count() error { return spool.Count(in.opt.FS, in.spool, 1) }
