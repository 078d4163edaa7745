package proc

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCountOOM(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  OOMCount
	}{
		{"cgroup v2", map[string]string{
			"proc/vmstat":      "nr_free_pages 9\noom_kill 7\n",
			"proc/self/cgroup": "0::/user.slice/a\n",
			"sys/fs/cgroup/user.slice/a/memory.events": "low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 1\n",
		}, OOMCount{3, 7}},
		{"cgroup v1", map[string]string{
			"proc/vmstat":      "oom_kill 1\n",
			"proc/self/cgroup": "8:pids:/\n4:memory:/jobs/b\n0::/\n",
			"sys/fs/cgroup/memory/jobs/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
		}, OOMCount{5, 1}},
		{"a container, with the path of its host", map[string]string{
			"proc/vmstat":                 "oom_kill 1\n",
			"proc/self/cgroup":            "0::/host/only\n",
			"sys/fs/cgroup/memory.events": "oom_kill 2\n",
		}, OOMCount{2, 1}},
		{"an old kernel", map[string]string{
			"proc/vmstat": "nr_free_pages 9\n", "proc/self/cgroup": "0::/\n",
		}, OOMCount{-1, -1}},
		{"nothing", nil, OOMCount{-1, -1}},
		{"broken", map[string]string{
			"proc/vmstat": "oom_kill x\n", "proc/self/cgroup": "::\n:\nmemory\n",
		}, OOMCount{-1, -1}},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if got := countOOM(root); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
