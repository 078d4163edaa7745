package main

import (
	"os"
	"path/filepath"

	"belay/internal/agent"
	"belay/internal/vfs"
)

// host is this machine as the agents may know it. Root is the state folder; it may be empty where nothing is installed.
func host(root string) agent.Host {
	h := agent.Host{State: root, FS: vfs.OS{}, Env: os.Getenv}
	if home, err := os.UserHomeDir(); err == nil && filepath.IsAbs(home) {
		h.Home = home
	}
	return h
}

// host is this machine with the state folder of the flags and settings.
func (a *app) host() (agent.Host, error) {
	root, err := a.root()
	return host(root), err
}
