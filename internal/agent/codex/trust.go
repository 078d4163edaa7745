package codex

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"

	"belay/internal/agent"
	"belay/internal/agent/kit/settings"
	"belay/internal/jsontext"
	"belay/internal/lazyre"
)

// ErrBadConfig: config.toml cannot be read, or has a form in which trust cannot be added without touching what is the
// user's. Nothing is written.
var ErrBadConfig = errors.New("config.toml cannot be edited")

// Codex keeps a person's trust as one table for each hook (0.169 and 0.171):
//
//	[hooks.state."/home/u/.codex/hooks.json:stop:0:0"]
//	trusted_hash = "sha256:..."
//
// with the file, the event, and the places of group and handler in the name.
const hashKey = "trusted_hash"

// grant is the trust in one hook.
type grant struct {
	key, hash string
}

// grants are those for belay's hooks as they stand in the text of hooks.json, in the order of the events.
func (a *Agent) grants(hooks []byte) ([]grant, error) {
	var list []grant
	for _, e := range hookEvents() {
		found, err := a.hooks().Handlers(hooks, e.Name)
		if err != nil {
			return nil, err
		}

		for _, h := range found {
			list = append(list, grant{
				key:  fmt.Sprintf("%s:%s:%d:%d", a.hooks().Path(), trustKey(e.Name), h.Group, h.Index),
				hash: trustHash(e, h),
			})
		}
	}

	return list, nil
}

var capital = lazyre.New(`([a-z])([A-Z])`)

// trustKey is an event's name in those of trusted hooks: SessionStart is session_start there.
func trustKey(event string) string {
	return strings.ToLower(capital().ReplaceAllString(event, "${1}_$2"))
}

