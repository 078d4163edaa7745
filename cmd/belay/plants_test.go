package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"belay/internal/agent"
)

// plant is a secret as it stands in a text, and the part of it that may be nowhere afterwards.
type plant struct{ text, gone string }

// plants are the forms of X01 and X02 and one of each family of rules, every one with a value of its own.
func plants() []plant {
	n := 0
	key := func(length int) string { // looks random, is the same in every run, and no two share a piece
		n++
		b := []byte(strings.Repeat("aB3dE6gH9jK2mN5pQ8sT1vW4yZ7", 9)[n%20:][:length])
		copy(b[length/2:], fmt.Sprintf("Zq%02dxW7", n))
		return string(b)
	}

	hex := func(length int) string {
		n++
		return (strings.Repeat(fmt.Sprintf("c%02de4f8a1b7", n), 20))[:length]
	}

	var all []plant
	add := func(form, gone string) { all = append(all, plant{fmt.Sprintf(form, gone), gone}) }
	for _, form := range []string{
		"ghp_%s", "glpat-%s", "xoxb-123456789012-%s", "sk_live_%s", "sk-ant-api03-%s", "sk-proj-%s", "npm_%s",
		"hf_%s", "AIza%s", "sbp_%s",
		"sb_secret_%s", "SERVICE_TOKEN=%s", "Authorization: Bearer %s", "curl -H \"X-Api-Key: %s\" https://x.example",
		"dop_pat: {'Authorization': 'token %s'}",
		"https://hooks.example.invalid/services/T000/B000/%s", "Cookie: sid=%s; theme=dark",
		"https://x.example/c?sv=1&sig=%s", "CLIENT_SECRET: %s",
		"DB_PASSWORD=%s", "lin_api_%s", "pnu_%s", "https://user:%s@db.example/x", "my password is %s",
	} {
		add(form, key(36))
	}

	for _, form := range []string{"SK%s", "shpat_%s", "DISCORD_CLIENT_SECRET=%s", "PRIVATE-TOKEN: %s"} {
		add(form, hex(32))
	}

	add("123456789:AA%s", key(33))
	add("datadog_app: %s\n", key(40))
	add("-----BEGIN RSA PRIVATE KEY-----\n%s\n-----END RSA PRIVATE KEY-----", "MIIE"+key(60))
	add(`{"private_key":"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"}`, "MIIF"+key(60))
	add("eyJhbGciOiJIUzI1NiJ9.%s.abc-_1234567", "eyJzdWIi"+key(30))
	add("password = \"correct horse battery %s\"", "staple9"+key(8))
	add("mysql -u root -p%s db", "hunter2"+key(8))
	add("curl -u bob:%s https://x.example", "tr0ub"+key(9))
	add("db:\n  password: %s\n  host: x", "sunshineofmylifeq")
	add("proxy: Basic %s", base64.StdEncoding.EncodeToString([]byte("bob:"+key(20))))
	add(`{"auths":{"reg.example":{"auth":"%s"}}}`, base64.StdEncoding.EncodeToString([]byte("eve:"+key(20))))
	add("ghp%%5F%s", key(36))
	add("gh\\u0070_%s", key(36))
	last := key(36)
	all = append(all, plant{"next=" + url.QueryEscape("https://x.example/?access_token="+last), last})
	return all
}

// identity are fields that say whose a payload is and where its files lie. All others get a plant.
var identity = regexp.MustCompile(
	`^(session_?(id|key|file)|sessionId|sessionKey|_session(File|Id)|(agent_)?transcript_path|hook_event_name|type|event|cwd|_cwd|workspace(_?dir)?|directory|database|chat_file|root|source|timestamp|uuid|parent_?(uuid|id)|id|agent_?id|child_id|role|kind|version)$`,
)

// planter puts plants into every text of a document, one after the other.
type planter struct {
	plants []plant
	next   int
	set    map[string]string // what identity fields hold
}

func (p *planter) text(old string) string {
	one := p.plants[p.next%len(p.plants)]
	p.next++
	return old + " " + one.text + " "
}

