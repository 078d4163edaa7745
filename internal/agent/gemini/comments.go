package gemini

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// settings.json is JSON with comments. The editor of JSON texts knows none, so each comment goes through it as white space
// that says its number, and comes out as it was.

// hidden is a text whose comments are white space.
type hidden struct {
	text     []byte
	mark     string // begins and ends such white space; nowhere else in the text are as many carriage returns
	comments []string
}

const markBits = 16

// hide takes the comments out. What is no JSON besides is not looked at.
func hide(text []byte) hidden {
	run := 1
	for bytes.Contains(text, bytes.Repeat([]byte("\r"), run)) {
		run++
	}
	h := hidden{mark: strings.Repeat("\r", max(run, 2))}
	var out bytes.Buffer
	for i := 0; i < len(text); {
		end := i + 1
		switch rest := text[i:]; {
		case text[i] == '"':
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
		case bytes.HasPrefix(rest, []byte("//")):
			if n := bytes.IndexAny(rest, "\r\n"); n >= 0 {
				end = i + n
			} else {
				end = len(text)
			}
		case bytes.HasPrefix(rest, []byte("/*")):
			if n := bytes.Index(rest[2:], []byte("*/")); n >= 0 {
				end = i + n + 4
			} // without an end it is no comment, and the text no JSON
		}
		if text[i] == '/' && end > i+1 && len(h.comments) < 1<<markBits {
			out.WriteString(h.token(len(h.comments)))
			h.comments = append(h.comments, string(text[i:end]))
		} else {
			out.Write(text[i:end])
		}
		i = end
	}
	h.text = out.Bytes()
	return h
}

// token is the white space for a comment. The tabs around it keep its marks from growing by a carriage return of the text,
// and from looking like a line's end of another kind.
func (h hidden) token(n int) string {
	bits := strings.NewReplacer("0", " ", "1", "\t").Replace(fmt.Sprintf("%0*b", markBits, n))
	return "\t" + h.mark + bits + h.mark + "\t"
}

// show puts the comments back into an edited text. The editor copies the indent of what was there, and a comment in it: the
// first is the person's. A comment whose place is gone goes to the top of the object.
func (h hidden) show(text []byte) []byte {
	for n := range slices.Backward(h.comments) {
		if brace := bytes.IndexByte(text, '{'); brace >= 0 && !bytes.Contains(text, []byte(h.token(n))) {
			text = slices.Insert(bytes.Clone(text), brace+1, []byte("\n  "+h.token(n)+"\n")...)
		}
	}
	var out bytes.Buffer
	seen := map[int]bool{}
	size := 2*len(h.mark) + markBits + 1
	for len(h.comments) > 0 {
		i := bytes.Index(text, []byte(h.mark))
		if i < 1 || i+size > len(text) {
			break
		}
		out.Write(text[:i-1])
		bits := strings.NewReplacer(" ", "0", "\t", "1").Replace(string(text[i+len(h.mark) : i+len(h.mark)+markBits]))
		n, err := strconv.ParseUint(bits, 2, markBits)
		if err == nil && int(n) < len(h.comments) && !seen[int(n)] {
			out.WriteString(h.comments[n])
			seen[int(n)] = true
		}
		text = text[i+size:]
	}
	out.Write(text)
	return out.Bytes()
}

// edit changes the JSON of a text with comments.
func edit(text []byte, change func([]byte) ([]byte, error)) ([]byte, error) {
	h := hide(text)
	in := h.text
	if len(h.comments) > 0 && len(bytes.TrimSpace(in)) == 0 {
		in = append(bytes.Clone(in), "\n{}\n"...) // nothing but comments
	}
	out, err := change(in)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(out, in) {
		return text, nil
	}
	return h.show(out), nil
}
