package config

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration
		out  string
	}{
		{"0", 0, "0s"}, {"5m", 5 * time.Minute, "5m"}, {"1h0m0s", time.Hour, "1h"}, {"90s", 90 * time.Second, "1m30s"},
		{"30d", 30 * day, "30d"}, {"2w", 2 * week, "14d"}, {"1w2d3h", week + 2*day + 3*time.Hour, "9d3h"},
		{"36h", 36 * time.Hour, "1d12h"}, {"250ms", 250 * time.Millisecond, "250ms"}, {"1.5h", 90 * time.Minute, "1h30m"},
		{"-1d", -day, "-24h0m0s"}, {"0w", 0, "0s"}, {"1d1ns", day + 1, "1d1ns"}, {"10h10m", 610 * time.Minute, "10h10m"},
	} {
		got, err := ParseDuration(c.in)
		if err != nil || got != c.want || FormatDuration(got) != c.out {
			t.Errorf("%q: %v, %v, prints as %q; want %v, %q", c.in, got, err, FormatDuration(got), c.want, c.out)
		}
	}
	for _, bad := range []string{
		"", "-", "1Y", "5", "d", "1d2", "1d1w", "5mw", "--5m", "1d-5m", "1 d", "999999999w", "106751d99h", "1.5d",
		"5M",
	} {
		if got, err := ParseDuration(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Size
		out  string
	}{
		{"0", 0, "0"}, {"17", 17, "17"}, {"17B", 17, "17"}, {"64MB", 64 << 20, "64MB"}, {"64 mb", 64 << 20, "64MB"},
		{"64M", 64 << 20, "64MB"}, {"64MiB", 64 << 20, "64MB"}, {"1024KB", 1 << 20, "1MB"}, {"2G", 2 << 30, "2GB"},
		{"1TB", 1 << 40, "1TB"}, {"1025", 1025, "1025"}, {" 3KiB ", 3 << 10, "3KB"},
	} {
		got, err := ParseSize(c.in)
		if err != nil || got != c.want || got.String() != c.out {
			t.Errorf("%q: %d, %v, prints as %q; want %d, %q", c.in, got, err, got, c.want, c.out)
		}
	}
	for _, bad := range []string{
		"", "MB", "-1", "+1", "1.5GB", "64ZB", "64MBs", "1 000", "9999999999GB", "99999999999999999999", "BB", "1KMB",
	} {
		if got, err := ParseSize(bad); err == nil {
			t.Errorf("%q: %d, want an error", bad, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"gates.sparse.time", "gates.full.time", "breaker.heal", "log.level"}
	for in, want := range map[string]string{
		"gates.spars.time": "gates.sparse.time", "GATES.FULL.TIME": "gates.full.time", "braker.heel": "breaker.heal",
		"sparse.time": "gates.sparse.time", "level": "log.level", "colour": "", "": "",
	} {
		if got := nearest(in, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", in, got, want)
		}
	}
}
