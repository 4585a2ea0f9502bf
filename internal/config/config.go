// Package config turns flags and environment into one validated struct. Nothing else reads
// the environment.
package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Where says which database a command works on. Every command takes it.
type Where struct {
	Data        string `help:"Folder for the embedded SQLite database. Default: ${data_default}." placeholder:"DIR" type:"path"`
	DatabaseURL string `name:"database-url" help:"PostgreSQL instead of SQLite: postgres://user:password@host:5432/name." placeholder:"URL"`
}

// Serve is the configuration of a hub.
type Serve struct {
	Where `embed:""`

	Listen       string   `help:"Address to listen on (default ${default})." default:"127.0.0.1:7433" placeholder:"HOST:PORT"`
	PublicURL    string   `name:"public-url" help:"Address the hub is reached by. Default: http://<listen>." placeholder:"URL"`
	AllowedHosts []string `name:"allowed-host" help:"A further Host header to answer; may be repeated." placeholder:"HOST"`

	Mail `embed:""`

	Outside `embed:""`

	TrustMode string `name:"trust-mode" help:"open, or strict: agents need a session and its secret to claim, keep, deliver or judge open handoffs (default ${default})." enum:"open,strict" default:"open"`

	FeatureProposedActions bool `name:"feature-proposed-actions" help:"Accept propose_action (default on)." default:"true" negatable:""`
	FeatureTrace           bool `name:"feature-trace" help:"Keep trace_id of open handoffs (default on)." default:"true" negatable:""`
	FeatureVerification    bool `name:"feature-verification" help:"Accept acceptance_criteria and verify_by (default on)." default:"true" negatable:""`
	FeatureDAG             bool `name:"feature-dag" help:"Accept depends_on (default on)." default:"true" negatable:""`

	LimitCallsPerMinute int `name:"limit-calls-per-minute" help:"Calls per agent and minute; 0 for no limit (default ${default})." default:"600"`
	LimitParkedCalls    int `name:"limit-parked-calls" help:"Waiting calls per agent (default ${default})." default:"64"`
	LimitBodyBytes      int `name:"limit-body-bytes" help:"Size of a request body (default ${default})." default:"4194304"`
	LimitPayloadBytes   int `name:"limit-payload-bytes" help:"Size of a message payload, at most 1 MiB (default ${default})." default:"65536"`
	MaxDatabaseConns    int `name:"max-database-conns" help:"PostgreSQL connections of this node (default ${default})." default:"16"`

	RetainHandoffs   Span `name:"retain-handoffs" help:"Erase the texts and contact details of handoffs so long after their end, such as 90d; at least 1d (default: kept for ever)." default:"0" placeholder:"TIME"`
	RetainDeliveries Span `name:"retain-deliveries" help:"Remove deliveries of ended handoffs that old; at least 7d (default: kept for ever)." default:"0" placeholder:"TIME"`
	RetainEvents     Span `name:"retain-events" help:"Remove events that old, but those of handoffs that ended later or not at all; at least 7d (default: kept for ever)." default:"0" placeholder:"TIME"`

	LogFormat string `name:"log-format" help:"text or json (default ${default})." enum:"text,json" default:"text"`
	LogLevel  string `name:"log-level" help:"debug, info, warn or error; debug logs every request (default ${default})." enum:"debug,info,warn,error" default:"info"`
}

// Embedded is the configuration of a hub that a command opens for itself, with the defaults of
// the flags above.
func Embedded(where Where) *Serve {
	return &Serve{
		Where: where, TrustMode: "open", FeatureProposedActions: true, FeatureTrace: true, FeatureVerification: true, FeatureDAG: true,
		LimitCallsPerMinute: 600, LimitParkedCalls: 64,
		LimitBodyBytes: 4 << 20, LimitPayloadBytes: 64 << 10, MaxDatabaseConns: 4,
	}
}

