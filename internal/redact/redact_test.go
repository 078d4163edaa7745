package redact

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

func readLines(t testing.TB, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// texts returns every string of a JSON line, keys aside.
func texts(t testing.TB, line string) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("line is no JSON: %v: %s", err, line)
	}

	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}

		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}

	walk(v)
	return out
}

var secretsX01 = []string{
	"sb_secret_probe_example_0000_abcd_efgh",
	"tok_live_EXAMPLE0EXAMPLE0EXAMPLE0",
	"eyJEXAMPLE0",
	"AKIAIOSFODNN7EXAMPLE",
	"xk-EXAMPLE0",
	"correct horse",
}

var secretsX02 = []string{"RVhBTVBMRQ", "EXAMPLE-pass", "EXAMPLE0EXAMPLE0", "EXAMPLEpass"}

func TestX01Secrets(t *testing.T)     { checkGone(t, "X01-secrets.jsonl", secretsX01) }
func TestX02SecretForms(t *testing.T) { checkGone(t, "X02-secret-forms.jsonl", secretsX02) }

func checkGone(t *testing.T, name string, secrets []string) {
	for i, line := range readLines(t, name) {
		out := string(Bytes(nil, []byte(line)))
		if !json.Valid([]byte(out)) {
			t.Errorf("line %d: Bytes gave no JSON: %s", i+1, out)
		}
		if !strings.Contains(out, markOpen) {
			t.Errorf("line %d: Bytes found nothing: %s", i+1, out)
		}

		for _, secret := range secrets {
			if strings.Contains(out, secret) {
				t.Errorf("line %d: Bytes left %q: %s", i+1, secret, out)
			}

			for _, s := range texts(t, line) {
				if s == secret {
					continue // its key told what it is, and the key is not part of it
				}
				if strings.Contains(Text(s), secret) {
					t.Errorf("line %d: Text left %q: %s", i+1, secret, Text(s))
				}
			}

			if got := Text(line); strings.Contains(got, secret) {
				t.Errorf("line %d: Text of the line left %q: %s", i+1, secret, got)
			}
		}
	}
}

func TestX03NotSecrets(t *testing.T) {
	for i, line := range readLines(t, "X03-not-secrets.jsonl") {
		if got := string(Bytes(nil, []byte(line))); got != line {
			t.Errorf("line %d: Bytes got %s, want it unchanged: %s", i+1, got, line)
		}
		if got := Text(line); got != line {
			t.Errorf("line %d: Text got %s, want it unchanged: %s", i+1, got, line)
		}

		for _, s := range texts(t, line) {
			if got := Text(s); got != s {
				t.Errorf("line %d: Text got %q, want %q", i+1, got, s)
			}
		}
	}
}

const (
	alnum36 = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF2hJ5"
	hex32   = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
)

// secretCases are texts with the part that must go and the kind that must stand there.
type secretCase struct{ text, gone, kind string }

