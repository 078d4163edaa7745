package payload

import "strings"

// ShellWord quotes a word for a POSIX shell, where it needs quoting.
func ShellWord(s string) string {
	plain := s != ""
	for i := 0; i < len(s) && plain; i++ {
		c := s[i]
		plain = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_./:@+", c) >= 0
	}

	if plain {
		return s
	}

	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ShellWords splits a command line as far as ShellWord writes it.
func ShellWords(line string) []string {
	var words []string
	var word strings.Builder
	open, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted:
			if quoted = c != '\''; quoted {
				word.WriteByte(c)
			}

		case c == '\'':
			open, quoted = true, true
		case c == '\\' && i+1 < len(line):
			i++
			open = true
			word.WriteByte(line[i])

		case c == ' ':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false

		default:
			open = true
			word.WriteByte(c)
		}
	}

	if open {
		words = append(words, word.String())
	}

	return words
}
