package agentzero

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"belay/internal/agent"
	"belay/internal/agent/kit/payload"
	"belay/internal/transcript/wholefile"
)

const (
	defaultMost = 20 // of Query.Most
	chatName    = "chat.json"
)

// Locate finds chats of all folders that the program may be installed in, newest first. Of each it reads the head.
func (a *Agent) Locate(ctx context.Context, q agent.Query) ([]agent.Found, error) {
	most := q.Most
	if most <= 0 {
		most = defaultMost
	}

	var files []agent.Found
	for _, root := range a.roots {
		place := payload.RealPath(root)
		if q.Workspace != "" && place != q.Workspace && place != payload.RealPath(q.Workspace) {
			continue
		}
		files = append(files, chats(root, place)...)
	}

	slices.SortStableFunc(files, func(x, y agent.Found) int {
		return cmp.Or(y.Changed.Compare(x.Changed), cmp.Compare(x.Path, y.Path))
	})
	var found []agent.Found
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return found, err
		}

		id, hidden := headOf(f.Path)
		if id != "" {
			f.Session = id
		}
		if hidden || q.Session != "" && f.Session != q.Session {
			continue
		}
		if found = append(found, f); len(found) == most {
			break
		}
	}

	return found, nil
}

// chats lists the chat files below one installation: a folder for each chat, or in versions before 0.8 a file.
func chats(root, workspace string) []agent.Found {
	dir := filepath.Join(root, "usr", "chats")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // no chats there
	}

	var files []agent.Found
	for _, e := range entries {
		session, path := e.Name(), filepath.Join(dir, e.Name(), chatName)
		if base, ok := strings.CutSuffix(e.Name(), ".json"); ok && !e.IsDir() {
			session, path = base, filepath.Join(dir, e.Name())
		}

		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue // a folder without a chat in it
		}

		files = append(
			files,
			agent.Found{
				Source:    agent.Source{Path: path, Session: session},
				Workspace: workspace,
				Changed:   info.ModTime(),
			},
		)
	}

	return files
}

// headOf reads what a chat says of itself before its agents. What cannot be read says nothing.
func headOf(path string) (id string, hidden bool) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}

	defer file.Close() // read only
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false
	}

	enough := errors.New("the head is read")
	j := wholefile.NewJSON(file)
	_ = j.Object(func(key string) error { // a head that breaks off has said what it has
		switch key {
		case "id":
			return word(j, &id)
		case "type":
			var kind string
			err := word(j, &kind)
			hidden = strings.EqualFold(kind, typeBackground)
			return err

		case "agents", "log":
			return enough
		}
		return nil
	})

	return id, hidden
}

// Recognise knows a chat.json by the keys of its head.
func (*Agent) Recognise(head []byte) agent.Score {
	head = bytes.TrimLeft(head, "\ufeff \t\r\n")
	if len(head) == 0 || head[0] != '{' || !bytes.Contains(head, []byte(`"agents"`)) {
		return agent.NotMine
	}

	dec := json.NewDecoder(bytes.NewReader(head))
	if _, err := dec.Token(); err != nil {
		return agent.NotMine
	}

	keys := map[string]bool{}
	for dec.More() && !keys["agents"] {
		key, err := dec.Token()
		if err != nil {
			return agent.NotMine
		}

		s, _ := key.(string) // a key is a string
		keys[s] = true
		var skip json.RawMessage
		if s != "agents" && dec.Decode(&skip) != nil {
			return agent.NotMine
		}
	}

	return agent.MineIf(keys["agents"] && keys["id"] && (keys["created_at"] || keys["type"] || keys["name"]))
}