var secretCases = []secretCase{
	{"ghp_" + alnum36, alnum36, "github-token"},
	{"a github_pat_11ABCDEFG0" + alnum36 + " b", alnum36, "github-token"},
	{"glpat-" + alnum36[:20], alnum36[:20], "gitlab-token"},
	{"xoxb-123456789012-" + alnum36, alnum36, "slack-token"},
	{"sk_live_" + alnum36, alnum36, "stripe-key"},
	{"sk-" + alnum36, alnum36, "openai-key"},
	{"sk-proj-" + alnum36, alnum36, "openai-key"},
	{"sk-ant-api03-" + alnum36, alnum36, "anthropic-key"},
	{"AIza" + alnum36[:35], alnum36[:35], "google-key"},
	{"npm_" + alnum36, alnum36, "npm-token"},
	{"pypi-AgEIcHlwaS5vcmc" + alnum36, alnum36, "pypi-token"},
	{"hf_" + alnum36[:34], alnum36[:34], "hf-token"},
	{"123456789:AA" + alnum36[:33], alnum36[:33], "telegram-token"},
	{"https://api.telegram.org/bot123456789:AA" + alnum36[:33] + "/getMe", alnum36[:33], "telegram-token"},
	{"SG." + alnum36[:22] + "." + alnum36, alnum36, "sendgrid-key"},
	{"SK" + hex32, hex32, "twilio-key"},
	{"sbp_" + hex32 + "00112233", hex32, "supabase-key"},
	{"AGE-SECRET-KEY-1" + strings.Repeat("QZ3X", 14) + "QQ", "QZ3XQZ3X", "age-key"},
	{"id,AKIAQZ3XQZ3XQZ3XQZ3X,wJalrXUtnFEMIzK7MDENGzbPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI", "aws-key"},
	{"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123", "eyJzdWIi", "jwt"},
	{"aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr", "secret"},
	{"DATABASE_URL=postgres://app:s3cr3t-pw@db:5432/x", "s3cr3t-pw", "password"},
	{"redis://:hunter2@cache:6379", "hunter2", "password"},
	{`https:\/\/bob:hunter2@host\/x`, "hunter2", "password"},
	{"https://oauth2:glpat-" + alnum36[:20] + "@gitlab.com/x.git", alnum36[:20], "gitlab-token"},
	{"Authorization: Bearer abcDEF123456", "abcDEF123456", "credential"},
	{"Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy", "credential"},
	{"curl -H 'Authorization: token 0123456789abcdefabcd'", "0123456789abcdefabcd", "credential"},
	{`headers.set("Authorization", "Bearer abcdef0123456789")`, "abcdef0123456789", "credential"},
	{"proxy said: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy", "credential"},
	{"sent bearer abcdef0123456789xyz to it", "abcdef0123456789xyz", "credential"},
	{"Cookie: sid=s%3Aabc123def456; theme=dark", "abc123def456", "cookie"},
	{`{"set-cookie": "session=abc123def456; Path=/"}`, "abc123def456", "cookie"},
	{"X-Api-Key: 9f8e7d6c5b4a", "9f8e7d6c5b4a", "api-key"},
	{"https://hooks.slack.com/services/T00000000/B00000000/" + alnum36[:24], alnum36[:24], "webhook"},
	{"https://discord.com/api/webhooks/123456789012345678/" + alnum36, alnum36, "webhook"},
	{"https://x.blob.core.windows.net/c?sv=2021&sig=" + alnum36 + "%3D", alnum36, "key"},
	{"GET /cb?access_token=a1b2c3d4e5&x=1", "a1b2c3d4e5", "token"},
	{"DB_PASSWORD=letmein", "letmein", "password"},
	{"export DB_PASS='let me in please1'", "let me in", "password"},
	{"PGPASSWORD=postgres psql", "postgres ", "password"},
	{"password: hunter2", "hunter2", "password"},
	{"-H \"PRIVATE-TOKEN: a1b2c3d4e5\"", "a1b2c3d4e5", "token"},
	{"passwd = \"hunter2\"", "hunter2", "password"},
	{"'password' => 'tr0ub4dor'", "tr0ub4dor", "password"},
	{"host=db user=app password=letmein dbname=x", "letmein", "password"},
	{"Server=db;User Id=sa;Password=letmein;", "letmein", "password"},
	{"AccountName=x;AccountKey=" + alnum36 + "==;End", alnum36, "api-key"},
	{"os.environ[\"API_TOKEN\"] = \"a1b2c3d4e5\"", "a1b2c3d4e5", "token"},
	{"const token: string = 'a1b2c3d4e5';", "a1b2c3d4e5", "token"},
	{"tool --token a1b2c3d4e5 run", "a1b2c3d4e5", "token"},
	{"tool --password=hunter22", "hunter22", "password"},
	{"tool --api-key \"a1b2c3d4e5\"", "a1b2c3d4e5", "api-key"},
	{"my password is hunter22, keep it", "hunter22", "password"},
	{"//registry.example.com/:_authToken=" + hex32, hex32, "token"},
	{"{'env': {'APP_SECRET': 'k3y-of-the-door'}}", "k3y-of-the-door", "secret"},
	{"- name: DB_PASSWORD\n  x: 1\n{\"name\": \"DB_PASSWORD\", \"value\": \"letmein1\"}", "letmein1", "password"},
	{"COOKIE_SIGNING_KEY=" + alnum36, alnum36, "api-key"},
	{"SENTRY_KEY=" + alnum36[:24], alnum36[:24], "key"},
	{"mysql -u root -phunter2 db", "hunter2", "password"},
	{"mysqldump -phunter2 db", "hunter2", "password"},
	{"sshpass -p 'hunter2' ssh host", "hunter2", "password"},
	{"docker login -u bob -p hunter2 reg", "hunter2", "password"},
	{"redis-cli -a hunter2 ping", "hunter2", "password"},
	{"curl -u bob:hunter2 https://x", "hunter2", "password"},
	{"db:\n  user: app\n  password: sunshine\n  host: x", "sunshine", "password"},
	{"[mail]\npassword = sunshine\n", "sunshine", "password"},
	{"user=bob&password=sunshine&x=1", "sunshine", "password"},
	{"{\"auths\":{\"reg.example\":{\"auth\":\"dXNlcjpodW50ZXIy\"}}}", "dXNlcjpodW50ZXIy", "credential"},
	{"ghp%5F" + alnum36, alnum36, "github-token"},
	{"password%3Dhunter2", "hunter2", "password"},
	{"next=%2Fcb%3Faccess_token%3Da1b2c3d4e5%26x", "a1b2c3d4e5", "token"},
	{"Authorization%3A%20Bearer%20abcDEF123456", "abcDEF123456", "credential"},
	{"postgres%3A%2F%2Fapp%3As3cr3t-pw%40db%2Fx", "s3cr3t-pw", "password"},
	{"ghp%255F" + alnum36, alnum36, "github-token"},
	{"gh\\u0070_" + alnum36, alnum36, "github-token"},
	{"\\u0070assword=hunter2x", "hunter2x", "password"},
	{"passw\\u006frd: \"hunt\\u0065r2\"", "r2\"", "password"},
	{
		"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nxyz0\n-----END RSA PRIVATE KEY-----",
		"MIIEow",
		"private-key",
	},
	{
		"     1→-----BEGIN OPENSSH PRIVATE KEY-----\n     2→b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n     3→-----END OPENSSH PRIVATE KEY-----",
		"b3Blbn",
		"private-key",
	},
	{
		`key = "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\\n-----END PRIVATE KEY-----\\n"`,
		"MIIEvQ",
		"private-key",
	},
	{"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nABCD", "ABCD", "private-key"},
	{"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nABCDEFGH\n-----END PRIVATE KEY-----", "ABCDEFGH", "private-key"},
}

