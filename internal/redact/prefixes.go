package redact

import (
	"encoding/base64"
	"strings"
)

// prefix is a kind of key that is known by how it begins.
type prefix struct {
	kind   string
	starts []string
	set    func(byte) bool // what may follow
	min    int             // at least so many of it
	check  func(rest string) bool
}

// maxRun is how much of a key is looked at before it counts as one: what fails costs no more.
const maxRun = 600

// prefixes are the beginnings that the field's services give to their keys. What a public rule set knows and this table
// does not would show in the test against that rule set.
var prefixes = []prefix{
	{"aws-key", []string{"AKIA", "ASIA", "ABIA", "ACCA"}, isUpperDigit, 16, isLen(16)},
	{"aws-key", []string{"A3T"}, isUpperDigit, 17, isLen(17)},
	{"aws-key", []string{"ABSK", "bedrock-api-key-"}, isToken, 20, isLong(20)},
	{"github-token", []string{"ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"}, isUnder, 20, nil},
	{"gitlab-token", []string{"glpat-", "glrt-"}, isDotted, 16, isRandom},
	{
		"gitlab-token",
		[]string{
			"gldt-",
			"glcbt-",
			"glptt-",
			"glsoat-",
			"glagent-",
			"glffct-",
			"glft-",
			"glimt-",
			"gloas-",
			"GR1348941",
		},
		isWord,
		16,
		isRandom,
	},
	{"gitlab-token", []string{"_gitlab_session="}, isAlnum, 32, nil},
	{
		"slack-token",
		[]string{"xoxb-", "xoxp-", "xoxa-", "xoxs-", "xoxr-", "xoxo-", "xoxe-", "xoxe.xoxp-", "xoxe.xoxb-", "xapp-"},
		isWord,
		8,
		hasDigits,
	},
	{"stripe-key", []string{"sk_live_", "rk_live_", "sk_test_", "rk_test_", "sk_prod_", "rk_prod_"}, isAlnum, 10, nil},
	{"stripe-key", []string{"whsec_"}, isAlnumSlash, 16, nil},
	{"anthropic-key", []string{"sk-ant-"}, isWord, 16, nil},
	{"openai-key", []string{"sk-proj-", "sk-svcacct-", "sk-admin-", "sk-or-v1-"}, isWord, 16, nil},
	{"openai-key", []string{"sk-"}, isWord, 20, looksKey},
	{"google-key", []string{"AIza"}, isWord, 30, nil},
	{"google-key", []string{"GOCSPX-", "ya29.", "1//0"}, isWord, 20, looksKey},
	{"npm-token", []string{"npm_"}, isAlnum, 30, nil},
	{"pypi-token", []string{"pypi-"}, isWord, 32, looksKey},
	{"hf-token", []string{"hf_", "api_org_"}, isAlnum, 30, nil},
	{"sendgrid-key", []string{"SG."}, isTokenDot, 38, isSendGrid},
	{"twilio-key", twilioStarts(), isHex, 31, isLen(31)},
	{"supabase-key", []string{"sb_secret_"}, isWord, 16, nil},
	{"supabase-key", []string{"sbp_"}, isAlnum, 32, nil},
	{"age-key", []string{"AGE-SECRET-KEY-1"}, isAlnum, 30, nil},
	{"age-key", []string{"AGE-SECRET-KEY-PQ-1"}, isAlnum, 30, nil},
	{"jwt", []string{"eyJ"}, isTokenDot, 24, isJWT},
	{"jwt", []string{"ZXlK"}, isToken, 40, looksKey}, // a JWT in base64
	{"private-key", []string{"LS0tLS1CRUdJTi"}, isBase64, 40, isEncodedPEM},
	{"digitalocean-token", []string{"dop_v1_", "doo_v1_", "dor_v1_"}, isHex, 40, nil},
	{"vault-token", []string{"hvs.", "hvb.", "hvr."}, isWord, 24, nil},
	{"docker-token", []string{"dckr_pat_", "dckr_oat_"}, isWord, 20, nil},
	{"groq-key", []string{"gsk_"}, isAlnum, 32, nil},
	{"xai-key", []string{"xai-"}, isAlnum, 40, nil},
	{"grafana-key", []string{"glc_", "glsa_", "eyJrIjoi"}, isToken, 32, isLong(32)},
	{"onepassword-key", []string{"A3-"}, isUpperDash, 36, hasDigits},
	{"onepassword-token", []string{"ops_eyJ"}, isToken, 100, nil},
	{"atlassian-token", []string{"ATATT3", "ATCTT3"}, isToken, 60, nil},
	{"artifactory-key", []string{"AKCp"}, isAlnum, 69, isLen(69)},
	{"artifactory-key", []string{"cmVmd"}, isAlnum, 59, isLen(59)},
	{"alibaba-key", []string{"LTAI"}, isAlnum, 20, isLen(20)},
	{"adobe-key", []string{"p8e-"}, isAlnum, 32, isLen(32)},
	{"clickhouse-key", []string{"4b1d"}, isAlnum, 38, isLen(38)},
	{"cloudflare-key", []string{"v1.0-"}, isWord, 171, nil},
	{"databricks-token", []string{"dapi"}, isHexDash, 32, hasDigits},
	{"service-key", []string{"live_", "test_", "live_pub_", "test_pub_"}, isToken, 31, isServiceKey},
	{"doppler-token", []string{"dp.pt.", "dp.st.", "dp.ct.", "dp.sa."}, isDotted, 40, nil},
	{"duffel-token", []string{"duffel_test_", "duffel_live_"}, isToken, 40, nil},
	{"dynatrace-token", []string{"dt0c01.", "dt0s01."}, isDotted, 80, nil},
	{"easypost-key", []string{"EZAK", "EZTK"}, isAlnum, 54, isLen(54)},
	{"facebook-token", []string{"EAAM", "EAAC"}, isToken, 100, isLong(100)},
	{"square-token", []string{"EAAA"}, isToken, 22, isSquare},
	{"square-token", []string{"sq0atp-", "sq0csp-"}, isWord, 22, nil},
	{"flutterwave-key", []string{"FLWSECK_TEST-", "FLWSECK-", "FLWPUBK_TEST-"}, isWord, 12, nil},
	{"flyio-token", []string{"fo1_", "fm1a_", "fm1r_", "fm2_"}, isToken, 43, nil},
	{"frameio-token", []string{"fio-u-"}, isToken, 64, nil},
	{"harness-key", []string{"pat.", "sat."}, isDotted, 68, looksKey},
	{"heroku-key", []string{"HRKU-AA"}, isWord, 58, nil},
	{"infracost-key", []string{"ico-"}, isAlnum, 32, isLen(32)},
	{"intra-key", []string{"s-s4t2ud-", "s-s4t2af-"}, isHex, 64, nil},
	{"linear-key", []string{"lin_api_", "lin_oauth_"}, isAlnum, 32, nil},
	{"mailgun-key", []string{"key-", "pubkey-"}, isHex, 32, isLen(32)},
	{"newrelic-key", []string{"NRAK-", "NRII-", "NRJS-", "NRRA-"}, isWord, 19, hasDigits},
	{"notion-token", []string{"ntn_"}, isAlnum, 40, nil},
	{"octopus-key", []string{"API-"}, isUpperDigit, 26, isLen(26)},
	{"openshift-token", []string{"sha256~"}, isWord, 43, isLen(43)},
	{"perplexity-key", []string{"pplx-"}, isAlnum, 40, nil},
	{"plaid-token", []string{"access-sandbox-", "access-development-", "access-production-"}, isHexDash, 36, isUUID},
	{"planetscale-token", []string{"pscale_tkn_", "pscale_oauth_", "pscale_pw_"}, isTokenDot, 32, nil},
	{"postman-key", []string{"PMAK-"}, isHexDash, 59, nil},
	{"prefect-key", []string{"pnu_", "pnb_"}, isAlnum, 36, nil},
	{"pulumi-token", []string{"pul-"}, isHex, 40, isLen(40)},
	{"readme-key", []string{"rdme_"}, isAlnum, 70, nil},
	{"rubygems-key", []string{"rubygems_"}, isHex, 48, nil},
	{"clojars-token", []string{"CLOJARS_", "clojars_"}, isAlnum, 60, nil},
	{"scalingo-token", []string{"tk-us-"}, isWord, 48, isLen(48)},
	{"sendinblue-key", []string{"xkeysib-", "xsmtpsib-"}, isWord, 64, nil},
	{"sentry-token", []string{"sntrys_", "sntryu_"}, isToken, 40, nil},
	{"settlemint-token", []string{"sm_aat_", "sm_pat_", "sm_sat_"}, isAlnum, 16, nil},
	{"shippo-token", []string{"shippo_live_", "shippo_test_"}, isHex, 40, nil},
	{"shopify-token", []string{"shpat_", "shpca_", "shppa_", "shpss_"}, isHex, 32, nil},
	{"sonar-token", []string{"squ_", "sqp_", "sqa_"}, isAlnum, 40, nil},
	{"sourcegraph-token", []string{"sgp_"}, isUnder, 40, nil},
	{"typeform-token", []string{"tfp_"}, isTokenDot, 59, nil},
	{"yandex-key", []string{"AQVN"}, isWord, 35, nil},
}

