package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. It is written with KB, MB, GB or TB (KiB and so on are the same): powers of 1024.
type Size int64

var (
	errForm  = errors.New("not of this form")
	errRange = errors.New("out of range")
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// ParseDuration reads time.ParseDuration's form with d (24 hours) and w (7 days) before it: 2w, 1d12h, 90s.
func ParseDuration(s string) (time.Duration, error) {
	rest, negative := strings.CutPrefix(s, "-")
	var sum time.Duration
	for _, unit := range []struct {
		letter string
		d      time.Duration
	}{{"w", week}, {"d", day}} {
		number, after, ok := strings.Cut(rest, unit.letter)
		n, err := strconv.ParseUint(number, 10, 31)
		if !ok || err != nil {
			continue // no such part, or the letter stands elsewhere: time.ParseDuration says no to that
		}
		if n > uint64((math.MaxInt64-sum)/unit.d) {
			return 0, fmt.Errorf("duration %q: %w", s, errRange)
		}

		sum += time.Duration(n) * unit.d
		if rest = after; rest == "" {
			break
		}
	}

	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || strings.ContainsAny(rest[:1], "+-") {
			return 0, fmt.Errorf("duration %q: %w", s, errForm)
		}
		if d > math.MaxInt64-sum {
			return 0, fmt.Errorf("duration %q: %w", s, errRange)
		}

		sum += d
	} else if sum == 0 && !strings.ContainsAny(s, "wd") {
		return 0, fmt.Errorf("duration %q: %w", s, errForm)
	}

	if negative {
		sum = -sum
	}

	return sum, nil
}

// FormatDuration writes a duration in the shortest form that ParseDuration reads: 30d, 1h30m, 5s.
func FormatDuration(d time.Duration) string {
	switch {
	case d < 0:
		return d.String()
	case d >= day && d%day == 0:
		return strconv.FormatInt(int64(d/day), 10) + "d"
	case d >= day:
		return strconv.FormatInt(int64(d/day), 10) + "d" + FormatDuration(d%day)
	}

	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}

	return s
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TB", 1 << 40}, {"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}}

// ParseSize reads a size. A number without a unit is bytes.
func ParseSize(s string) (Size, error) {
	text, unit := strings.ToUpper(strings.TrimSpace(s)), int64(1)
	for _, u := range sizeUnits {
		letter := u.name[:1]
		for _, form := range []string{letter + "IB", u.name, letter} {
			if number, ok := strings.CutSuffix(text, form); ok && unit == 1 {
				text, unit = strings.TrimSpace(number), u.bytes
			}
		}
	}

	if unit == 1 {
		text = strings.TrimSpace(strings.TrimSuffix(text, "B"))
	}

	n, err := strconv.ParseUint(text, 10, 63)
	if errors.Is(err, strconv.ErrRange) || err == nil && n > math.MaxInt64/uint64(unit) {
		return 0, fmt.Errorf("size %q: %w", s, errRange)
	}
	if err != nil {
		return 0, fmt.Errorf("size %q: %w", s, errForm)
	}

	return Size(int64(n) * unit), nil
}

// String writes a size in the largest unit that leaves no rest.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if n := int64(s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// parse reads a value of the field's type from its text and checks it. The error says what is wrong, in words that go
// before the field's allowed.
func (f *field) parse(text string) (any, error) {
	var value any
	var err error
	switch f.zero.(type) {
	case time.Duration:
		value, err = ParseDuration(strings.TrimSpace(text))
	case Size:
		value, err = ParseSize(text)
	case int:
		value, err = strconv.Atoi(strings.TrimSpace(text))
	case bool:
		value, err = strconv.ParseBool(strings.TrimSpace(text))
	case []string:
		value = list(text)
	default:
		value = text
	}

	switch {
	case errors.Is(err, errRange), errors.Is(err, strconv.ErrRange):
		return nil, errors.New("is too big")
	case err != nil:
		return nil, fmt.Errorf("is not %s", f.kind)
	}

	return value, f.check(value)
}

// check holds a value against the field's tags.
func (f *field) check(value any) error {
	switch v := value.(type) {
	case []string:
		if len(v) == 0 {
			return errors.New("is empty")
		}
		for _, one := range v {
			if !slices.Contains(f.oneOf, one) {
				return fmt.Errorf("holds %q", one)
			}
		}

	case string:
		return f.checkText(v)
	case bool:
	default:
		n := number(v)
		if f.min != nil && n < number(f.min) {
			return errors.New("is too small")
		}
		if f.max != nil && n > number(f.max) {
			return errors.New("is too big")
		}
	}
	return nil
}

func (f *field) checkText(v string) error {
	switch {
	case strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }):
		return errors.New("holds a control character or broken UTF-8")
	case len(f.oneOf) > 0 && !slices.Contains(f.oneOf, v):
		return errors.New("is none of the choices")
	case f.form == "abs" && v != "" && !filepath.IsAbs(v):
		return errors.New("is not absolute")
	case f.form == "cron" && !looksLikeCron(v):
		return fmt.Errorf("is not %s", f.kind)
	}
	return nil
}

// looksLikeCron is a first check. The whole grammar belongs to the package that owns the cron library: Options.Check.
func looksLikeCron(s string) bool {
	if every, ok := strings.CutPrefix(s, "@every "); ok {
		d, err := time.ParseDuration(every)
		return err == nil && d >= time.Second
	}
	return strings.HasPrefix(s, "@") && !strings.Contains(s, " ") || len(strings.Fields(s)) >= 5
}

func number(v any) int64 {
	switch n := v.(type) {
	case time.Duration:
		return int64(n)
	case Size:
		return int64(n)
	case int:
		return int64(n)
	}
	return 0
}

// text is the canonical form of a value: what parse reads back.
func text(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return FormatDuration(v)
	case []string:
		return strings.Join(v, ",")
	}
	return fmt.Sprint(value)
}

// list splits at commas and leaves out what is empty or said twice.
func list(s string) []string {
	var all []string
	for _, one := range strings.Split(s, ",") {
		if one = strings.TrimSpace(one); one != "" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}
