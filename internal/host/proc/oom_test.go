package proc

import "testing"

func TestOOMSince(t *testing.T) {
	for _, c := range []struct {
		before, now OOMCount
		want        OOM
	}{
		{OOMCount{0, 0}, OOMCount{0, 0}, OOMNone},
		{OOMCount{0, 0}, OOMCount{1, 1}, OOMOwn},
		{OOMCount{2, 5}, OOMCount{2, 6}, OOMElsewhere},
		{OOMCount{-1, 5}, OOMCount{-1, 6}, OOMElsewhere},
		{OOMCount{-1, -1}, OOMCount{3, 3}, OOMNone}, // the counts became readable: nobody knows since when
	} {
		if got := c.before.to(c.now); got != c.want {
			t.Errorf("%+v to %+v: got %v, want %v", c.before, c.now, got, c.want)
		}
	}
}