// embed puts a text into a JSON line, depth times.
func embed(t testing.TB, s string, depth int) string {
	t.Helper()
	for range depth {
		b, err := json.Marshal(map[string]string{"text": s})
		if err != nil {
			t.Fatal(err)
		}
		s = string(b)
	}

	return s
}

func TestSecretsGo(t *testing.T) {
	for _, c := range slices.Concat(secretCases, spokenCases, qpCases) {
		for depth := range 4 {
			in := embed(t, c.text, depth)
			out := Text(in)
			if depth > 0 {
				out = string(Bytes(nil, []byte(in)))
				if !json.Valid([]byte(out)) {
					t.Errorf("depth %d: no JSON any more: %s", depth, out)
				}
			}

			if strings.Contains(out, c.gone) {
				t.Errorf("depth %d: %q is left in %s", depth, c.gone, out)
			}
			if want := markOpen + c.kind + ":"; !strings.Contains(out, want) {
				t.Errorf("depth %d: got %s, want a mark %q", depth, out, want)
			}
		}
	}
}

var notSecrets = []string{
	"password == other",
	"if token != \"\" {",
	"password = getPassword()",
	"token.length",
	"const token = req.headers.token",
	"password: string",
	"token: Uint8Array",
	"password?: string;",
	"api_key=<your key>",
	"API_KEY=${API_KEY}",
	"TOKEN=$(cat token)",
	"TOKEN=$TOKEN",
	"password=********",
	"password: xxxxxxxx",
	"ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
	"sk-ant-your-key-here-please",
	"postgres://user:password@localhost/db",
	"postgres://$USER:$PASS@host/db",
	"http://localhost:3000/a@b",
	"git@github.com:a/b.git",
	"\"input_tokens\":12345,\"max_tokens\":4096",
	"token_type: \"bearer12\"",
	"tokenizer = load(\"cl100k_base\")",
	"nextPageToken",
	"sha512-9f8c3a39e61ba7fca8ca62b94af150718336ba4c9f8c3a39e61ba7fca8ca62b94af1507183==",
	"sha256:" + hex32 + hex32,
	"cache_key = " + hex32,
	"type=\"password\" name=\"password\"",
	"autocomplete=\"new-password\"",
	"foo(password=password, token=self.token)",
	"password := os.Getenv(\"PASSWORD\")",
	"\"password\": \"Password is required\"",
	"the bearer of good news",
	"basic understanding of it",
	"Authorization: Bearer ${token}",
	"\"Authorization\": \"Bearer \" + token",
	"SecretKeyRef:\n  name: db-secret1",
	"secretName: my-secret-2",
	"task-1234567890-abcdefghijkl-mnop",
	"msg.content.text",
	"risk-assessment-for-the-next-quarter-2025",
	"PWD=/home/user/proj1",
	"private key of the server",
	"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
	"-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----",
	"a = \"-----BEGIN PRIVATE KEY-----\"\nb = \"-----END PRIVATE KEY-----\"",
	"mysql -u root -p",
	"mysql -P 3306 db",
	"https://docs.github.com/en/webhooks/about",
	"password\nhunter22",
	"token =\nabc123def456",
	"secret: the value of the thing",
	"env = append(env, \"PWD=\"+dir, \"x\")",
	"PrivateKey: testRSA2048PrivateKey",
	"SIOCTOKEN = 0x3f879678",
	"passwd:         compat\n",
	"BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB        = C.BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB",
	"password: required\n",
	"  password: hashed,",
	"password: z.string()",
	"{ password: body.password }",
	"the key is: someCamelCase12",
	"\\u0041 is A, %41 too",
	"Set-Cookie: name",
	"cookie: a small cake",
}

