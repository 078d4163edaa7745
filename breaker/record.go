package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.uber.org/zap"

	"belay/internal/vfs"
)

// record is the form on disk: what a restart must know.
type record struct {
	Version      int       `json:"v"`
	Open         bool      `json:"open"`
	Since        time.Time `json:"since"`
	Trips        int       `json:"trips"`
	Reason       string    `json:"reason,omitempty"`
	NextProbe    time.Time `json:"next_probe,omitzero"` // for people: a restart probes at once
	PauseSeconds int64     `json:"pause_s"`             // the pause after that
	Size         int       `json:"size,omitempty"`      // the least that a probe writes, in bytes
}

const (
	recordVersion = 1
	maxRecord     = 64 << 10
	maxReason     = 500      // bytes
	maxSize       = 64 << 20 // bytes: a probe as large as a damaged file says would fill the disk
)

func decodeRecord(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, err
	}
	if r.Version != recordVersion {
		return record{}, fmt.Errorf("version %d is not %d", r.Version, recordVersion)
	}
	if limit := int64(time.Duration(1<<63-1) / time.Second); r.PauseSeconds < 0 || r.PauseSeconds > limit {
		return record{}, fmt.Errorf("a pause of %d s", r.PauseSeconds)
	}
	if r.Size < 0 || r.Size > maxSize {
		return record{}, fmt.Errorf("a probe of %d bytes", r.Size)
	}

	r.Reason = cut(r.Reason)
	return r, nil
}

func cut(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason] + "..."
	}
	return strings.ToValidUTF8(reason, "\uFFFD")
}

// load reads what the last run stored. The file is a help and not a condition: without it the breaker starts closed,
// and three writes tell.
func load(fsys vfs.FS, name string, log *zap.Logger) record {
	none := record{}
	if fsys == nil {
		return none
	}

	data, err := vfs.ReadFile(fsys, name, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return none
	}

	var r record
	if err == nil {
		r, err = decodeRecord(data)
	}

	if err != nil {
		log.Warn("stored state of the breaker is not readable: it starts closed",
			zap.String("file", name), zap.Error(err))
		return none
	}

	return r
}

// CheckFile says what is wrong with a stored state, for those who look after the disk. A missing file is right.
func CheckFile(fsys vfs.FS, name string) error {
	data, err := vfs.ReadFile(fsys, name, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil {
		_, err = decodeRecord(data)
	}

	return err
}

// save stores r and says whether it is stored. That its disk may be the failing one is expected: no error.
func save(fsys vfs.FS, name string, r record, log *zap.Logger) bool {
	data, err := json.Marshal(r)
	if err == nil {
		err = vfs.Replace(fsys, name, append(data, '\n'))
	}
	if err != nil {
		log.Debug("state of the breaker is not stored", zap.Error(err))
	}

	return err == nil
}