func prefixRules() []rule {
	out := make([]rule, 0, len(prefixes)+8)
	for _, p := range prefixes {
		out = append(out, rule{p.kind, false, p.starts, p.match})
	}

	return append(out,
		rule{"telegram-token", false, []string{":AA"}, matchTelegram},
		rule{"jwt", false, []string{".ey"}, matchJWT},
		rule{"azure-key", false, azureMarks(), matchAzure},
		rule{"maxmind-key", false, []string{"_mmk"}, matchMaxMind},
		rule{"terraform-token", false, []string{".atlasv1."}, matchTerraform},
		rule{"authress-key", false, []string{".acc_", ".acc-"}, matchAuthress},
	)
}

// match is the matcher of a prefix: the whole run of characters that may follow, and no word before it.
func (p prefix) match(t *text, at, after int) (span, bool) {
	if p.goesOn(t.s, at) || escaped(t.s, at) {
		return span{}, false
	}

	end := run(t.s[:min(len(t.s), after+maxRun)], after, p.set)
	for end > after && t.s[end-1] == '.' {
		end-- // the end of a sentence, not of the key
	}

	rest := t.s[after:end]
	if len(rest) < p.min || isPlaceholder(rest) || p.check != nil && !p.check(strings.TrimRight(rest, "=")) {
		return span{}, false
	}
	if end == after+maxRun {
		end = run(t.s, end, p.set)
	}
	if p.kind == "aws-key" {
		end = withAWSSecret(t.s, end)
	}

	return span{start: at, end: end}, true
}