func TestNotSecretsStay(t *testing.T) {
	for _, in := range notSecrets {
		if got := Text(in); got != in {
			t.Errorf("Text(%q): got %q, want it unchanged", in, got)
		}
		line := embed(t, in, 1)
		if got := string(Bytes(nil, []byte(line))); got != line {
			t.Errorf("Bytes: got %s, want it unchanged: %s", got, line)
		}
	}
}

func TestEqualSecretsLookEqual(t *testing.T) {
	secret := "ghp_" + alnum36
	want := Text(secret)
	for _, s := range []string{"TOKEN=" + secret, "Authorization: Bearer " + secret, "https://x:" + secret + "@h/"} {
		if got := Text(s); !strings.Contains(got, want) {
			t.Errorf("Text(%q): got %q, want the mark %q", s, got, want)
		}
	}

	pem := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
	if got, want := string(Bytes(nil, []byte(embed(t, pem, 2)))), Text(pem); !strings.Contains(got, want) {
		t.Errorf("PEM in JSON: got %s, want the mark %s", got, want)
	}
	if a, b := Text("ghp_"+alnum36), Text("ghp_X"+alnum36[1:]); a == b {
		t.Errorf("two secrets, one mark: %s", a)
	}
}

func TestBytesJSON(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"number", `{"password":12345678,"n":1}`, `{"password":"[secret:password:ef79]","n":1}`},
		{
			"escaped quotes",
			`{"t":"say password=\u0022hunter2\u0022 now"}`,
			`{"t":"say password=\u0022[secret:password:f52f]\u0022 now"}`,
		},
		{
			"end of the string",
			`{"t":"password: \"hunter2","u":"it's"}`,
			`{"t":"password: \"[secret:password:f52f]","u":"it's"}`,
		},
		{"next key untouched", `{"t":"API_TOKEN=","u":"a1b2c3d4e5f6"}`, `{"t":"API_TOKEN=","u":"a1b2c3d4e5f6"}`},
		{
			"backslash at the end",
			`{"t":"password=hunter2\\","u":"x"}`,
			`{"t":"password=[secret:password:f52f]\\","u":"x"}`,
		},
		{"object", `{"password":{"type":"string"}}`, `{"password":{"type":"string"}}`},
		{"pretty", "  \"password\" : \"hunter2\",", "  \"password\" : \"[secret:password:f52f]\","},
	}
	for _, c := range cases {
		if got := string(Bytes([]byte("x"), []byte(c.in))); got != "x"+c.want {
			t.Errorf("%s: got %s, want x%s", c.name, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	secret := "ghp_" + alnum36
	word := strings.Repeat("lorem ipsum ", 2000)
	for _, limit := range []int{0, 1, 10, 50, 200, 4096, 20000} {
		for _, s := range []string{word, strings.Repeat("日本語", 9000), word + secret + word, "short " + secret, strings.Repeat(secret+" ", 700)} {
			got := Cut(s, limit)
			if len(got) > limit {
				t.Errorf("limit %d: got %d bytes", limit, len(got))
			}
			if !utf8.ValidString(got) {
				t.Errorf("limit %d: broken UTF-8: %q", limit, got)
			}
			if strings.Contains(got, "aB3d") || strings.Contains(got, "F2hJ5") {
				t.Errorf("limit %d: a piece of the secret is left: %q", limit, got)
			}
		}
	}

	got := Cut("head "+word+" tail", 200)
	if !strings.HasPrefix(got, "head lorem") || !strings.HasSuffix(got, " tail") ||
		!strings.Contains(got, "bytes left out …") {
		t.Errorf("got %q, want head, mark and tail", got)
	}
}

// A secret at every place around both cuts never leaves a piece.
func TestCutTouchingSecret(t *testing.T) {
	secret := "sk-ant-" + strings.Repeat("Q9zK", 30)
	for _, size := range []int{9000, 200000} {
		for shift := range 300 {
			pad := strings.Repeat("a b ", size/4)
			s := pad[:850+shift] + " " + secret + pad + " " + secret + " " + pad[:850+shift]
			if got := Cut(
				s, 2048,
			); strings.Contains(got, "Q9zK") || strings.Contains(got, "9zKQ") ||
				strings.Contains(got, "sk-") {
				t.Fatalf("size %d shift %d: a piece is left: %q", size, shift, got)
			}
		}
	}

	token := strings.Repeat("A9zK", 2000) + "." + strings.Repeat("b7Q_", 1000)
	got := Cut(strings.Repeat("word ", 5000)+"eyJ"+token+" end", 2048)
	if strings.Contains(got, "b7Q_") || !strings.HasSuffix(got, " end") {
		t.Errorf("the end of a long token is left: %q", got)
	}
}

func TestCutHugeIsQuick(t *testing.T) {
	s := strings.Repeat("x y z ", 3<<20) // 18 MB
	start := time.Now()
	for range 100 {
		if got := Cut(s, 4096); len(got) < 4000 || len(got) > 4096 {
			t.Fatalf("got %d bytes, want close to 4096", len(got))
		}
	}

	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("100 cuts of 18 MB took %v: it reads more than the kept parts", took)
	}
}

// used is the processor time of this process: other work on the machine is none of a text's cost.
func used(t testing.TB) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano())
}

