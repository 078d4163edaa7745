package filestore_test

import (
	"testing"

	"belay/checkpoint"
	"belay/checkpoint/filestore"
	"belay/checkpoint/storetest"
	"belay/internal/state"
	"belay/internal/state/check/checktest"
	"belay/internal/vfs"
)

func TestFaults(t *testing.T) {
	const root = "/home/state"
	storetest.Faults(t, func(fsys vfs.FS) checkpoint.Store { return filestore.Open(fsys, root) },
		func(fsys vfs.FS) []string { return checktest.Broken(state.Dir{Root: root, FS: fsys}) })
}
