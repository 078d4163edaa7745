package lines

import (
	"fmt"
	"strings"
	"testing"
)

// Backward gives the same lines as reading forward, for lines of every length around the piece borders.
func TestBackwardIsForwardTurnedRound(t *testing.T) {
	for _, size := range []int{1, 100, 7000, pieceMin - 12, pieceMin, 300_000} {
		var b strings.Builder
		for n := 0; b.Len() < 1_500_000 && n < 1000; n++ {
			fmt.Fprintf(&b, "{\"n\":%d,\"x\":\"%s\"}\n", n, strings.Repeat("x", size+n%3))
		}

		f, _ := in(t, b.String()+"{\"torn")
		type place struct {
			Data string
			Off  int64
			End  int64
		}

		var ahead, back []place
		if _, err := f.Read(Pos{}, Options{Max: 1 << 30}, func(l Line) bool {
			ahead = append(ahead, place{string(l.Data), l.Off, l.End})
			return true
		}); err != nil {
			t.Fatal(err)
		}

		end, _ := f.Size()
		if err := f.Backward(end, 1<<40, func(l Line) bool {
			back = append([]place{{string(l.Data), l.Off, l.End}}, back...)
			return true
		}); err != nil {
			t.Fatal(err)
		}

		if len(ahead) != len(back) {
			t.Fatalf("size %d: %d lines forward, %d backward", size, len(ahead), len(back))
		}

		for i := range ahead {
			if ahead[i] != back[i] {
				t.Fatalf("size %d, line %d: forward at %d, backward at %d", size, i, ahead[i].Off, back[i].Off)
			}
		}

		// From the place of any line, reading goes on with that line.
		mid := back[len(back)/2]
		pos, err := f.At(mid.Off)
		if err != nil {
			t.Fatal(err)
		}
		if got, span := read(t, f, pos, Options{Max: 1}); span.Changed || len(got) != 1 || got[0] != mid.Data {
			t.Errorf("size %d: reading on at %d gave %d lines", size, mid.Off, len(got))
		}
	}
}

func TestBackwardStops(t *testing.T) {
	f, _ := in(t, strings.Repeat("{\"a\":1}\n", 200_000))
	n := 0
	end, _ := f.Size()
	if err := f.Backward(end, 1<<40, func(Line) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("stop after 3: got %d, %v", n, err)
	}

	n = 0
	if err := f.Backward(end, 1, func(Line) bool { n++; return true }); err != nil || n >= 100_000 {
		t.Errorf("limit of one piece: got %d lines, %v", n, err)
	}
}