// trustHash is what Codex makes of a hook: the hash of its settings as compact JSON with sorted keys, with what Codex
// fills in.
func trustHash(e settings.Event, h settings.Handler) string {
	set := map[string]any{}
	var matcher struct {
		Matcher *string `json:"matcher"`
	}

	// Both are JSON objects, or they would be no hooks of belay's.
	_ = json.Unmarshal(h.Text, &set)
	_ = json.Unmarshal(h.GroupText, &matcher)
	if _, ok := set["async"]; !ok {
		set["async"] = false
	}
	if _, ok := set["timeout"]; !ok {
		set["timeout"] = int(e.Budget.Seconds())
	}

	form := map[string]any{"event_name": trustKey(e.Name), "hooks": []any{set}}
	if matcher.Matcher != nil {
		form["matcher"] = *matcher.Matcher
	}

	var text bytes.Buffer
	enc := json.NewEncoder(&text) // sorts keys
	enc.SetEscapeHTML(false)
	_ = enc.Encode(form) // decoded from JSON: always encodes
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Trust writes into config.toml that a person trusts belay's hooks, just as the program does when it is told so in
// /hooks. Nothing else in the file changes. It is for the person to decide: nothing calls it but an explicit flag.
func (a *Agent) Trust(p agent.Paths, dryRun bool) ([]agent.Change, error) {
	hooks, err := a.hooks().Read()
	if err != nil {
		return nil, fmt.Errorf("trust hooks: %w", err)
	}
	if next, err := a.hooks().Merge(hooks.Text, p); err != nil || !bytes.Equal(next, hooks.Text) {
		return nil, fmt.Errorf("trust hooks in %s: %w", hooks.Path, errors.Join(ErrNotInstalled, err))
	}

	grants, err := a.grants(hooks.Text)
	if err != nil {
		return nil, fmt.Errorf("trust hooks in %s: %w", hooks.Path, err)
	}

	f, err := a.readConfig()
	if err != nil {
		return nil, fmt.Errorf("trust hooks: %w", err)
	}

	next, bare, err := trusted(f.Text, grants)
	var c agent.Change
	if err == nil {
		c, err = a.hooks().Files().Put(f, next, bare, fmt.Sprintf("trust in %d hooks of belay's", len(grants)), dryRun)
	}
	if err != nil {
		return nil, fmt.Errorf("trust hooks in %s: %w", f.Path, err)
	}

	return []agent.Change{c}, nil
}

// untrusted names the events whose hook of belay's in this text of hooks.json Codex would not run.
func (a *Agent) untrusted(hooks []byte) []string {
	grants, err := a.grants(hooks)
	if err != nil {
		return nil
	}

	// A config that is not there or cannot be read trusts nothing.
	f, _ := a.readConfig()
	state, _ := stateOf(f.Text)
	var names []string
	for _, g := range grants {
		t, _ := state[g.key].(map[string]any)
		if t[hashKey] != g.hash {
			names = append(names, strings.TrimPrefix(g.key, a.hooks().Path()+":"))
		}
	}

	return names
}

// undoTrust decides how config.toml goes back.
func (a *Agent) undoTrust() (settings.Undo, error) {
	f, err := a.readConfig()
	if err != nil {
		return settings.Undo{}, err
	}

	hooks, err := a.hooks().Read()
	if err != nil {
		return settings.Undo{}, err
	}

	grants, err := a.grants(hooks.Text)
	if err != nil {
		return settings.Undo{}, err
	}

	bare, err := distrusted(f.Text, grants)
	if err != nil {
		return settings.Undo{}, err
	}

	return a.hooks().Files().Undo(f, bare, jsontext.JSON.Blank(bare))
}

// stateOf gives the tables of [hooks.state].
func stateOf(text []byte) (map[string]any, error) {
	all, err := decodeTOML(text)
	hooks, _ := all["hooks"].(map[string]any)
	state, _ := hooks["state"].(map[string]any)
	return state, err
}

func decodeTOML(text []byte) (map[string]any, error) {
	all := map[string]any{}
	if _, err := toml.Decode(strings.TrimPrefix(string(text), jsontext.BOM), &all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	return all, nil
}

// trusted gives the text with the grants in it, and without them.
func trusted(text []byte, grants []grant) (next, bare []byte, err error) {
	if bare, err = distrusted(text, grants); err != nil {
		return nil, nil, err
	}

	state, err := stateOf(text)
	if err != nil {
		return nil, nil, err
	}
	if inLine(text) {
		return nil, nil, fmt.Errorf("%w: hooks.state is no table on lines of its own", ErrBadConfig)
	}

	next = text
	for _, g := range grants {
		if t, _ := state[g.key].(map[string]any); t[hashKey] == g.hash {
			continue
		}
		next = addGrant(dropHash(next, g.key), g)
	}

	return next, bare, sameBut(text, next, grants, true)
}

var (
	anyHeader  = lazyre.New(`^\[`)
	hooksTable = lazyre.New(`^\[\s*["']?hooks["']?\s*\]`)
	hooksKey   = lazyre.New(`^["']?hooks["']?\s*[=.]`)
	stateKey   = lazyre.New(`^["']?state["']?\s*[=.]`)
)

// inLine says whether hooks or hooks.state are written as values, to which TOML lets nobody add a table.
func inLine(text []byte) bool {
	key := hooksKey
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case hooksTable().MatchString(line):
			key = stateKey
		case anyHeader().MatchString(line):
			key = nil
		case key != nil && key().MatchString(line):
			return true
		}
	}

	return false
}

// distrusted gives the text without the grants.
func distrusted(text []byte, grants []grant) ([]byte, error) {
	bare := text
	for _, g := range grants {
		bare = dropHash(bare, g.key)
	}
	return bare, sameBut(text, bare, grants, false)
}

