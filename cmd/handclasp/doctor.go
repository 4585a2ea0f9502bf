package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/store"
)

type doctorCmd struct {
	config.Serve `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*doctorCmd) Help() string {
	return `Looks at configuration, data folder, owner, database, clock and disk, changes nothing, and says
what to do about each fault. It takes the flags of serve: give it the ones that your hub runs
with. Exit 1 if something is wrong.

Examples:
  handclasp doctor
  handclasp doctor --data /srv/handclasp --public-url https://hub.example.com
  handclasp doctor --database-url postgres://handclasp@db.example.com/handclasp --json`
}

// Findings of a check.
const (
	fine    = "ok"
	warning = "warning" // works, and should be changed
	fault   = "fault"
)

// finding is the outcome of one check.
type finding struct {
	Check   string `json:"check"`
	Status  string `json:"status"`
	Finding string `json:"finding"`
	Advice  string `json:"advice,omitempty"`
}

// doctor collects findings.
type doctor struct {
	ctx      context.Context //nolint:containedctx // an examination lives for one command
	cfg      *config.Serve
	known    map[string]bool // environment variables that mean something
	findings []finding
}

func (d *doctor) note(check, status, advice, format string, args ...any) {
	d.findings = append(d.findings, finding{check, status, fmt.Sprintf(format, args...), advice})
}

// errUnwell ends the command with exit 1; the findings have been printed.
var errUnwell = errors.New("something is wrong; see above")

// Run examines and reports.
func (c *doctorCmd) Run(e *env) error {
	d := &doctor{ctx: e.ctx, cfg: &c.Serve, known: e.variables}
	d.examine()
	unwell := false
	for _, f := range d.findings {
		unwell = unwell || f.Status == fault
	}
	if c.JSON {
		if err := printJSON(e, map[string]any{"ok": !unwell, "checks": d.findings}); err != nil {
			return err
		}
	} else if err := report(e, d.findings); err != nil {
		return err
	}
	if unwell {
		return errUnwell
	}
	return nil
}

func report(e *env, findings []finding) error {
	for _, f := range findings {
		if err := e.say("%-8s %-14s %s\n", f.Status, f.Check, f.Finding); err != nil {
			return err
		}
		if f.Advice != "" {
			if err := e.say("%23s → %s\n", "", f.Advice); err != nil {
				return err
			}
		}
	}
	return nil
}

// examine goes from what is cheap and outside to what needs the database.
func (d *doctor) examine() {
	d.environment()
	if err := d.cfg.Validate(); err != nil {
		d.note("configuration", fault, "", "%v", err)
		return
	}
	d.addresses()
	d.mail()
	d.clientFile()
	if d.cfg.DatabaseURL == "" {
		if !d.folder() || !d.owner() {
			return
		}
	}
	d.database()
}

