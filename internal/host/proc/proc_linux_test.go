package proc

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	const rest = " 9898 9898 3271 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 153740 3133440 413"
	for _, c := range []struct {
		line string
		want seen
	}{
		{"9901 (cat) R" + rest, seen{name: "cat", parent: 9898, start: 153740}},
		{"9901 (a) b) (c) S" + rest + "\n", seen{name: "a) b) (c", parent: 9898, start: 153740}},
		{"9901 (x\ny) Z" + rest, seen{name: "x\ny", parent: 9898, start: 153740, zombie: true}},
		{"9901 () X" + rest, seen{parent: 9898, start: 153740, zombie: true}},
		{"9901 (\xff) D" + rest, seen{name: "?", parent: 9898, start: 153740}},
	} {
		if got, err := parseStat([]byte(c.line)); err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.line, got, err, c.want)
		}
	}

	for _, bad := range []string{"", "1 cat R 1", "1 )(", "1 (cat) R 2 3", "1 (cat) R -5" + strings.Repeat(" 1", 30), "1 (cat) R 1" + strings.Repeat(" x", 30)} {
		if got, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: %+v, want an error", bad, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("9901 (cat) R 9898 9898 3271 0 -1 4194304 101 0 0 0 0 0 0 0 20 0 1 0 153740 3133440 413"))
	f.Add([]byte("1 (a) b) Z 1"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := parseStat(line)
		if err != nil {
			if s != (seen{}) {
				t.Errorf("%q: %+v beside error %v", line, s, err)
			}
			return
		}

		if s.parent < 0 {
			t.Errorf("%q: parent %d", line, s.parent)
		}
	})
}
