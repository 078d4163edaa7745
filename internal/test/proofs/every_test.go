package proofs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const goldenFile = "testdata/golden.txt"

// host leaves nothing of this machine in what agents make of a payload.
var host = agent.Host{Home: "/home/absent"}

// TestEveryTranscript reads every transcript and every hook payload that lies in the repository, and those beside it
// where they are: each is of exactly one agent, is read to its end without an error, gives the figures of the golden
// file, and is the same file afterwards. A file that nobody has given a meaning (kinds) fails.
func TestEveryTranscript(t *testing.T) {
	golden := readGolden(t)
	seen := map[string]string{}
	for _, tree := range trees {
		before := snapshot(t, tree)
		if before == nil {
			t.Logf("%s is not here: its files are left out", tree.root)
			for name, line := range golden { // what cannot be seen stays as it was
				if strings.HasPrefix(name, tree.label+"/") {
					seen[name] = line
				}
			}
			continue
		}

		for _, name := range slices.Sorted(maps.Keys(before)) {
			t.Run(name, func(t *testing.T) {
				for key, line := range figures(t, name, filepath.Join(tree.root, strings.TrimPrefix(name, tree.label+"/"))) {
					seen[key] = line
					if !*update && golden[key] != line {
						t.Errorf(
							"%s\n got %s\nwant %s\n(go test ./internal/test/proofs -run EveryTranscript -update, when it is right)",
							key, line, cmp.Or(golden[key], "a line in "+goldenFile),
						)
					}
				}
			})
		}

		if after := snapshot(t, tree); !maps.Equal(before, after) {
			t.Errorf("%s is not as it was before it was read: %s", tree.root, changes(before, after))
		}
	}

	if len(seen) < 150 {
		t.Errorf("%d lines of figures: this test holds nothing", len(seen))
	}

	for name := range golden {
		if seen[name] == "" && !*update {
			t.Errorf("%s has a line in %s, and is not there", name, goldenFile)
		}
	}

	if *update {
		writeGolden(t, seen)
	}
}

// tree is a folder with files of agents; label stands for its root in the golden file.
type tree struct{ label, root string }

// holds says whether a file of a tree counts: beside the repository every one; in it all that the agents' tests read,
// and elsewhere what lines of an agent may be in.
func (tr tree) holds(name string) bool {
	if tr.label != "repo" {
		return true
	}
	return strings.Contains(name, "/testdata/") && !strings.Contains(name, "/fuzz/") &&
		(strings.HasPrefix(name, "repo/internal/agent/") || strings.HasSuffix(name, ".jsonl"))
}

var trees = []tree{
	{"repo", "../../.."},
	{"transcripts", "../../../../shared/transcripts"},
	{"hooks-captured", "../../../../shared/hooks-captured"},
}

// snapshot says what each file of a tree is: its bytes, size, mode, time and number. It is nil when the tree is not
// there.
func snapshot(t *testing.T, tree tree) map[string]string {
	t.Helper()
	if _, err := os.Stat(tree.root); errors.Is(err, fs.ErrNotExist) && strings.Contains(tree.root, "shared") {
		return nil
	}

	files := map[string]string{}
	err := filepath.WalkDir(tree.root, func(path string, d fs.DirEntry, err error) error {
		name := tree.label + strings.TrimPrefix(path, tree.root)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "repo/.git" || name == "repo/bin"):
			return fs.SkipDir
		case d.IsDir() || !tree.holds(name):
			return nil
		}

		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		info, err := os.Stat(path)
		if err != nil {
			return err
		}

		files[name] = fmt.Sprintf(
			"%x %d %v %d", sha256.Sum256(data), info.Size(), info.Mode(), info.ModTime().UnixNano(),
		)

		return nil
	})

	if err != nil {
		t.Fatal(err)
	}

	return files
}

// changes names the files that are not the same in both.
func changes(before, after map[string]string) (names []string) {
	for name := range before {
		if after[name] != before[name] {
			names = append(names, name)
		}
	}

	for name := range after {
		if before[name] == "" {
			names = append(names, name)
		}
	}

	return names
}

func readGolden(t *testing.T) map[string]string {
	t.Helper()
	lines := map[string]string{}
	data, err := os.ReadFile(goldenFile)
	if err != nil && !*update {
		t.Fatal(err)
	}

	for l := range strings.Lines(string(data)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(l), ": "); ok && !strings.HasPrefix(l, "#") {
			lines[name] = rest
		}
	}

	return lines
}

