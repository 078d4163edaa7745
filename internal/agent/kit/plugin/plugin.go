// Package plugin holds what those agents have in common into which belay goes as a plugin, not as a hook command: the
// plugin's line to the daemon (line.js), and the installer of its files.
//
// It promises:
//   - The line is written once. Where an agent loads a plugin from one file, the line is put into it (OneFile); where
//     from a folder, it lies beside it (Line). Nothing that is installed depends on anything.
//   - A file of ours is known by its first line. What somebody else wrote is never replaced and never removed.
//   - Install, uninstall and a second install are idempotent; folders that were made for a file go with it, unless
//     something else came into them.
//   - Each write goes through vfs.Replace; a dry run writes nothing.
//
// It does not know what a plugin does: that is its agent's.
package plugin

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"belay/internal/agent"
)

// Errors of Install and Uninstall. Nothing of the agent's has changed after any of them.
var (
	// ErrForeign: the plugin's place is taken by something that belay did not write.
	ErrForeign = errors.New("not written by belay")
)

//go:embed line.js
var line string

// lineImport is how a plugin that is written in its agent's folder asks for the line.
const lineImport = "\"./line.js\";\n"

// Line is the JavaScript module that lies beside a plugin: makeLine, and what bounds the texts that it sends.
func Line(p agent.Paths) (string, error) { return Fill(line, p) }

// OneFile is a plugin and the line in one module, for an agent that loads single files.
func OneFile(text string, p agent.Paths) (string, error) {
	at := strings.Index(text, lineImport)
	if at < 0 {
		return "", fmt.Errorf("assemble plugin: it does not import the line")
	}

	head, body := text[:at], text[at+len(lineImport):]
	head = head[:strings.LastIndexByte(head, '\n')+1] // without the import itself
	imports, rest := imported(line)
	own, _ := imported(head)
	imports = slices.DeleteFunc(imports, func(s string) bool { return slices.Contains(own, s) })
	rest = strings.ReplaceAll(rest, "\nexport ", "\n") // what a module exports is its agent's to call
	return Fill(head+strings.Join(imports, "")+"\n"+strings.TrimSpace(rest)+"\n"+body, p)
}

// imported takes the import lines out of a module.
func imported(text string) (imports []string, rest string) {
	var kept strings.Builder
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, "import ") {
			imports = append(imports, l)
		} else {
			kept.WriteString(l)
		}
	}

	return imports, kept.String()
}

// Fill puts the places of belay-hook and of the socket into a plugin's text, in which they are called HOOK and SOCKET.
func Fill(text string, p agent.Paths) (string, error) {
	switch {
	case !filepath.IsAbs(p.Hook):
		return "", fmt.Errorf("%w: %q is not absolute", agent.ErrBadHook, p.Hook)
	case !utf8.ValidString(p.Hook + p.Socket):
		return "", fmt.Errorf("%w: %q is no valid UTF-8", agent.ErrBadHook, p.Hook+p.Socket)
	}
	return Set(Set(text, "HOOK", "belay-hook", p.Hook), "SOCKET", "", p.Socket), nil
}

// Set gives a name at the beginning of a plugin's text another value. What JSON writes of a string, JavaScript and
// Python read as the same string.
func Set(text, name, was, is string) string {
	value, err := json.Marshal(is)
	if err != nil {
		panic(fmt.Sprintf("string has no JSON form: %v", err)) // every string has one
	}
	return strings.Replace(text, fmt.Sprintf("%s = %q", name, was), name+" = "+string(value), 1)
}
