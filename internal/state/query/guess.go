package query

import (
	"io"
	"os"
	"syscall"

	"belay/internal/agent"
)

// Guess tells whose transcript a file is by its first records; empty when no agent knows it, or several do.
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
	if a, ok := agent.Recognise(f.Agents, head); ok {
		return a.Name()
	}

	return ""
}
