// Package oracle holds package redact against the rule set that the field keeps, gitleaks.
package oracle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	gitleaks "github.com/zricethezav/gitleaks/v8/config"

	"belay/internal/redact"
)

// A rule of the kept rule set, as far as it says what a secret looks like.
type keptRule struct {
	ID          string
	Regex       string
	Path        string
	Entropy     float64
	SecretGroup int
	Keywords    []string
}

// notOurs are rules of the set that this package does not follow, each with its reason.
var notOurs = map[string]string{
	"asana-client-id":   "a public number",
	"discord-client-id": "a public number, of the form of every channel and message there",
}

// namedOnly are rules whose keys this package finds under a telling name, and not where only the vendor's name stands
// in the same text.
var namedOnly = map[string]string{
	"airtable-personnal-access-token": "begins with the letters of path and patch",
	"facebook-access-token":           "a number and a word with a bar between",
	"sourcegraph-access-token":        "the form of every commit",
	"vault-service-token":             "the form of a method's name; the form of today, hvs., is found anywhere",
	"generic-api-key":                 "any word; and of at least 20 characters, because shorter ones are names in code",
}

// words are the vendors' names where the rule's keyword is not one.
var words = map[string]string{
	"lob-api-key":                 "lob",
	"lob-pub-api-key":             "lob",
	"new-relic-browser-api-token": "newrelic",
	"new-relic-insert-key":        "newrelic",
	"new-relic-user-api-key":      "newrelic",
	"typeform-api-token":          "typeform",
	"sonar-api-token":             "sonar_token",
	"sourcegraph-access-token":    "sourcegraph",
	"vault-service-token":         "vault_token",
}

// samples stand where an expression's own texts are no keys.
var samples = map[string]string{
	"curl-auth-header":      `curl -H "Authorization: Bearer Xy7pQ2rT9vKz" https://x.example`,
	"curl-auth-user":        `curl -u bob:tr0ub4dor https://x.example`,
	"gitlab-session-cookie": "_gitlab_session=0f1e2d3c4b5a69788796a5b4c3d2e1f0",
	"sonar-api-token":       "squ_0f1e2d3c4b5a69788796a5b4c3d2e1f001234567",
	"private-key":           "-----BEGIN RSA PRIVATE KEY-----MIIEowIBAAKCAQEA7xyz0MIIEowIBAAKCAQEA7xyz0MIIEowIBAAKCAQEA7xyz0MIIEow-----END RSA PRIVATE KEY-----",
}

func keptRules(t *testing.T) []keptRule {
	t.Helper()
	var set struct{ Rules []keptRule }
	if _, err := toml.Decode(gitleaks.DefaultConfig, &set); err != nil {
		t.Fatalf("read the rule set: %v", err)
	}
	if len(set.Rules) < 200 {
		t.Fatalf("got %d rules, want the whole set", len(set.Rules))
	}

	return set.Rules
}

// find gives the secret that the rule finds in a text, by the set's own terms: keyword, expression, entropy.
func (r keptRule) find(re *regexp.Regexp, text string) string {
	known := len(r.Keywords) == 0
	for _, w := range r.Keywords {
		known = known || strings.Contains(strings.ToLower(text), w)
	}

	m := re.FindStringSubmatch(text)
	if !known || m == nil {
		return ""
	}

	secret := m[0]
	if r.SecretGroup > 0 {
		secret = m[r.SecretGroup]
	} else {
		for _, g := range m[1:] {
			if g != "" {
				secret = g
				break
			}
		}
	}

	if len(secret) < 8 {
		secret = m[0] // a group for its own sake
	}
	if r.Entropy > 0 && shannon(secret) <= r.Entropy {
		return ""
	}

	return secret
}

func shannon(s string) (bits float64) {
	seen := map[rune]float64{}
	for _, c := range s {
		seen[c]++
	}

	for _, n := range seen {
		bits -= n / float64(len(s)) * math.Log2(n/float64(len(s)))
	}

	return bits
}

// maker makes random texts that an expression matches.
type maker struct {
	source string
	rnd    *rand.Rand
}

// spelled gives a literal of any case as the expression writes it: the parser does not keep that.
func (g maker) spelled(literal string) string {
	if i := strings.Index(strings.ToLower(g.source), strings.ToLower(literal)); i >= 0 {
		return g.source[i : i+len(literal)]
	}
	return strings.ToLower(literal)
}

