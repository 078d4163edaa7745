package redact

import (
	"encoding/base64"
	"strings"
	"testing"
)

// spokenCases are what people say of passwords and PINs.
var spokenCases = []secretCase{
	{"my password is hunter2", "hunter2", "password"},
	{"The password was hunter22 until today.", "hunter22", "password"},
	{"change the password to hunter22, please", "hunter22", "password"},
	{"the passphrase is now hunter22", "hunter22", "password"},
	{"the password is: hunter22", "hunter22", "password"},
	{"the password is \"sunshine\"", "sunshine", "password"},
	{"das Passwort ist hunter22", "hunter22", "password"},
	{"Das Kennwort lautet: hunter22", "hunter22", "password"},
	{"le mot de passe est hunter22", "hunter22", "password"},
	{"Mot de passe : hunter22", "hunter22", "password"},
	{"mi contraseña es hunter22", "hunter22", "password"},
	{"Contrasena: hunter22", "hunter22", "password"},
	{"a senha é hunter22", "hunter22", "password"},
	{"mijn wachtwoord is hunter22", "hunter22", "password"},
	{"lösenordet är hunter22", "hunter22", "password"},
	{"пароль: hunter22", "hunter22", "password"},
	{"Пароль hunter22.", "hunter22", "password"},
	{"密码是 hunter22", "hunter22", "password"},
	{"密码：hunter22", "hunter22", "password"},
	{"パスワードはhunter22です", "hunter22", "password"},
	{"비밀번호는 hunter22", "hunter22", "password"},
	{"the PIN is 1234.", "1234", "pin"},
	{"my PIN code is 123456", "123456", "pin"},
	{"pin: 4711", "4711", "pin"},
	{"card_pin=4711", "4711", "pin"},
	{"cardPin = '4711'", "4711", "pin"},
	{"PIN-Code: 47110815", "47110815", "pin"},
	{"data:\n  password: aHVudGVy==\n", "aHVudGVy", "password"},
	{"Cookie: sid=" + alnum36 + "; theme=dark password = \"correct horse staple9\" and more", "staple9", "cookie"},
	{"Cookie: sid=" + alnum36 + "; theme=dark password: 'correct horse staple9", "staple9", "cookie"},
	{"open /p/Authorization: Basic dXNlcjpodW50ZXIy/sessions: no", "dXNlcjpodW50ZXIy", "credential"},
	{"unknown flag: --mysql -u root -phunter2 db", "hunter2", "password"},
	{"-sk-ant-" + alnum36, alnum36, "anthropic-key"},
	{"--glpat-" + alnum36[:20], alnum36[:20], "gitlab-token"},
}

// qpCases are mails: = is =3D, and a long line goes on behind a = at its end.
var qpCases = []secretCase{
	{
		"Content-Transfer-Encoding: quoted-printable\n\nthe key is ghp_" + alnum36[:8] + "=\n" + alnum36[8:] + " there",
		alnum36[8:],
		"github-token",
	},
	{"a=3Db and sk-ant-" + alnum36[:5] + "=\r\n" + alnum36[5:] + " there", alnum36[5:], "anthropic-key"},
	{"quoted-printable: ghp=5F" + alnum36, alnum36, "github-token"},
	{"DB_PASS=\nWORD=3Dletmein", "letmein", "password"},
}

func TestSpokenIsNotTaken(t *testing.T) {
	for _, in := range []string{
		"the password is wrong", "the password is required", "the password is base64 encoded",
		"the password is sha256-hashed", "hash the password to argon2id",
		"password to v2.0.1", "add the token to node_modules123", "spin: 1234", "the pin is 12", "pin 1234",
		"GPIO pin: 13", "pin: 1234.5", "pin: 2026-01-02", "pin: 12:30:00", "pinned = 1234", "shopping is 1234",
		"le mot de passe est incorrect", "elle passe : 1234567", "la contraseña es incorrecta", "пароль неверный",
		"密码是必填项", "密码: string", "case passed: 123456", "x =\ny", "token =\n  abc123def456",
		"password=\nhunter22", "a=\nb=3Dc",
	} {
		if got := Text(in); got != in {
			t.Errorf("Text(%q): got %q, want it unchanged", in, got)
		}
		line := embed(t, in, 1)
		if got := string(Bytes(nil, []byte(line))); got != line {
			t.Errorf("Bytes: got %s, want it unchanged: %s", got, line)
		}
	}
}

