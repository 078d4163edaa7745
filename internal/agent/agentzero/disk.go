package agentzero

import "belay/internal/vfs"

// OnDisk makes all that Install and Uninstall write go to another disk than the real one.
func (a *Agent) OnDisk(fsys vfs.FS) { a.fsys = fsys }
