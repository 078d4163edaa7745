package daemon

import (
	"errors"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"belay/internal/daemon/socket"
	"belay/internal/state"
)

// site is where a life lives: the state folder and the socket.
type site struct {
	dir     state.Dir
	place   *socket.Place // nil: nobody is served
	root    os.FileInfo   // the state folder as it was at the start; nil when it was not there
	missing bool          // the state folder could not be made
	problem error         // why the state folder cannot be used, if it cannot
	gone    chan struct{} // told when the socket or the state folder was removed
}

// enter makes the state folder and takes lock and socket. A folder that cannot be made is no error: the daemon is
// degraded from the start, holds events in memory, and hooks notice nothing.
func (s *site) enter(log *zap.Logger) error {
	if err := s.dir.Make(); err != nil {
		if errors.Is(err, state.ErrForeign) {
			return err
		}
		s.problem, s.missing = err, true
		log.Error("state folder", zap.Error(err))
	}

	s.root, _ = os.Stat(s.dir.Root)
	var err error
	s.place, err = socket.Listen(s.dir.Root)
	return err
}

// path is the socket's.
func (s *site) path() string {
	if s.place == nil {
		return ""
	}
	return s.place.Path
}

// check notices that somebody removed the state folder or the socket, or that a state folder which could not be made
// can be made now: then another life begins.
func (s *site) check() {
	lost := s.place != nil && s.place.Lost()
	switch now, err := os.Stat(s.dir.Root); {
	case s.missing:
		lost = lost || err == nil && s.dir.Make() == nil
	case s.root != nil:
		lost = lost || errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, s.root)
	}

	if lost {
		poke(s.gone)
	}
}

// poke wakes a channel's reader without waiting for it.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// leave ends listening.
func (s *site) leave() error {
	if s.place == nil {
		return nil
	}
	return s.place.Close()
}
