package checkpoint

import (
	"context"
	"errors"
	"time"
)

// Level is the kind of a checkpoint.
type Level string

const (
	Sparse Level = "SPARSE"
	Full   Level = "FULL"
)

// Cause is what triggered a checkpoint.
type Cause string

const (
	CauseRound      Cause = "round"
	CauseHeartbeat  Cause = "heartbeat"
	CauseChain      Cause = "tool-chain"
	CauseEnd        Cause = "session-end"
	CauseExit       Cause = "agent-exit"
	CauseStopping   Cause = "daemon-stopping"
	CauseCompaction Cause = "compaction"
	CauseFirstSight Cause = "first-sight"
	CauseManual     Cause = "manual"
	CauseDecision   Cause = "decision"
	CauseCatchUp    Cause = "catch-up" // first one after the breaker closed
)

// Forced says whether a cause skips the time gate.
func (c Cause) Forced() bool {
	switch c {
	case CauseRound, CauseHeartbeat, CauseChain, "":
		return false
	}
	return true
}

// Meta is a stored checkpoint without its content.
type Meta struct {
	Number uint64    `json:"number"`
	Level  Level     `json:"kind"`
	At     time.Time `json:"time"`
	Bytes  int64     `json:"bytes"`
}

// Errors of a Store. Callers use errors.Is.
var (
	// ErrNotFound: no such session or number.
	ErrNotFound = errors.New("checkpoint not found")
	// ErrDamaged: it is there and is not what was written (checksum, form). The others of its session are not affected.
	ErrDamaged = errors.New("checkpoint damaged")
	// ErrForeign: it is whole, and lies in the folder of another session than its own.
	ErrForeign = errors.New("another session's checkpoint")
	// ErrExists: the number is taken. Numbers are never reused.
	ErrExists = errors.New("checkpoint number taken")
)

// MaxSize is the size of the largest checkpoint, in bytes. Put refuses larger ones (fs.ErrInvalid), and Get takes a
// larger one for damaged.
const MaxSize = 64 << 20

// Store keeps checkpoints. All methods may be called from several goroutines; calls for one session come one at a time.
//
// Put is all or nothing and durable: after a nil error the checkpoint survives power loss; after any other error List
// and Get answer as before the call (or the new one is whole in them: never half). Data is the encoded checkpoint
// (Encode); a store keeps its bytes as they are and knows nothing of their content. Bad input (number 0, an
// unknown level, more than MaxSize bytes) is fs.ErrInvalid: it says nothing about the store.
//
// Opening a store touches nothing, so that whoever only reads makes nothing. Put and Probe make the store's place where
// there is none, durably; a place that cannot be used is the error of the call that needs it, and a later call may
// succeed.
//
// List gives what is stored, newest (highest number) first, without reading contents; a session never heard of has an
// empty list. Get gives the bytes back; checking them is Decode's work.
//
// Delete removes one; a number that is not there is no error. Sessions gives the keys' folders (Key.Dir) that have at
// least one checkpoint, in no order.
//
// Probe proves that the store can write now: where checkpoints go it writes, syncs, renames and removes a thing of its
// own, of at least size bytes. A few bytes fit on a disk that has no room for a checkpoint.
type Store interface {
	Put(ctx context.Context, key Key, m Meta, data []byte) error
	List(ctx context.Context, key Key) ([]Meta, error)
	Get(ctx context.Context, key Key, number uint64) ([]byte, error)
	Delete(ctx context.Context, key Key, number uint64) error
	Sessions(ctx context.Context) ([]string, error)
	Probe(ctx context.Context, size int) error
	Close() error
}