func writeGolden(t *testing.T, lines map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(
		"# What every transcript and every hook payload comes to. Written by: go test ./internal/test/proofs -run EveryTranscript -update\n",
	)
	b.WriteString(
		"# records: entries of the reader, each once; open: calls without a result; words: hash of the model's last ones.\n",
	)
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "%s: %s\n", name, lines[name])
	}

	if err := os.WriteFile(goldenFile, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// figures gives the golden lines of one file: one, or one for each session of a database.
func figures(t *testing.T, name, path string) map[string]string {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.names.MatchString(name) })
	if i < 0 {
		t.Errorf("%s: no kind says what this file is", name)
		return nil
	}

	k := kinds[i]
	switch {
	case k.hooks != "":
		return map[string]string{name: hookFigures(t, k, name, path)}
	case k.reason != "":
		return nil
	}

	return transcriptFigures(t, k, name, path)
}

// kind says what the files with some names are: transcripts, payloads of an agent's hooks, or neither for a reason. The
// first that fits counts.
type kind struct {
	names *regexp.Regexp
	// hooks names the agent whose payloads these are.
	hooks string
	// reason says why this is neither.
	reason string
	// agent is set for transcripts that are not known as its own by their beginning; why says what is wrong with it.
	agent, why string
	// rows is the table whose rows the file holds as lines: they are put into a database first.
	rows string
}

// claimed is the agent that knows a transcript by its beginning, better than any other.
func claimed(t *testing.T, k kind, name, path string) agent.Agent {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	a, ok := agent.Recognise(all.All(host), data[:min(len(data), 64<<10)])
	if k.agent == "" {
		if !ok {
			t.Fatalf("%s is of no agent", name)
		}
		return a
	}

	if ok && a.Name() == k.agent {
		t.Errorf("%s is known as %s's: its kind need not say so", name, k.agent)
	}
	if a, ok = all.ByName(host, k.agent); !ok {
		t.Fatalf("no agent %s", k.agent)
	}

	return a
}

func transcriptFigures(t *testing.T, k kind, name, path string) map[string]string {
	t.Helper()
	if k.rows != "" {
		path = database(t, k.rows, path)
	}

	a := claimed(t, k, name, path)
	lines := map[string]string{}
	if !isDatabase(t, path) {
		lines[name] = a.Name() + " " + readWhole(t, a, agent.Source{Path: path})
		return lines
	}

	for _, session := range sessionsOf(t, path) {
		lines[name+"#"+session] = a.Name() + " " + readWhole(t, a, agent.Source{Path: path, Session: session})
	}

	return lines
}

// readWhole takes a transcript to its end and counts what it holds.
func readWhole(t *testing.T, a agent.Agent, src agent.Source) string {
	t.Helper()
	r := a.Open(src)
	var f tally
	var cur checkpoint.Cursor
	for n := 0; ; n++ {
		b, err := r.Read(context.Background(), cur, checkpoint.ReadOptions{Whole: true, Final: true})
		if err != nil {
			t.Fatalf("read %d: %v", n, err)
		}

		f.add(b)
		if cur = b.Cursor; !b.More {
			break
		}
		if n == 1000 {
			t.Fatal("there is more after a thousand reads")
		}
	}

	// At its end there is nothing more, for this reader and for a later one.
	for _, later := range []checkpoint.Transcript{r, a.Open(src)} {
		b, err := later.Read(context.Background(), cur, checkpoint.ReadOptions{})
		if err != nil || len(b.Entries) > 0 || b.More {
			t.Errorf("read at the end: %d entries, more %v, %v; want nothing", len(b.Entries), b.More, err)
		}
		if err := later.Close(); err != nil {
			t.Error(err)
		}
	}

	return f.String()
}

// tally counts entries.
type tally struct {
	order  []string
	last   map[string]checkpoint.Entry // by id
	losses checkpoint.Losses
}