// goesOn says whether the character before i belongs to the same run. One run is looked at once, whatever is in it.
func (p prefix) goesOn(s string, i int) bool {
	if i == 0 {
		return false
	}

	switch c := s[i-1]; {
	case c == '-' && p.set(c):
		return inWord(s, i)
	case isWord(c):
		return wordBefore(s, i) && (isAlnum(c) || p.set(c))
	case c == '.':
		return p.set(c)
	case c == '/', c == '+':
		return p.set(c) && insideBase64(s, i)
	}

	return false
}

// inWord says whether the dashes before i join it to a word: those of a flag, of a list and of a line taken out do not.
func inWord(s string, i int) bool {
	j := i
	for j > 0 && i-j < 8 && s[j-1] == '-' {
		j--
	}
	return wordBefore(s, j)
}

// insideBase64 says whether i lies in a long run of base64, as in an image: far more than any path has without a sign.
func insideBase64(s string, i int) bool {
	begin := i
	for begin > 0 && i-begin < 80 && isBase64(s[begin-1]) {
		begin--
	}
	return i-begin >= 80
}

// kindOf names a value by its beginning, so that a key has one mark wherever it stands.
func kindOf(value, otherwise string) string {
	t := text{s: value}
	for _, p := range prefixes {
		for _, start := range p.starts {
			if strings.HasPrefix(value, start) {
				if sp, ok := p.match(&t, 0, len(start)); ok && sp.end == len(value) {
					return p.kind
				}
			}
		}
	}

	return otherwise
}

// withAWSSecret extends the span of an access key id over the secret key that follows it, as in a CSV file.
func withAWSSecret(s string, end int) int {
	i := end
	for i < len(s) && i-end < 4 && strings.IndexByte(",:; |\t", s[i]) >= 0 {
		i++
	}

	stop := run(s[:min(len(s), i+41)], i, isBase64)
	if i > end && stop-i == 40 && looksKey(s[i:stop]) {
		return stop
	}

	return end
}

// around finds a key whose known part lies inside it: back and forward run over the characters of its two sides.
func (t *text) around(at, after int, back, forward func(byte) bool, most int) (span, string, string) {
	begin := at
	for begin > t.done && at-begin <= most && back(t.s[begin-1]) {
		begin--
	}
	end := run(t.s[:min(len(t.s), after+most+80)], after, forward)
	return span{start: begin, end: end}, t.s[begin:at], t.s[after:end]
}

func matchTelegram(t *text, at, after int) (span, bool) {
	sp, id, rest := t.around(at, after, isDigit, isWord, 12)
	ok := len(id) >= 8 && len(id) <= 10 && len(rest) >= 30
	return sp, ok && (!wordBefore(t.s, sp.start) || strings.HasSuffix(t.s[:sp.start], "bot"))
}

