package recovery

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lookalikes are letters of other scripts that are drawn as Latin ones, and what people and models read in them.
var lookalikes = func() map[rune]byte {
	letters := map[rune]byte{}
	for latin, others := range map[byte]string{
		'A': "АΑ", 'B': "ВΒ", 'C': "С", 'E': "ЕΕ", 'H': "НΗ", 'I': "ІΙ", 'J': "Ј",
		'K': "КΚ", 'M': "МΜ", 'N': "Ν", 'O': "ОΟ", 'P': "РΡ",
		'S': "Ѕ", 'T': "ТΤ", 'X': "ХΧ", 'Y': "УΥ", 'a': "аαɑᴀ", 'b': "вьʙ", 'c': "сᴄ",
		'd': "ԁᴅ", 'e': "еεᴇ", 'f': "ꜰ", 'g': "ɡɢ",
		'h': "һʜ", 'i': "іιıɪ", 'j': "јᴊ", 'k': "кκᴋ", 'l': "ӏʟ", 'm': "мᴍ", 'n': "нɴ", 'o': "оοᴏ", 'p': "рρᴘ",
		'r': "гʀ", 's': "ѕꜱ",
		't': "тτᴛ", 'u': "υᴜ", 'v': "νᴠ", 'w': "ᴡ", 'x': "хχ", 'y': "уʏ", 'z': "ᴢ",
	} {
		for _, r := range others {
			letters[r] = latin
		}
	}
	return letters
}()

// latin is a text with its look-alikes written as the letters that they are read as, accents and strokes left out, and
// where each byte of it, and its end, stands in the text. A text of ASCII is itself, and at is nil.
func latin(s string) (out string, at []int) {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s, nil
	}

	b := make([]byte, 0, len(s))
	at = make([]int, 0, len(s)+1)
	for i, r := range s {
		switch {
		case r < utf8.RuneSelf:
			b = append(b, byte(r))
		case lookalikes[r] != 0:
			b = append(b, lookalikes[r])
		case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		case r >= 0x1D400 && r <= 0x1D6A3: // mathematical letters: bold, script, double-struck, ...
			b = append(b, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[(r-0x1D400)%52])
		case r >= 0x24B6 && r <= 0x24CF: // in circles
			b = append(b, byte(r-0x24B6)+'A')
		case r >= 0x24D0 && r <= 0x24E9:
			b = append(b, byte(r-0x24D0)+'a')
		default:
			b = utf8.AppendRune(b, r)
		}
		for len(at) < len(b) {
			at = append(at, i)
		}
	}

	return string(b), append(at, len(s))
}
