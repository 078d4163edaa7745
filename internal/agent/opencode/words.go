package opencode

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"belay/checkpoint"
	"belay/internal/agent/kit/payload"
	"belay/internal/redact"
	"belay/internal/transcript/lines"
)

// Bounds of what the program names. Nothing longer is real.
const (
	maxIdent   = 256
	maxPath    = 4096
	maxFailure = 1024
)

// ident makes a name that the program gives (ids, tools, models) safe to keep, and of a bounded length.
func ident(s string) string {
	s = lines.Clean(s)
	if len(s) <= maxIdent {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "#" + strconv.FormatUint(checkpoint.Hash(s), 16)
}

// words makes a text of the conversation safe to keep. belay's own blocks are taken out, and their markers given.
func words(s string) (string, []string) {
	rest, markers := payload.StripOwn(s)
	rest = strings.TrimSpace(redact.Cut(lines.Clean(rest), checkpoint.CutText))
	return rest, markers
}

// output makes a tool's output safe to keep.
func output(s string) string {
	return redact.Cut(lines.Clean(payload.WithoutOwn(s)), checkpoint.CutTool)
}

// failure is an error of the program's in one line.
func failure(e *messageError) string {
	text := e.Name
	if e.Data.Message != "" {
		text += ": " + e.Data.Message
	}
	return redact.Cut(lines.Clean(text), maxFailure)
}

// arguments makes a call's arguments safe to keep: compact JSON, and nothing for none.
func arguments(raw json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return output(string(raw))
	}

	switch compact.String() {
	case "", "null", "{}":
		return ""
	}

	return output(compact.String())
}

// promptText is what a person said in a message: the parts that the person wrote or attached, and the markers of
// belay's own blocks in the others.
func promptText(parts []part) (said string, markers []string) {
	var list []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			rest, own := words(p.Text)
			markers = append(markers, own...)
			if !p.Synthetic && !p.Ignored && rest != "" {
				list = append(list, rest)
			}

		case "file":
			if !p.Synthetic {
				list = append(list, "[file "+ident(p.Filename)+"]")
			}

		case "subtask":
			rest, _ := words(p.Prompt)
			list = append(list, strings.TrimSpace("/"+ident(p.Command)+" "+rest))
		}
	}

	said, _ = words(strings.Join(list, "\n")) // several parts together have one bound
	return said, slices.Compact(markers)
}

// stamp is a time of the program's, in milliseconds.
func stamp(ms float64) time.Time {
	if ms <= 0 || ms > 1<<52 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

// cleanPath is a path of the program's, or empty when it can be none.
func cleanPath(s string) string {
	if !filepath.IsAbs(s) || len(s) > maxPath || strings.IndexByte(s, 0) >= 0 {
		return ""
	}
	return s
}

// realPath follows links where the path leads somewhere on this machine.
func realPath(path string) string {
	if path = cleanPath(path); path == "" {
		return ""
	}
	return payload.RealPath(path)
}