// matchJWT finds the joint of a JWT's first two parts: each is JSON in base64, but not all begin with the same three
// letters.
func matchJWT(t *text, at, after int) (span, bool) {
	sp, head, rest := t.around(at, after, isWord, isToken, maxRun)
	return sp, strings.HasPrefix(head, "ey") && len(head) >= 19 && len(rest) >= 17
}

func azureMarks() []string {
	var out []string
	for c := '0'; c <= '9'; c++ {
		out = append(out, string(c)+"Q~")
	}
	return out
}

// matchAzure finds a client secret of Azure AD: three characters, a digit, Q~ and 31 to 34 more.
func matchAzure(t *text, at, after int) (span, bool) {
	set := func(c byte) bool { return isDotted(c) || c == '~' }
	sp, before, rest := t.around(at, after, set, set, 12)
	return sp, len(before) == 3 && len(rest) >= 31 && len(rest) <= 35
}

func matchMaxMind(t *text, at, after int) (span, bool) {
	sp, before, rest := t.around(at, after, isUnder, isUnder, 40)
	return sp, len(before) == 36 && rest == ""
}

// matchTerraform finds 14 characters, .atlasv1. and 60 to 70 more.
func matchTerraform(t *text, at, after int) (span, bool) {
	sp, before, rest := t.around(at, after, isAlnum, isToken, 20)
	return sp, len(before) == 14 && len(rest) >= 60
}

// matchAuthress finds sc_, ext_, scauth_ or authress_ and four parts behind points.
func matchAuthress(t *text, at, after int) (span, bool) {
	sp, before, rest := t.around(at, after, isDotted, isToken, 60)
	head, _, ok := strings.Cut(before, "_")
	switch head {
	case "sc", "ext", "scauth", "authress":
		return sp, ok && len(rest) >= 40 && strings.IndexByte(rest, '.') > 0
	}
	return span{}, false
}

func isLen(n int) func(string) bool {
	return func(rest string) bool { return len(rest) == n }
}

// isLong wants digits and capitals in a run that may be part of any base64.
func isLong(n int) func(string) bool {
	return func(rest string) bool { return len(rest) >= n && hasDigits(rest) && count(rest).turns >= 2 }
}

// isServiceKey wants the two lengths in use behind live_ and test_: names of tests begin like that too.
func isServiceKey(rest string) bool {
	rest = strings.TrimPrefix(rest, "pub_")
	hex := run(rest, 0, isHex) == len(rest)
	return hex && (len(rest) == 35 || len(rest) == 31) || len(rest) == 40 && hasDigits(rest)
}

// isSquare tells a token from a base64 text that happens to begin with the same zeros.
func isSquare(rest string) bool {
	return len(rest) <= 60 && strings.IndexByte(rest, '/') < 0 && strings.IndexByte(rest, '+') < 0 && hasDigits(rest)
}

// isEncodedPEM says whether base64 of a PEM block, without its first 14 characters, is that of a private key.
func isEncodedPEM(rest string) bool {
	head := "LS0tLS1CRUdJTi" + rest[:min(len(rest), 66)]
	raw, err := base64.RawStdEncoding.DecodeString(head[:len(head)&^3])
	return err == nil && strings.Contains(string(raw), "PRIVATE KEY")
}

// hasDigits tells a key from a word such as glpat-something-else.
func hasDigits(s string) bool {
	return strings.ContainsAny(s, "0123456789")
}

// isRandom is hasDigits for short keys, which may have none by chance.
func isRandom(s string) bool { return hasDigits(s) || count(s).turns >= 3 }

// looksKey says whether a run looks made by a machine: digits and letters of both cases, or long with many digits.
func looksKey(s string) bool {
	n := count(s)
	return n.digit >= 1 && n.upper >= 2 && n.lower >= 2 || n.digit >= 6 && n.lower+n.upper >= 6 && len(s) >= 24
}

func isSendGrid(rest string) bool {
	a, b, ok := strings.Cut(rest, ".")
	return ok && len(a) >= 16 && len(b) >= 16 || len(rest) >= 60 && looksKey(rest)
}

// isJWT wants a second part; the third may be missing (unsigned, or cut).
func isJWT(rest string) bool {
	a, b, ok := strings.Cut(rest, ".")
	return ok && len(a) >= 8 && len(b) >= 8 && !strings.Contains(rest, "..")
}

func twilioStarts() []string {
	var out []string
	for _, c := range "0123456789abcdefABCDEF" {
		out = append(out, "SK"+string(c))
	}
	return out
}
