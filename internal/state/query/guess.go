package query

import (
	"io"
	"os"
	"syscall"

	"belay/internal/agent"
)

// Guess tells whose transcript a file is by its first records; empty when no agent knows it.
func (f Folder) Guess(path string) string {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}

	defer file.Close() // read only
	head, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return ""
	}

	for _, a := range f.Agents {
		if r, ok := a.(agent.Recogniser); ok && r.Recognise(head) {
			return a.Name()
		}
	}

	return ""
}