// Time grows with the length only, whatever a text is made of.
func TestHostileInputIsLinear(t *testing.T) {
	for _, unit := range []string{
		"sk-", "sk-ant-", "eyJa.", "password=", "password='", "token:", "\"token\":\"", "Authorization:",
		"cookie: a=", "cookie:x", "://", "://hooks.x/",
		"-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "PRIVATE KEY", "mysql -p ", "basic ", "bearer ",
		"\\", "\\\"", "\\u0022", "secret", "_key=xxxx", ":AA1",
		"key=", "auth:", "%41", "\\u0041a", "hooks.", "live_", "a.ey", "datadog_x=", "alibaba:", "pat.", "1Q~a",
		"_mmk", ".acc_", ".atlasv1.", "\n-\tpassword: a",
		"password: string = ", "{\"password\":", "\"name\",", "SG.", "npm_", "AKIA", "password is ", "--token ",
		"Z2hwX", "hwXz", "naHBf", "pin: ", "PIN is 1", "пароль: ", "=3D", "=\n=3D", "quoted-printable=\n",
	} {
		for _, head := range []string{"", `{"a":"`} {
			once := func(size int) time.Duration {
				in := []byte(head + strings.Repeat(unit, size/len(unit)) + "xxxx")
				start := used(t)
				Bytes(nil, in)
				return used(t) - start
			}

			small, large := once(16<<10), once(128<<10)
			if large > 25*small+500*time.Millisecond { // 8 times as much; a square would be 64 times
				t.Errorf("%q over and over: 16 KB took %v, 128 KB %v", head+unit, small, large)
			}
		}
	}
}

func FuzzRedact(f *testing.F) {
	for _, c := range slices.Concat(secretCases, spokenCases, qpCases) {
		f.Add(c.text)
		f.Add(embed(f, c.text, 2))
	}

	for _, s := range notSecrets {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		out := Text(s)
		if utf8.ValidString(s) && !utf8.ValidString(out) {
			t.Errorf("Text broke UTF-8: %q -> %q", s, out)
		}
		if again := Text(out); again != out {
			t.Errorf("not idempotent: %q -> %q -> %q", s, out, again)
		}

		line := Bytes(nil, []byte(s))
		if json.Valid([]byte(s)) && !json.Valid(line) {
			t.Errorf("Bytes broke JSON: %q -> %q", s, line)
		}
		if again := Bytes(nil, line); string(again) != string(line) {
			t.Errorf("Bytes is not idempotent: %q -> %q -> %q", s, line, again)
		}

		if utf8.ValidString(s) {
			b, _ := json.Marshal([]string{s, "x"})
			if got := Bytes(nil, b); !json.Valid(got) {
				t.Errorf("Bytes broke JSON: %q -> %q", b, got)
			}

			for _, limit := range []int{7, 60, 300} {
				if got := Cut(s, limit); len(got) > limit || !utf8.ValidString(got) {
					t.Errorf("Cut(%q, %d): got %q", s, limit, got)
				}
			}
		}
	})
}