// A PIN's mark is the same for every PIN: its hash would tell it to whoever tries all of them.
func TestAPINsMarkTellsNothing(t *testing.T) {
	if a, b := Text("the PIN is 1234"), Text("the PIN is 9876"); a != b || !strings.Contains(a, "[secret:pin:0000]") {
		t.Errorf("got %q and %q, want the same mark", a, b)
	}
	if got, want := string(Bytes(nil, []byte(`{"pin":1234,"n":1}`))), `{"pin":"[secret:pin:0000]","n":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestKeysInBase64: a key of each kind with a beginning of four letters or more, wherever it begins in its group, in
// both alphabets, in one line and in several.
func TestKeysInBase64(t *testing.T) {
	keys := []string{
		"ghp_" + alnum36,
		"github_pat_" + alnum36,
		"glpat-" + alnum36[:20],
		"xoxb-123456789012-" + alnum36,
		"sk_live_" + alnum36[:24],
		"sk-ant-api03-" + strings.Repeat(alnum36, 3),
		"sk-proj-" + alnum36,
		"AKIAQZ3XQZ3XQZ3XQZ3X",
		"AIza" + alnum36[:35],
		"npm_" + alnum36,
		"dop_v1_" + hex32 + hex32,
		"shpat_" + hex32,
		"hvs." + alnum36,
	}
	for _, key := range keys {
		for _, before := range []string{"", "x=", "y =", "PASS_IS: ", "a longer text before it, some words: "} {
			for _, behind := range []string{"", "\n", " and some words behind it that are no secret at all"} {
				for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
					whole := enc.EncodeToString([]byte(before + key + behind))
					for _, in := range []string{whole, wrapped(whole, 76), "data: " + whole + "\n", `"` + whole + `"`} {
						for _, out := range []string{Text(in), string(Bytes(nil, []byte(embed(t, in, 1))))} {
							if left := readable(
								out,
							); strings.Contains(left, key[len(key)-12:]) || strings.Contains(left, key[8:16]) ||
								!strings.Contains(out, markOpen) {
								t.Errorf("%q before %q: %s is left of %s", before, key, out, in)
							}
						}
					}
				}
			}
		}
	}
}

// wrapped breaks a text into lines.
func wrapped(s string, n int) string {
	var b strings.Builder
	for len(s) > n {
		b.WriteString(s[:n] + "\n")
		s = s[n:]
	}
	return b.String() + s
}

// readable decodes each run of base64 of a text at each of the four places where a group can begin.
func readable(s string) string {
	s = strings.NewReplacer("-", "+", "_", "/", `\n`, "", "\n", "").Replace(s)
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return r > 0x7f || !isAlnumSlash(byte(r)) }) {
		for i := range min(4, len(word)) {
			part := word[i:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}

			raw, err := base64.RawStdEncoding.DecodeString(part)
			if err == nil {
				b.Write(raw)
				b.WriteByte('\n')
			}
		}
	}

	return b.String()
}

// What only looks like a key in base64 stays.
func TestBase64OfWordsStays(t *testing.T) {
	for _, in := range []string{
		"ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "glpat-something-else-than-a-key", "risk-assessment and sk-proj",
		"a text about npm_config and github_pat_",
	} {
		in = base64.StdEncoding.EncodeToString([]byte(in))
		if got := Text(in); got != in {
			t.Errorf("Text(%q): got %q, want it unchanged", in, got)
		}
	}
}