// Validate checks what the parser cannot, in sentences that say what to type instead.
func (s *Serve) Validate() error {
	if _, port, err := net.SplitHostPort(s.Listen); err != nil || port == "" {
		return fmt.Errorf("--listen: %q came; HOST:PORT is accepted, such as 127.0.0.1:7433", s.Listen)
	}
	var err error
	if s.PublicURL, err = HubURL("--public-url", s.PublicURL); err != nil {
		return err
	}
	for _, h := range s.AllowedHosts {
		if h == "" || strings.ContainsAny(h, "/:@ ") {
			return fmt.Errorf("--allowed-host: %q came; a host name without scheme and port is accepted, such as hub.internal", h)
		}
	}
	for _, n := range []struct {
		flag       string
		value, min int
		max        int
	}{
		{"--limit-calls-per-minute", s.LimitCallsPerMinute, 0, 1 << 30},
		{"--limit-parked-calls", s.LimitParkedCalls, 1, 1 << 20},
		{"--limit-body-bytes", s.LimitBodyBytes, 64 << 10, 64 << 20},
		{"--limit-payload-bytes", s.LimitPayloadBytes, 1 << 10, 1 << 20},
		{"--max-database-conns", s.MaxDatabaseConns, 2, 1000},
	} {
		if n.value < n.min || n.value > n.max {
			return fmt.Errorf("%s: %d came; %d to %d are accepted", n.flag, n.value, n.min, n.max)
		}
	}
	for _, r := range []struct {
		flag         string
		value, least Span
	}{
		{"--retain-handoffs", s.RetainHandoffs, Span(day)},
		{"--retain-deliveries", s.RetainDeliveries, Span(7 * day)},
		{"--retain-events", s.RetainEvents, Span(7 * day)},
	} {
		if r.value != 0 && r.value < r.least {
			return fmt.Errorf("%s: %s came; at least %s is accepted, or 0 to keep them for ever", r.flag, r.value, r.least)
		}
	}
	if err := s.Mail.Check(); err != nil {
		return err
	}
	if _, err := s.AllowedNetworks(); err != nil {
		return err
	}
	return s.Where.Check()
}

// Outside says which addresses that others gave are dialled.
type Outside struct {
	NotifyAllowNetwork []string `name:"notify-allow-network" help:"A network inside yours, such as 10.1.0.0/16, that webhooks of agents may lead to; may be repeated." placeholder:"CIDR"`
}

// AllowedNetworks are those inside ours that webhooks may lead to.
func (o *Outside) AllowedNetworks() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range o.NotifyAllowNetwork {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--notify-allow-network: %q came; a network is accepted, such as 10.1.0.0/16", text)
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// HubURL checks the address of a hub that a flag names and gives it without a slash at its end.
// Empty stays empty.
func HubURL(flag, s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err == nil && u.User != nil {
		return "", fmt.Errorf("%s: it holds a user name or password; an address without is accepted, such as https://hub.example.com", flag)
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s: %q came; an http or https address is accepted, such as https://hub.example.com", flag, s)
	}
	if strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("%s: %q has a path; the hub is served at the root of its host, such as https://hub.example.com", flag, s)
	}
	return strings.TrimRight(s, "/"), nil
}

// Check refuses two databases at once and fills in the default folder.
func (w *Where) Check() error {
	if w.DatabaseURL != "" {
		if w.Data != "" {
			return errors.New("--data and --database-url exclude each other: name the folder for SQLite, or the address of PostgreSQL")
		}
		if !strings.HasPrefix(w.DatabaseURL, "postgres://") && !strings.HasPrefix(w.DatabaseURL, "postgresql://") {
			return errors.New("--database-url: postgres://user:password@host:5432/name is accepted (the value is not repeated here, it may hold a password)")
		}
		return nil
	}
	if w.Data == "" {
		dir, err := DefaultData()
		if err != nil {
			return err
		}
		w.Data = dir
	}
	return nil
}

// DefaultData is the user's data folder for the hub (XDG Base Directory).
func DefaultData() (string, error) {
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "handclasp"), nil
	}
	return HomeData()
}

// HomeData is DefaultData for a program that knows its home folder and nothing else: one that an
// MCP client starts gets few variables of the shell.
func HomeData() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home folder is known; name a data folder with --data")
	}
	return filepath.Join(home, ".local", "share", "handclasp"), nil
}
