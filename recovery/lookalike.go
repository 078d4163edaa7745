package recovery

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lookalikes are letters of other scripts that are drawn as Latin ones: left what stands in a text, right what people and
// models read.
var lookalikes = strings.NewReplacer(
	"а", "a", "в", "b", "ь", "b", "с", "c", "ԁ", "d", "е", "e", "һ", "h", "і", "i", "ј", "j", "к", "k", "ӏ", "l", "м", "m", "н", "n", "о", "o", "р", "p",
	"г", "r", "ѕ", "s", "т", "t", "у", "y", "х", "x", "А", "A", "В", "B", "С", "C", "Е", "E", "Н", "H", "І", "I", "Ј", "J", "К", "K", "М", "M", "О", "O",
	"Р", "P", "Ѕ", "S", "Т", "T", "У", "Y", "Х", "X", "α", "a", "ε", "e", "ι", "i", "κ", "k", "ν", "v", "ο", "o", "ρ", "p", "τ", "t", "υ", "u", "χ", "x",
	"Α", "A", "Β", "B", "Ε", "E", "Η", "H", "Ι", "I", "Κ", "K", "Μ", "M", "Ν", "N", "Ο", "O", "Ρ", "P", "Τ", "T", "Υ", "Y", "Χ", "X", "ı", "i", "ɑ", "a",
	"ɡ", "g", "ᴀ", "a", "ʙ", "b", "ᴄ", "c", "ᴅ", "d", "ᴇ", "e", "ꜰ", "f", "ɢ", "g", "ʜ", "h", "ɪ", "i", "ᴊ", "j", "ᴋ", "k", "ʟ", "l", "ᴍ", "m", "ɴ", "n",
	"ᴏ", "o", "ᴘ", "p", "ʀ", "r", "ꜱ", "s", "ᴛ", "t", "ᴜ", "u", "ᴠ", "v", "ᴡ", "w", "ʏ", "y", "ᴢ", "z")

// latin is a text with its look-alikes written as the letters that they are read as, accents and strokes left out, and where
// each byte of it, and its end, stands in the text. A text of ASCII is itself, and at is nil.
func latin(s string) (out string, at []int) {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s, nil
	}
	var b strings.Builder
	for i, r := range s {
		letter := string(r)
		switch {
		case r < utf8.RuneSelf:
		case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
			continue
		case r >= 0x1D400 && r <= 0x1D6A3: // mathematical letters: bold, script, double-struck, ...
			letter = string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[(r-0x1D400)%52])
		case r >= 0x24B6 && r <= 0x24CF: // in circles
			letter = string(r - 0x24B6 + 'A')
		case r >= 0x24D0 && r <= 0x24E9:
			letter = string(r - 0x24D0 + 'a')
		default:
			letter = lookalikes.Replace(letter)
		}
		b.WriteString(letter)
		for range len(letter) {
			at = append(at, i)
		}
	}
	return b.String(), append(at, len(s))
}
