package all_test

import (
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/all"
)

// TestFirstCursors: cursors in the form that each agent's had in the first release still lead to the same place. They
// are kept for ever: states and checkpoints hold them.
func TestFirstCursors(t *testing.T) {
	for _, c := range []struct {
		agent, file string
		cursor      checkpoint.Cursor
		want        string // kinds of what comes after it
	}{
		{"pi", "pi/testdata/pi/normal.final.jsonl", `{"p":{"o":6230,"l":17,"h":8885246164155270012,"t":15127699827196449414},"l":17501993905008371111,"k":true,"t":{"q":3396399939140228193,"a":true}}`,
			"user assistant turn-end"},
		{"openclaw", "pi/testdata/openclaw/unknown-types-and-bad-lines.handmade.jsonl", `{"p":{"o":2656,"l":14,"h":18232116110336220861,"t":18015430269138842689},"l":961767102232696719,"k":true,"t":{"q":15094073967626477933,"a":true}}`,
			"user assistant turn-end"},
		{"codex", "codex/testdata/reader/captured/errors.final.jsonl", `{"o":14054,"l":22,"h":14511752904357193037,"t":13188782390835378495,"u":"01a22d01-f765-7082-8c18-83cd8aa8cd0e","w":785185845,"m":2194098552,"k":true,"a":{"i":"msg_lab000400","n":26,"s":1132684344}}`,
			"turn-end user turn-end"},
		{"claude-code", "claude/testdata/reader/captured/inject-resume.final.jsonl", `{"o":13024,"l":23,"h":11338833716160540595,"t":17787091746619804330,"w":785185845,"m":2571467610,"p":2470140894,"e":true}`,
			"user assistant turn-end user assistant turn-end"},
		{"cursor", "cursor/testdata/agent-transcript-tool-use.handmade.jsonl", `{"o":330,"l":2,"h":13972481818143835808,"t":7335434912261173171,"s":{"r":"l4a.ruzlawikuvdv","n":1}}`,
			"result call result assistant"},
		{"copilot", "copilot/testdata/events.handmade.jsonl", `{"o":1438,"l":5,"h":4105947041817766380,"t":17117064738301305027,"s":{"s":"4de47255-3d43-4938-b8fa-000000000001","a":true}}`,
			"result assistant turn-end"},
		{"gemini", "gemini/testdata/transcripts/term-midtool.final.1.jsonl", `{"o":5410,"l":17,"h":8179722806918777768,"t":15309848300773649723,"m":2485544310,"a":"8df06a44-c8a6-455b-b8a9-64d9b4b9d3af"}`,
			"assistant call result assistant"},
		{"gemini", "gemini/testdata/transcripts/legacy-session.handmade.json", `{"o":0,"m":2485544310,"d":{"i":"m3","h":9943392101680497470}}`, ""},
	} {
		g, ok := all.ByName(agent.Host{}, c.agent)
		if !ok {
			t.Fatalf("no agent %s", c.agent)
		}

		r := g.Open(agent.Source{Path: filepath.Join("..", filepath.FromSlash(c.file))})
		b, err := r.Read(t.Context(), c.cursor, checkpoint.ReadOptions{Final: true})
		if err != nil {
			t.Errorf("%s: %v", c.agent, err)
		}

		var kinds []string
		for _, e := range b.Entries {
			kinds = append(kinds, string(e.Op)+string(e.Kind))
		}

		if got := strings.Join(kinds, " "); got != c.want || b.First {
			t.Errorf("%s: after its cursor come %q, first %v; want %q", c.file, got, b.First, c.want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
