package mirror

import (
	"bytes"

	"belay/internal/redact"
)

// kept appends to dst what a mirror keeps of whole lines: all of an exact one, else all but their secrets.
func (m *Mirror) kept(dst, lines []byte) ([]byte, int64) {
	if m.opt.Key != nil {
		return append(dst, lines...), int64(bytes.Count(lines, []byte("\n")))
	}
	return redactLines(dst, lines)
}

// pack appends lines to dst in the form of a batch: compressed, and encrypted when there is a key.
func (o Options) pack(dst, lines []byte) ([]byte, error) {
	if o.Key == nil {
		return o.Codec.frames(dst, lines), nil
	}
	return o.Key.seal(dst, o.Codec.frames(nil, lines))
}

// redactLines appends whole lines to dst without their secrets, and says how many they are then. Lines of JSON are
// looked at one by one; what is none may be a text of several lines with a key in it, which becomes one line.
func redactLines(dst, lines []byte) ([]byte, int64) {
	begin := len(dst)
	for len(lines) > 0 {
		i := bytes.IndexByte(lines, '\n')
		for !isJSON(lines[:i]) && i+1 < len(lines) {
			k := bytes.IndexByte(lines[i+1:], '\n')
			if isJSON(lines[i+1 : i+1+k]) {
				break
			}
			i += 1 + k
		}

		dst = append(redact.Bytes(dst, lines[:i]), '\n')
		lines = lines[i+1:]
	}

	return dst, int64(bytes.Count(dst[begin:], []byte("\n")))
}

func isJSON(line []byte) bool {
	line = bytes.TrimLeft(line, " \t")
	return len(line) > 0 && (line[0] == '{' || line[0] == '[')
}