func (f *tally) add(b checkpoint.Batch) {
	if f.last == nil {
		f.last = map[string]checkpoint.Entry{}
	}

	f.losses.Add(b.Losses)
	for _, e := range b.Entries {
		id := cmp.Or(e.ID, fmt.Sprintf("without an id, %d", len(f.order))) + " " + string(e.Kind)
		switch e.Op {
		case checkpoint.Retract:
			for _, kind := range []checkpoint.EntryKind{checkpoint.EntryUser, checkpoint.EntryAssistant} {
				delete(f.last, e.ID+" "+string(kind))
			}
			continue
		case checkpoint.Reset:
			id = fmt.Sprintf("reset %d", len(f.order))
		}

		f.order = append(f.order, id)
		f.last[id] = e
	}
}

func (f *tally) String() string {
	var turns int
	var words string
	open, calls, done := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, id := range f.order {
		e, ok := f.last[id]
		if !ok {
			continue
		}

		switch e.Kind {
		case checkpoint.EntryUser:
			if !e.Aside {
				turns++
			}

		case checkpoint.EntryAssistant:
			words = e.Text
		case checkpoint.EntryCall:
			calls[e.Call], open[e.Call] = true, true
		case checkpoint.EntryResult:
			done[e.Call] = !e.MadeUp
		}
	}

	for id := range done {
		if done[id] {
			delete(open, id)
		}
	}

	s := fmt.Sprintf("records=%d turns=%d tools=%d open=%d", len(f.last), turns, len(calls), len(open))
	l := f.losses
	for _, n := range []struct {
		name  string
		count int64
	}{{"torn", l.Torn}, {"bad", int64(l.BadLines)}, {"holes", int64(l.Holes)}, {"repeats", int64(l.Repeats)}, {"rescued", int64(l.Rescued)}, {"oversized", int64(l.Oversized)}, {"replaced", int64(l.Replaced)}} {
		if n.count > 0 {
			s += fmt.Sprintf(" %s=%d", n.name, n.count)
		}
	}

	if words == "" {
		return s
	}

	return s + fmt.Sprintf(" words=%.4x", sha256.Sum256([]byte(words)))
}

// hookFigures decodes every payload of a file and counts the events that they mean.
func hookFigures(t *testing.T, k kind, name, path string) string {
	t.Helper()
	a, ok := all.ByName(host, k.hooks)
	if !ok {
		t.Fatalf("no agent is called %s", k.hooks)
	}

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	counts := map[string]int{}
	h := sha256.New()
	list := payloads(t, k, name, data)
	for n, p := range list {
		in, err := a.Decode(t.Context(), p)
		if err != nil {
			t.Errorf("payload %d: %v", n+1, err)
		}
		if len(in.Events) == 0 {
			counts["nothing"]++
		}

		for _, e := range in.Events {
			counts[string(e.Kind)]++
			text, err := json.Marshal(e)
			if err != nil {
				t.Error(err)
			}
			h.Write(text) // cannot fail
		}
	}

	if len(list) == 0 {
		t.Error("no payload in it")
	}

	line := fmt.Sprintf("%s payloads=%d", a.Name(), len(list))
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		line += fmt.Sprintf(" %s=%d", what, counts[what])
	}

	return fmt.Sprintf("%s events=%.4x", line, h.Sum(nil))
}

// payloads gives the hook calls of a file: a list of captured calls, one object, or one object a line. Where a payload
// does not name its event the file's name does, or the order in which the program calls its hooks.
func payloads(t *testing.T, k kind, name string, data []byte) []agent.Hook {
	t.Helper()
	event := strings.TrimSuffix(filepath.Base(name), ".json")
	var captured []struct{ Stdin, Event json.RawMessage }
	if json.Unmarshal(data, &captured) == nil {
		var list []agent.Hook
		for _, c := range captured {
			payload := c.Stdin
			if len(payload) == 0 { // the recorder's names are not those of belay's extension
				payload = []byte(
					strings.NewReplacer(
						`"_sessionId"`, `"session_id"`, `"_sessionFile"`, `"session_file"`, `"_cwd"`, `"cwd"`,
					).Replace(
						string(c.Event),
					),
				)
			}

			list = append(list, agent.Hook{Event: event, Payload: payload})
		}

		return list
	}

	if json.Valid(data) {
		return []agent.Hook{{Event: event, Payload: data}}
	}

	var list []agent.Hook
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if k.hooks == "copilot" { // as the program calls them
				event = []string{"userPromptSubmitted", "sessionStart", "agentStop", "sessionEnd"}[len(list)%4]
			}
			list = append(list, agent.Hook{Event: event, Payload: bytes.Clone(line)})
		}
	}

	return list
}
