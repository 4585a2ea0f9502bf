package config

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Span is a time that a flag gives, in days such as 30d or as Go writes it, such as 36h.
type Span time.Duration

const (
	day      = 24 * time.Hour
	mostDays = 100 * 366
)

var inDays = regexp.MustCompile(`^[0-9]{1,6}d$`)

// UnmarshalText reads what a flag holds.
func (s *Span) UnmarshalText(text []byte) error {
	if inDays.Match(text) {
		n, err := strconv.Atoi(string(text[:len(text)-1]))
		if err == nil && n <= mostDays {
			*s = Span(time.Duration(n) * day)
			return nil
		}
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d > mostDays*day {
		return fmt.Errorf("%q came; days such as 30d are accepted, or hours such as 36h, at most %dd", text, mostDays)
	}
	*s = Span(d)
	return nil
}

// String writes whole days as such.
func (s Span) String() string {
	if d := time.Duration(s); d%day != 0 {
		return d.String()
	}
	return strconv.FormatInt(int64(time.Duration(s)/day), 10) + "d"
}
