package redact

import "strings"

// vendor is a service whose keys show nothing by themselves, but have a known form under its name: ADAFRUIT_IO=..., or
// "sendbird-app": "...".
type vendor struct {
	words string          // names, each a trigger
	set   func(byte) bool // the value is a run of it
	min   int
	max   int
	check func(string) bool
}

var vendors = []vendor{
	{"adafruit nytimes newyorktimes fastly", isToken, 32, 32, nil},
	{"adobe facebook finicity", isHex, 32, 32, nil},
	{"facebook", func(c byte) bool { return isWord(c) || c == '|' || c == '%' }, 43, 57, nil},
	{"algolia bittrex codecov droneci flickr asana private_ai privateai private-ai", isAlnum, 32, 32, nil},
	{"linear", isHex, 32, 32, nil},
	{"discord", isToken, 32, 32, nil},
	{"discord sentry", isHex, 64, 64, nil},
	{"airtable", isAlnum, 17, 17, nil},
	{"alibaba plaid twitch", isAlnum, 30, 30, nil},
	{"atlassian confluence jira", isAlnum, 24, 24, nil},
	{"beamer", isToken, 46, 46, startsWith("b_")},
	{"bitbucket", isToken, 64, 64, nil},
	{"bitbucket", isAlnum, 32, 32, nil},
	{"meraki datadog zendesk sendbird sourcegraph cohere co_api_key", isAlnum, 40, 40, nil},
	{"cloudflare gitter launchdarkly sonar", isToken, 40, 40, nil},
	{"cloudflare", isHex, 37, 37, nil},
	{"coinbase", isToken, 64, 64, nil},
	{"confluent freshbooks jfrog artifactory bintray xray newrelic new_relic new-relic sumo", isAlnum, 64, 64, nil},
	{"jfrog artifactory bintray xray", isAlnum, 73, 73, nil},
	{"confluent linkedin linked_in linked-in", isAlnum, 16, 16, nil},
	{"linkedin linked_in linked-in sumo", isAlnum, 14, 14, nil},
	{"contentful", isToken, 43, 43, nil},
	{"dnkey", isToken, 85, 85, startsWith("dnkey-")},
	{"dropbox", isAlnum, 15, 15, nil},
	{"dropbox", isTokenDot, 60, 200, nil},
	{"etsy kucoin looker plaid", isAlnum, 24, 24, nil},
	{"finicity finnhub looker", isAlnum, 20, 20, nil},
	{"gocardless", isToken, 45, 45, startsWith("live_")},
	{"intercom", isToken, 60, 60, nil},
	{"kraken", isToken, 80, 90, nil},
	{
		"heroku hubspot kucoin messagebird message_bird message-bird sendbird snyk squarespace",
		isHexDash,
		36,
		36,
		isUUID,
	},
	{"mailchimp", isWord, 36, 37, nil},
	{"mailgun", isWord, 50, 50, nil},
	{"mapbox", isDotted, 86, 86, startsWith("pk.")},
	{"mattermost", isAlnum, 26, 26, nil},
	{"messagebird message_bird message-bird twitter", isAlnum, 25, 25, nil},
	{"netlify", isToken, 40, 46, nil},
	{"okta", isToken, 42, 42, startsWith("00")},
	{"rapidapi", isWord, 50, 50, nil},
	{"contribsys", isHexColon, 17, 17, nil},
	{"travis", isAlnum, 22, 22, nil},
	{"twitter", isAlnum, 45, 50, nil},
	{"twitter", func(c byte) bool { return isWord(c) || c == '%' }, 36, 130, nil},
	{"yandex", isToken, 40, 40, startsWith("YC")},
	{"yandex", isTokenDot, 88, 200, startsWith("t1.")},
	{"telegr", func(c byte) bool { return isWord(c) || c == ':' }, 41, 52, nil},
}

func vendorRules() []rule {
	var out []rule
	for _, v := range vendors {
		out = append(out, rule{"api-key", true, strings.Fields(v.words), v.match})
	}
	return out
}

// match finds the value under a name that holds the vendor's.
func (v vendor) match(t *text, at, after int) (span, bool) {
	begin, end := t.nameAround(at, after)
	name := strings.ToLower(t.s[begin:end])
	sep := sepAssign
	if begin >= 1 && t.s[begin] == '-' {
		sep = sepFlag
	}

	p, ok := t.separator(end, sep)
	if !ok || p.number || p.sep == ' ' && !p.flag || isAboutSum(name) {
		return span{}, false
	}

	stop := run(t.s[:min(p.hi, p.begin+v.max+1)], p.begin, v.set)
	value := t.s[p.begin:stop]
	letters := count(value).lower + count(value).upper
	if len(value) < v.min || len(value) > v.max || letters == 0 ||
		!isRandom(value) || isPlaceholder(value) || isNameLike(value) {
		return span{}, false
	}

	if v.check != nil && !v.check(value) || v.set('/') && isPath(value) || isCode(value, t.charAt(stop)) {
		return span{}, false
	}

	return span{start: p.begin, end: stop, kind: kindOf(value, "")}, true
}

// isAboutSum says whether a name is that of a sum or a version: those have the length of keys.
func isAboutSum(name string) bool {
	name = strings.NewReplacer("messagebird", "", "message_bird", "", "message-bird", "").Replace(name)
	for _, w := range []string{
		"sha", "hash", "digest", "checksum", "commit", "release", "revision", "etag", "session", "message", "channel",
		"guild",
	} {
		if strings.Contains(name, w) {
			return true
		}
	}

	return false
}

func startsWith(head string) func(string) bool {
	return func(v string) bool { return strings.HasPrefix(v, head) }
}

func isHexColon(c byte) bool { return isHex(c) || c == ':' }