func (g maker) made(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return g.spelled(string(re.Rune))
		}
		return string(re.Rune)

	case syntax.OpCharClass:
		return string(oneOf(re.Rune, g.rnd))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "." // nearly always meant as one
	case syntax.OpCapture:
		return g.made(re.Sub[0])
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(g.made(sub))
		}
		return b.String()

	case syntax.OpAlternate:
		return g.made(re.Sub[g.rnd.IntN(len(re.Sub))])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		lo, hi := re.Min, re.Max
		switch re.Op {
		case syntax.OpStar:
			lo, hi = 0, 4
		case syntax.OpPlus:
			lo, hi = 1, 12
		case syntax.OpQuest:
			lo, hi = 0, 1
		}

		if hi < 0 || hi > lo+20 {
			hi = lo + 20
		}

		var b strings.Builder
		for range lo + g.rnd.IntN(hi-lo+1) {
			b.WriteString(g.made(re.Sub[0]))
		}

		return b.String()
	}
	return "" // a place, not a text
}

// oneOf picks a character of a class, of those that a key has where there are any.
func oneOf(ranges []rune, rnd *rand.Rand) rune {
	var all []rune
	for i := 0; i < len(ranges); i += 2 {
		for c := max(ranges[i], '!'); c <= min(ranges[i+1], '~'); c++ {
			if c != '\\' && c != '"' && c != '\'' && c != '`' {
				all = append(all, c)
			}
		}
	}

	if len(all) == 0 {
		return ' '
	}
	if lower := strings.ToLower(string(all)); len(all) <= 4 && strings.Contains(string(all), lower[:1]) {
		return rune(lower[rnd.IntN(len(lower))]) // part of a fixed beginning
	}

	return all[rnd.IntN(len(all))]
}

// secretPart is the first group of an expression, or all of it.
func secretPart(re *syntax.Regexp) *syntax.Regexp {
	if re.Op == syntax.OpCapture {
		return re
	}

	for _, sub := range re.Sub {
		if part := secretPart(sub); part != nil && part.Op == syntax.OpCapture {
			return part
		}
	}

	return re
}

const namedFrom = 2

// carriers are the ways in which a key stands in what agents write.
func carriers(word, secret string) []string {
	name := strings.Trim(word, "-_. ")
	upper := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	return []string{
		secret,
		"the " + name + " one is " + secret + " now",
		upper + "_KEY=" + secret, // namedFrom
		"export " + upper + "_TOKEN='" + secret + "'",
		fmt.Sprintf(`{"%s_secret": "%s"}`, name, secret),
		fmt.Sprintf("%s.api_key: %s\n", name, secret),
		fmt.Sprintf(`%s := "%s"`, name, secret),
	}
}

// keys makes keys of a rule's form; they begin and end like a key.
func (g maker) keys(tree *syntax.Regexp, n int) []string {
	isKey := func(c byte) bool {
		return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	var all []string
	for range 40 * n {
		s := g.made(tree)
		if len(s) > 4 && len(all) < n && isKey(s[0]) && isKey(s[len(s)-1]) &&
			!strings.ContainsAny(strings.TrimRight(s, "="), "\n\r=") {
			all = append(all, s)
		}
	}

	return all
}

// TestKeptRuleSet: whatever a well-kept public rule set finds in made-up keys of each of its families, this package
// takes out.
func TestKeptRuleSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	used, texts := 0, 0
	for _, r := range keptRules(t) {
		if r.Path != "" || notOurs[r.ID] != "" {
			continue // a rule for files of a certain name sees no hook
		}

		n := r.check(t, rnd)
		if n == 0 {
			t.Errorf("%s: no made-up text that the rule itself finds: this row holds nothing", r.ID)
		}

		used++
		texts += n
	}

	t.Logf("%d rules, %d texts", used, texts)
}

// check holds this package against one rule and says in how many texts.
func (r keptRule) check(t *testing.T, rnd *rand.Rand) (n int) {
	re := regexp.MustCompile(r.Regex)
	tree, err := syntax.Parse(r.Regex, syntax.Perl)
	if err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}

	g := maker{r.Regex, rnd}
	secrets := g.keys(secretPart(tree), 5)
	if own := samples[r.ID]; own != "" {
		secrets = []string{own}
	}

	n, missed := r.left(t, re, secrets)
	if n == 0 { // the group is not the key
		n, missed = r.left(t, re, g.keys(tree, 8))
	}
	if missed > 0 {
		t.Errorf("%s: %d of %d left", r.ID, missed, n)
	}

	return n
}

// left counts the texts in which the rule finds a key, and those of them in which this package leaves it.
func (r keptRule) left(t *testing.T, re *regexp.Regexp, secrets []string) (n, missed int) {
	names := r.Keywords
	if words[r.ID] != "" {
		names = []string{words[r.ID]}
	}

	for _, secret := range secrets {
		for _, word := range names {
			for i, text := range carriers(word, secret) {
				got := r.find(re, text)
				if got == "" || r.ID == "generic-api-key" && len(got) < 20 || i < namedFrom && namedOnly[r.ID] != "" {
					continue
				}

				n++
				if out := redact.Text(text); strings.Contains(out, got) {
					if missed++; missed <= 2 {
						t.Errorf("%s: %q is left in %q", r.ID, got, out)
					}
				}
			}
		}
	}

	return n, missed
}
