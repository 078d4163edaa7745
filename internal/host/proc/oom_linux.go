package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// countOOM reads the counts of a file system at root: memory.events of our group (cgroup v2), or memory.oom_control
// (v1), and the machine's in vmstat. In a container the group's path may be another one's; then the root of what is
// mounted is ours.
func countOOM(root string) OOMCount {
	c := OOMCount{own: -1, machine: -1}
	if n, ok := field(filepath.Join(root, "proc/vmstat"), "oom_kill"); ok {
		c.machine = n
	}

	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return c
	}

	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}

		dir, file := "sys/fs/cgroup", "memory.events"
		if parts[1] != "" {
			dir, file = "sys/fs/cgroup/memory", "memory.oom_control"
		}
		if parts[1] != "" && parts[1] != "memory" {
			continue
		}

		for _, path := range []string{parts[2], "/"} {
			if n, ok := field(filepath.Join(root, dir, path, file), "oom_kill"); ok {
				c.own = n
				return c
			}
		}
	}

	return c
}

// field reads a number from a file of lines "name number".
func field(file, name string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}

	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}

	return 0, false
}
