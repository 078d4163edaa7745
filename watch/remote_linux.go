package watch

import "golang.org/x/sys/unix"

// remote says whether a folder lies on a file system whose changes may come from elsewhere and then give no events:
// adding a watch there works, and tells nothing.
func remote(dir string) bool {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return false
	}

	switch uint32(s.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.AFS_SUPER_MAGIC:
		return true
	}

	return false
}
