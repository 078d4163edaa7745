package codex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/klauspost/compress/zstd"

	"belay/checkpoint"
	"belay/internal/lazyre"
	"belay/internal/transcript/lines"
)

// ErrTooLarge is returned for a compressed rollout that would unpack to more than maxUnpacked.
var ErrTooLarge = errors.New("archived rollout is too large to unpack")

const (
	// maxUnpacked bounds the private copy of a compressed rollout.
	maxUnpacked = 256 << 20
	packed      = ".zst"
	maxHead     = 4 << 20 // a first record that is longer is none
)

// rolloutName is the name of a live or archived rollout; after a revert the thread has another file, with a second id.
var rolloutName = lazyre.New(`^rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-([0-9a-f-]{36})` +
	`(?:_([0-9A-Za-z-]{1,64}))?\.jsonl(\.zst)?$`)

// threadOfName is the thread id in a rollout's name; empty for every other file.
func threadOfName(path string) string {
	m := rolloutName().FindStringSubmatch(filepath.Base(path))
	if m == nil || !checkpoint.IsUUID(m[1]) {
		return ""
	}
	return m[1]
}

// places are where a rollout can be, best first. Codex compresses a file that nobody used for a week, takes it back
// when it is resumed, and moves it when a person archives the thread.
func places(path string) []string {
	path = strings.TrimSuffix(path, packed)
	list := []string{path, path + packed}

	// <home>/sessions/2026/11/30/<name>
	if dir := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(path)))); filepath.Base(dir) == "sessions" {
		archived := filepath.Join(filepath.Dir(dir), "archived_sessions", filepath.Base(path))
		list = append(list, archived, archived+packed)
	}

	return list
}

// rollout is one thread's file, wherever it is now. A compressed one is read from a private copy that has no name, so
// that nothing stays behind whatever happens; where the system cannot do that, until close.
type rollout struct {
	path string // as the agent names it

	at     string // where it was found
	info   fs.FileInfo
	file   *lines.File
	copy   *os.File // of a compressed file
	named  string   // the copy's name, while it has one
	damage error    // how unpacking ended early
	owner  *owner   // whose it is; nil: not looked at yet
}

// open gives the file to read from. While it is nowhere, the one that was open is still read to its end.
func (r *rollout) open(ctx context.Context) (*lines.File, error) {
	for _, at := range places(r.path) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.file != nil && at == r.at && (!strings.HasSuffix(at, packed) || unchanged(info, r.info)) {
			return r.file, nil
		}

		return r.turnTo(ctx, at, info)
	}

	if r.file == nil {
		return nil, fmt.Errorf("open %s: %w", r.path, fs.ErrNotExist)
	}

	return r.file, nil
}

func unchanged(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (r *rollout) turnTo(ctx context.Context, at string, info fs.FileInfo) (*lines.File, error) {
	if err := r.close(); err != nil {
		return nil, err
	}

	from := at
	if strings.HasSuffix(at, packed) {
		var err error
		if from, err = r.unpack(ctx, at); err != nil {
			return nil, errors.Join(fmt.Errorf("unpack %s: %w", at, err), r.close())
		}
	}

	r.at, r.info, r.file = at, info, lines.Open(from)
	return r.file, nil
}

// unpack makes the private copy and gives a path under which it can be opened.
func (r *rollout) unpack(ctx context.Context, at string) (string, error) {
	in, _, err := lines.OpenRegular(at)
	if err != nil {
		return "", err
	}

	defer in.Close() // read only
	if r.copy, err = os.CreateTemp("", "belay-rollout-*"); err != nil {
		return "", err
	}

	r.named = r.copy.Name()
	path := r.named
	if runtime.GOOS == "linux" {
		if err := os.Remove(r.named); err != nil {
			return "", err
		}
		r.named, path = "", fmt.Sprintf("/proc/self/fd/%d", r.copy.Fd())
	}

	z, err := decoder(in)
	if err != nil {
		return "", err
	}

	defer z.Close()
	buf := make([]byte, 256<<10)
	for size := 0; ; {
		if err := ctx.Err(); err != nil {
			return "", err
		}

		n, err := z.Read(buf)
		if size += n; size > maxUnpacked {
			return "", ErrTooLarge
		}
		if _, err := r.copy.Write(buf[:n]); err != nil {
			return "", err
		}

		switch {
		case err == io.EOF:
			return path, nil
		case err != nil:
			r.damage = err // what came before it counts
			return path, nil
		}
	}
}

func decoder(in io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20),
		zstd.WithDecoderLowmem(true))
}

func (r *rollout) close() error {
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Close())
	}
	if r.copy != nil {
		errs = append(errs, r.copy.Close())
	}
	if r.named != "" {
		errs = append(errs, os.Remove(r.named))
	}

	*r = rollout{path: r.path}
	return errors.Join(errs...)
}

// tellDamage counts an archive that could not be unpacked to its end, once.
func (r *rollout) tellDamage(l *checkpoint.Losses) {
	if r.damage != nil {
		lines.CountBad(l, lines.Line{}, "archive is damaged: "+words(r.damage.Error(), maxName))
		r.damage = nil
	}
}

// owner says whose a rollout is, as its first record tells.
type owner struct {
	thread, session string // session: of the root thread
	child           bool   // a sub-agent's thread
	cwd             string

	base    string // the rollout that this one goes on from
	baseEnd int64  // how many bytes of it count
}

// ownerOf reads the first record of a rollout, plain or compressed.
func ownerOf(path string) (owner, error) {
	first, err := firstLine(path)
	if err != nil || first == nil {
		return owner{}, err
	}

	var rec struct {
		ID      string `json:"id"` // of the oldest files, whose first line has no wrapper
		Type    string `json:"type"`
		Payload struct {
			ID        string `json:"id"`
			SessionID string `json:"session_id"`
			Parent    string `json:"parent_thread_id"`
			Cwd       string `json:"cwd"`
			Thread    string `json:"thread_source"`
			Source    struct {
				Subagent any `json:"subagent"`
			} `json:"source"`
			Base struct {
				ID  string `json:"thread_id"` // so it is called; it is a rollout's
				End int64  `json:"end_byte_offset"`
			} `json:"history_base"`
		} `json:"payload"`
	}

	if lines.Decode(first, &rec) != nil {
		return owner{}, nil
	}

	p := rec.Payload
	own := owner{thread: p.ID, session: p.SessionID, cwd: p.Cwd, base: p.Base.ID, baseEnd: max(p.Base.End, 0)}
	if rec.Type == "" {
		own.thread = rec.ID
	} else if rec.Type != "session_meta" {
		return owner{}, nil
	}

	own.child = p.Source.Subagent != nil || p.Thread == "subagent" || p.Parent != "" && p.SessionID != "" &&
		p.SessionID != p.ID
	if own.session == "" || !own.child {
		own.session = own.thread
	}

	return own, nil
}

func firstLine(path string) (first []byte, err error) {
	if !strings.HasSuffix(path, packed) {
		f := lines.Open(path)
		defer f.Close() // read only
		_, err = f.Read(lines.Pos{}, lines.Options{Max: 1}, func(l lines.Line) bool {
			first = append(first, l.Data...)
			return false
		})
		return first, err
	}

	f, _, err := lines.OpenRegular(path)
	if err != nil {
		return nil, err
	}

	defer f.Close() // read only
	z, err := decoder(f)
	if err != nil {
		return nil, err
	}

	defer z.Close()
	head, err := io.ReadAll(io.LimitReader(z, maxHead))
	if i := strings.IndexByte(string(head), '\n'); i >= 0 {
		return head[:i], nil
	}

	return nil, err
}