func (p *planter) fill(name string, v any) any {
	switch v := v.(type) {
	case string:
		if to, ok := p.set[name]; ok {
			return to
		}
		if identity.MatchString(name) {
			return v
		}
		return p.text(v)

	case []any:
		for i := range v {
			v[i] = p.fill(name, v[i])
		}

	case map[string]any:
		names := make([]string, 0, len(v))
		for k := range v {
			names = append(names, k)
		}

		slices.Sort(names)
		for _, k := range names {
			v[k] = p.fill(k, v[k])
		}
	}
	return v
}

// leak looks for plants in bytes.
func (p *planter) leak(data []byte) []string {
	var found []string
	for _, one := range p.plants {
		if i := bytes.Index(data, []byte(one.gone)); i >= 0 {
			found = append(
				found,
				fmt.Sprintf(
					"%q of %q: ...%q", one.gone, one.text,
					data[max(0, i-120):min(len(data), i+len(one.gone)+20)],
				),
			)
		}
	}

	return found
}

// call is one hook call.
type call struct {
	agent, event string
	payload      []byte
}

// captured are the real payloads in the repository's test data, and beside the repository where they are there.
func (p *planter) captured(t *testing.T, name string) []call {
	var all []call
	paths, err := filepath.Glob(
		filepath.Join(
			"..", "..", "internal", "agent", strings.TrimSuffix(name, "-code"), "testdata", "hooks", "*.json",
		),
	)

	if err != nil {
		t.Fatal(err)
	}

	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		var list []struct{ Stdin map[string]any }
		if json.Unmarshal(data, &list) != nil {
			continue // another form
		}

		for _, one := range list[:min(len(list), 2)] {
			if one.Stdin != nil {
				all = append(all, p.call(t, name, strings.TrimSuffix(filepath.Base(path), ".json"), one.Stdin))
			}
		}
	}

	return all
}

func (p *planter) call(t *testing.T, name, event string, doc map[string]any) call {
	t.Helper()
	data, err := json.Marshal(p.fill("", doc))
	if err != nil {
		t.Fatal(err)
	}
	return call{name, event, data}
}

var fieldNames = regexp.MustCompile(
	"(?:string|json\\.RawMessage|any)\\s+`json:\"([A-Za-z_]+)|\\.(?:text|name|words|raw)\\(\"([A-Za-z_]+)\"",
)

// made are payloads of all text fields that the agent's own code knows, so that a new field is in the test by itself.
// One of them is long: around the cuts of texts and of tools' output stands a plant at every distance.
func (p *planter) made(t *testing.T, a agent.Agent) []call {
	t.Helper()
	folder := map[string]string{
		"claude-code": "claude", "agent-zero": "agentzero", "chat-session": "chatsession", "oh-my-pi": "pi",
	}[a.Name()]
	if folder == "" {
		folder = a.Name()
	}

	paths, err := filepath.Glob(filepath.Join("..", "..", "internal", "agent", folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source of %s: %v", a.Name(), err)
	}

	doc := map[string]any{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fieldNames.FindAllStringSubmatch(string(data), -1) {
			doc[m[1]+m[2]] = ""
		}
	}

	var calls []call
	for _, e := range a.Events() {
		for _, long := range []bool{false, true} {
			one := map[string]any{"hook_event_name": e.Name}
			for k := range doc {
				one[k] = "some words"
			}

			for k, v := range p.set {
				one[k] = v
			}

			filled := p.fill("", one).(map[string]any)
			for k, v := range filled {
				if _, fixed := p.set[k]; long && !fixed && !identity.MatchString(k) {
					filled[k] = p.long(v.(string))
				}
			}

			data, err := json.Marshal(filled)
			if err != nil {
				t.Fatal(err)
			}

			calls = append(calls, call{a.Name(), e.Name, data})
			if long {
				calls = append(calls, call{a.Name(), e.Name, data[:len(data)*3/4]}) // a client that was cut off
			}
		}
	}

	return calls
}

// long is a text over every bound with plants around where it may be cut.
func (p *planter) long(old string) string {
	p.next++
	var b strings.Builder
	for i := 0; b.Len() < 12<<10; i++ {
		b.WriteString(strings.Repeat("w ", (p.next*7+i)%29))
		b.WriteString(p.plants[(p.next+i)%len(p.plants)].text + " ")
	}
	return b.String() + strings.Repeat("some more words ", 2000) + b.String() + old
}
