package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/mail"
	"path/filepath"
	"sync"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/notify"
	"handclasp/internal/outbox"
	"handclasp/internal/restapi"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
	"handclasp/internal/webui"
)

// node is an open hub with its doors and the work that runs beside it.
type node struct {
	cfg     *config.Serve
	log     *slog.Logger
	store   *store.Store
	hub     *hub.Hub
	metrics *telemetry.Metrics
	senders notify.Set
	doors   httpserver.Config
	back    sync.WaitGroup
	endBack context.CancelFunc
}

// openNode opens the database and builds the doors. public is the address that links are made
// from; without one they are paths.
func openNode(ctx context.Context, cfg *config.Serve, public string, log *slog.Logger) (*node, error) {
	outside, err := outsideOf(&cfg.Outside)
	if err != nil {
		return nil, err
	}
	senders, err := sendersOf(cfg, outside)
	if err != nil {
		return nil, err
	}
	metrics := telemetry.New()
	sc := store.Config{URL: cfg.DatabaseURL, Log: log, Metrics: metrics, MaxConns: cfg.MaxDatabaseConns, Program: version()}
	if cfg.DatabaseURL == "" {
		sc.Path = databaseFile(cfg.Data)
	}
	st, err := store.Open(ctx, sc)
	if err != nil {
		return nil, err
	}
	served := hub.Served{PublicURL: public, Mail: cfg.Mail.Configured()}
	if public != "" {
		err = hub.TellServed(ctx, st, served)
	} else {
		served, err = hub.ReadServed(ctx, st)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	limits := handoff.DefaultLimits()
	limits.Payload = cfg.LimitPayloadBytes
	h := hub.New(hub.Config{
		Store: st, Log: log, Metrics: metrics, PublicURL: served.PublicURL, Limits: limits,
		CallsPerMinute: cfg.LimitCallsPerMinute, ParkedCalls: cfg.LimitParkedCalls,
		NoProposedActions: !cfg.FeatureProposedActions, NoTrace: !cfg.FeatureTrace, NoVerification: !cfg.FeatureVerification, NoDAG: !cfg.FeatureDAG,
		StrictTrust: cfg.TrustMode == "strict", Mail: cfg.Mail.Configured(), MailElsewhere: served.Mail,
		CheckOutside: outside.Examine,
		Retain:       hub.Retention{Handoffs: time.Duration(cfg.RetainHandoffs), Deliveries: time.Duration(cfg.RetainDeliveries), Events: time.Duration(cfg.RetainEvents)},
	})
	n := &node{senders: senders, cfg: cfg, log: log, store: st, hub: h, metrics: metrics, endBack: func() {}}
	n.doors = httpserver.Config{
		Hub: h, Metrics: metrics, Log: log, PublicURL: public, MaxBody: int64(cfg.LimitBodyBytes),
		Hosts: append(cfg.AllowedHosts, hostOf(cfg.Listen)),
		MCP: mcpserver.New(h, mcpserver.Options{
			Version: version(), Log: log, MaxBody: int64(cfg.LimitBodyBytes),
			Observe: func(tool, code string) { metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
		}),
		Inbox:    webui.New(h, webui.Options{PublicURL: public, Log: log}),
		Operator: restapi.Operator(h, log),
	}
	return n, nil
}

// outsideOf is how the hub reaches addresses that agents gave it.
func outsideOf(o *config.Outside) (notify.Outside, error) {
	networks, err := o.AllowedNetworks()
	return notify.Outside{Allow: networks}, err
}

// sendersOf are the ways out that are configured.
func sendersOf(cfg *config.Serve, outside notify.Outside) (notify.Set, error) {
	senders := notify.Set{handoff.ChannelWebhook: notify.NewWebhook(outside), handoff.ChannelSlack: notify.NewSlack(outside)}
	if cfg.Mail.Configured() {
		email, err := mailSender(&cfg.Mail)
		if err != nil {
			return nil, err
		}
		senders[handoff.ChannelEmail] = email
	}
	return senders, nil
}

// mailSender makes the sender of e-mail. Errors name the flag.
func mailSender(m *config.Mail) (*notify.Email, error) {
	password, err := m.Password()
	if err != nil {
		return nil, err
	}
	c, err := notify.ParseSMTP(m.SMTPURL, password)
	if err != nil {
		return nil, fmt.Errorf("--smtp-url: %w", err)
	}
	from, err := mail.ParseAddress(m.MailFrom)
	if err != nil {
		return nil, fmt.Errorf("--mail-from: %q came; an address is accepted, such as \"Handclasp <hub@example.com>\"", m.MailFrom)
	}
	c.From, c.ReplyTo = *from, m.MailReplyTo
	sender, err := notify.NewEmail(c)
	if err != nil {
		return nil, fmt.Errorf("--smtp-url, --mail-from and --mail-reply-to: %w", err)
	}
	return sender, nil
}

// run starts what works beside the calls, and sends what is due if so told. It outlives the calls: what
// those in flight commit must still be told.
func (n *node) run(ctx context.Context, sends bool) {
	back, end := context.WithCancel(context.WithoutCancel(ctx))
	n.endBack = end
	n.back.Go(func() { logged(n.log, "hub", n.hub.Run(back)) })
	n.back.Go(func() { logged(n.log, "outbox", outbox.Run(back, n.hub, n.log)) })
	n.back.Go(func() { logged(n.log, "outbox", outbox.Retain(back, n.hub, n.log)) })
	if sends {
		n.back.Go(func() { logged(n.log, "outbox", outbox.Send(back, n.hub, n.senders, n.log, n.metrics)) })
	}
	n.back.Go(func() { trimMemory(back, n.metrics) })
}

// socket is what the owner of a folder answers to the folder's user.
func (n *node) socket() http.Handler { return httpserver.NewSocket(n.doors) }

// close ends the work beside the calls, then the database.
func (n *node) close() error {
	n.endBack()
	n.back.Wait()
	return n.store.Close()
}

func databaseFile(data string) string { return filepath.Join(data, "handclasp.db") }

func logged(log *slog.Logger, what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("background work ended", "what", what, "error", err)
	}
}