// mail connects to the mail server as for a notification, and sends nothing.
func (d *doctor) mail() {
	if !d.cfg.Mail.Configured() {
		return
	}
	sender, err := mailSender(&d.cfg.Mail)
	if err != nil {
		d.note("mail", fault, "", "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, 20*time.Second)
	defer cancel()
	if err := sender.Check(ctx); err != nil {
		d.note("mail", fault, "mend the server, or --smtp-url and the password; then: handclasp notify test --email ADDRESS", "%v", err)
		return
	}
	if sender.Authenticates() {
		d.note("mail", fine, "", "the mail server takes our credentials")
	} else {
		d.note("mail", fine, "", "the mail server answers, and is asked without credentials")
	}
	if public := d.cfg.PublicURL; public == "" || loopback(strings.TrimPrefix(strings.TrimPrefix(public, "https://"), "http://")) {
		d.note("mail", warning, "name the address by which people reach the hub with --public-url", "the links in mails lead to this machine only")
	}
}

func (d *doctor) database() {
	ctx, cancel := context.WithTimeout(d.ctx, time.Minute)
	defer cancel()
	sc := store.Config{URL: d.cfg.DatabaseURL}
	if sc.URL == "" {
		sc.Path = databaseFile(d.cfg.Data)
	}
	in, err := store.Inspect(ctx, sc)
	switch {
	case err != nil && sc.URL != "":
		d.note("database", fault, "", "%v", err)
		return
	case err != nil || in.Damage != "":
		d.damaged(err, in.Damage)
		return
	}
	d.schema(&in)
	for _, s := range in.Settings {
		d.note("durability", fault, `psql "$HANDCLASP_DATABASE_URL" -c 'ALTER SYSTEM SET `+s+` = on' -c 'SELECT pg_reload_conf()'`,
			"%s is off at the server: what was acknowledged can be lost when it crashes", s)
	}
	if in.ReadOnly {
		d.note("database", fault, "name the primary with --database-url", "the server is read-only, such as a standby")
	}
	d.clock(&in)
	d.contents(&in)
}

func (d *doctor) damaged(err error, damage string) {
	what := damage
	if err != nil {
		what = err.Error()
	}
	file := databaseFile(d.cfg.Data)
	d.note("database", fault, "put it aside, "+shellWords("mv", file, file+".damaged")+", and restore your last backup: handclasp restore FILE"+d.where(), "%s", what)
}

func (d *doctor) schema(in *store.Inspection) {
	switch {
	case in.Schema > store.SchemaVersion:
		d.note("migrations", fault, "install the newer handclasp, or restore a backup that this one made into another folder", "%v", store.NewerSchemaError{Found: in.Schema})
	case in.Schema == store.SchemaVersion:
		d.note("migrations", fine, "", "schema %d, which is this program's", in.Schema)
	case in.Schema == 0:
		d.note("migrations", warning, "handclasp serve"+d.where()+" begins a hub in it, or handclasp restore FILE"+d.where()+" fills it from a backup", "the database is empty")
	default:
		d.note("migrations", warning, "handclasp agent list"+d.where()+", or any other command, brings it up to date; an older program cannot open it then",
			"schema %d, and this program's is %d", in.Schema, store.SchemaVersion)
	}
}

// drift is how far clocks may be apart before leases and deadlines suffer.
const drift = 2 * time.Second

func (d *doctor) clock(in *store.Inspection) {
	now := time.Now()
	apart := in.Now.Sub(now).Abs()
	switch {
	case apart > drift:
		d.note("clock", warning, "let both machines follow a time server: timedatectl set-ntp true", "the database's clock and this machine's are %s apart", apart.Round(time.Millisecond))
	case in.Newest.After(in.Now.Add(drift)):
		d.note("clock", fault, "set the clock, best by a time server: timedatectl set-ntp true", "the newest event is of %s, which is yet to come: the clock went back, so leases and deadlines run too long", in.Newest.Format(time.RFC3339))
	default:
		d.note("clock", fine, "", "%s", now.UTC().Format(time.RFC3339))
	}
}

func (d *doctor) contents(in *store.Inspection) {
	if in.Schema != store.SchemaVersion {
		return
	}
	d.desk(in)
	if in.Agents == 0 {
		d.note("agents", warning, "handclasp agent add me@home"+d.where(), "no agent is registered, so nobody can call")
		return
	}
	d.note("agents", fine, "", "%d", in.Agents)
	if !in.Waiting.IsZero() && in.Now.Sub(in.Waiting) > 24*time.Hour {
		d.note("handoffs", warning, "handclasp handoff list --unfetched"+d.where()+" shows them", "a handoff has waited since %s, and its recipient has not looked", in.Waiting.Format(time.RFC3339))
	}
}

// desk looks for businesses that cannot be reached, and for customers whom nobody was told about.
func (d *doctor) desk(in *store.Inspection) {
	if in.ByMail > 0 && !d.cfg.Mail.Configured() {
		d.note("mail", warning, "start the hub with --smtp-url and --mail-from, and give them to doctor too", "%s, and no mail server is configured: nobody there is told of a customer", counted(in.ByMail, "business is reached by e-mail", "businesses are reached by e-mail"))
	}
	if in.Untold > 0 {
		d.note("desk", warning, "handclasp handoff list --untold"+d.where()+" shows them, handclasp handoff show ID why; then handclasp delivery resend DELIVERY", "%s of whom nobody was told, or nobody knows whether", counted(in.Untold, "customer waits", "customers wait"))
	}
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// where repeats the flag that names the database, for a command to paste.
func (d *doctor) where() string {
	switch { // the address may hold a password: it is not repeated
	case d.cfg.DatabaseURL != "" && os.Getenv("HANDCLASP_DATABASE_URL") != "":
		return ` --database-url "$HANDCLASP_DATABASE_URL"`
	case d.cfg.DatabaseURL != "":
		return " --database-url URL"
	}
	return " --data " + shellWords(d.cfg.Data)
}
