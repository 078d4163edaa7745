package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"belay/internal/agent"
	"belay/internal/wire"
)

// TestLineFindsTheSocket: the line looks where the daemon listens, for every form of its folder.
func TestLineFindsTheSocket(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here: it runs the line")
	}

	text, err := Line(agent.Paths{Hook: "/x/belay-hook"})
	if err != nil {
		t.Fatal(err)
	}

	text += "for (const env of JSON.parse(process.argv[2])) console.log(JSON.stringify(places(env, Number(process.argv[3]))));"
	file := filepath.Join(t.TempDir(), "line.mjs")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	long := "/" + strings.Repeat("long", 30)
	type env map[string]string
	cases := []struct {
		env  env
		want []string
	}{
		{env{"HOME": "/home/me"}, wire.SocketPlaces("/home/me/.local/state/belay")},
		{env{"HOME": "/h", "XDG_STATE_HOME": "/x/./y//z/"}, wire.SocketPlaces("/x/y/z/belay")},
		{env{"HOME": "/h", "XDG_STATE_HOME": "relative"}, wire.SocketPlaces("/h/.local/state/belay")},
		{env{"HOME": "/h", "BELAY_STATE_DIR": "/a/../b/"}, wire.SocketPlaces("/b")},
		{env{"BELAY_STATE_DIR": "/"}, wire.SocketPlaces("/")},
		{env{"BELAY_STATE_DIR": long}, wire.SocketPlaces(long)},
		{env{"BELAY_STATE_DIR": "/" + strings.Repeat("é", 50)}, wire.SocketPlaces("/" + strings.Repeat("é", 50))},
		{env{}, []string{}},
	}

	var envs []env
	for _, c := range cases {
		envs = append(envs, c.env)
	}

	arg, err := json.Marshal(envs)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(node, file, string(arg), fmt.Sprint(os.Getuid()))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	for i, raw := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		var got []string
		if err := json.Unmarshal(raw, &got); err != nil || !slices.Equal(got, cases[i].want) {
			t.Errorf("%v: got %q, want %q", cases[i].env, got, cases[i].want)
		}
	}
}
