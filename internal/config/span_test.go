package config_test

import (
	"strings"
	"testing"
	"time"

	"handclasp/internal/config"
)

func TestASpanIsGivenInDaysOrAsGoWritesIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "0d": 0, "1d": 24 * time.Hour, "030d": 720 * time.Hour, "36h": 36 * time.Hour, "1h30m": 90 * time.Minute, "36600d": 36600 * 24 * time.Hour, "-1h": -time.Hour,
	} {
		var s config.Span
		if err := s.UnmarshalText([]byte(text)); err != nil || time.Duration(s) != want {
			t.Errorf("%s: %v %v", text, time.Duration(s), err)
		}
		var again config.Span
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%s is written %s", text, s)
		}
	}
	for _, text := range []string{"", "x", "d", "1", "30 d", "-1d", "1.5d", "1d12h", "36601d", "999999d", "9999999d", "99999999999999999999h", "2000000h"} {
		var s config.Span
		if err := s.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "30d") {
			t.Errorf("%q: %v %v", text, time.Duration(s), err)
		}
	}
}

func TestWhatIsKeptTooBrieflyIsRefused(t *testing.T) {
	t.Parallel()
	const day = config.Span(24 * time.Hour)
	for flag, c := range map[string]struct {
		set   func(*config.Serve, config.Span)
		least config.Span
	}{
		"--retain-handoffs":   {func(s *config.Serve, v config.Span) { s.RetainHandoffs = v }, day},
		"--retain-deliveries": {func(s *config.Serve, v config.Span) { s.RetainDeliveries = v }, 7 * day},
		"--retain-events":     {func(s *config.Serve, v config.Span) { s.RetainEvents = v }, 7 * day},
	} {
		check := func(v config.Span) error {
			s := config.Embedded(config.Where{Data: "x"})
			s.Listen = "127.0.0.1:7433"
			c.set(s, v)
			return s.Validate()
		}
		for _, v := range []config.Span{0, c.least, 3650 * day} {
			if err := check(v); err != nil {
				t.Errorf("%s %s: %v", flag, v, err)
			}
		}
		for _, v := range []config.Span{c.least - 1, 1, -day} {
			err := check(v)
			if err == nil || !strings.HasPrefix(err.Error(), flag+": "+v.String()+" came; ") || !strings.Contains(err.Error(), "at least "+c.least.String()) {
				t.Errorf("%s %s: %v", flag, v, err)
			}
		}
	}
}