// sameBut checks an edit by what both texts mean: all is the same but the grants, which are there or not.
func sameBut(old, next []byte, grants []grant, there bool) error {
	was, err := decodeTOML(old)
	if err != nil {
		return err
	}

	is, err := decodeTOML(next)
	if err != nil {
		return err
	}

	for _, g := range grants {
		take(was, g.key)
		if hash := take(is, g.key); there && hash != g.hash || !there && hash != nil {
			return fmt.Errorf("%w: it holds trust in a form of its own", ErrBadConfig)
		}
	}

	if !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%w: more than trust would change", ErrBadConfig)
	}

	return nil
}

// take gives a grant's hash and takes it out, with the tables that become empty.
func take(all map[string]any, key string) any {
	hooks, _ := all["hooks"].(map[string]any)
	state, _ := hooks["state"].(map[string]any)
	t, _ := state[key].(map[string]any)
	hash := t[hashKey]
	delete(t, hashKey)
	if len(t) == 0 {
		delete(state, key)
	}
	if len(state) == 0 {
		delete(hooks, "state")
	}
	if len(hooks) == 0 {
		delete(all, "hooks")
	}

	return hash
}

// table is one table of a TOML text that is written on lines of its own, by offsets.
type table struct {
	start, body, end int // of its header, of the line after, of the next header or the end
}

// findTable finds [hooks.state."key"].
func findTable(text []byte, key string) (table, bool) {
	t, found := table{}, false
	for at := 0; at < len(text); {
		end := at + bytes.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}

		if line := strings.TrimSpace(string(text[at:end])); strings.HasPrefix(line, "[") {
			if found {
				t.end = at
				return t, true
			}
			if found = isHeader(line, key); found {
				t = table{start: at, body: end}
			}
		}

		at = end
	}

	t.end = len(text)
	return t, found
}

func isHeader(line, key string) bool {
	var all map[string]any
	if !strings.HasPrefix(line, "[") || strings.HasPrefix(line, "[[") || !strings.Contains(line, "state") {
		return false
	}
	if _, err := toml.Decode(line, &all); err != nil {
		return false
	}

	hooks, _ := all["hooks"].(map[string]any)
	state, _ := hooks["state"].(map[string]any)
	_, ok := state[key]
	return ok && len(all) == 1 && len(state) == 1
}

// dropHash takes the hash out of a grant's table, and the table when nothing else is in it, with the empty line before.
func dropHash(text []byte, key string) []byte {
	t, ok := findTable(text, key)
	if !ok {
		return text
	}

	rest, last := false, t.body
	var from, to int // of the hash's line
	for at := t.body; at < t.end; {
		end := at + bytes.IndexByte(text[at:t.end], '\n') + 1
		if end == at {
			end = t.end
		}

		line := strings.TrimSpace(string(text[at:end]))
		if word, _, _ := strings.Cut(line, "="); strings.TrimSpace(word) == hashKey {
			from, to, last = at, end, end
		} else if line != "" && !strings.HasPrefix(line, "#") {
			rest = true
		}

		at = end
	}

	switch {
	case rest && to == 0:
		return text
	case rest:
		return jsontext.Splice(text, from, to, "")
	}

	start := t.start
	before := bytes.TrimSuffix(bytes.TrimSuffix(text[:start], []byte("\n")), []byte("\r"))
	if start > 0 && (len(before) == 0 || before[len(before)-1] == '\n') {
		start = len(before)
	}

	return jsontext.Splice(text, start, last, "")
}

// addGrant puts a hash into its table, or the table at the end.
func addGrant(text []byte, g grant) []byte {
	eol := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		eol = "\r\n"
	}

	line := hashKey + " = " + quoted(g.hash) + eol
	if t, ok := findTable(text, g.key); ok {
		return jsontext.Splice(text, t.body, t.body, line)
	}

	out := bytes.Clone(text)
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, eol...)
	}
	if len(out) > 0 {
		out = append(out, eol...)
	}

	return append(out, "[hooks.state."+quoted(g.key)+"]"+eol+line...)
}

// quoted is a TOML basic string.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}

	b.WriteByte('"')
	return b.String()
}
