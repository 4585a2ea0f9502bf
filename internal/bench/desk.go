package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/emersion/go-smtp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/notify"
	"handclasp/internal/store"
)

// The desk: a handoff by a link against its rows alone and against a tool that does nothing; one to a
// person, whose mail goes to a sink in a process of its own, against sending mail alone; many redeemers of one
// token; and taking what is due beside many deliveries that are done.

func addShop(ctx context.Context, h *hub.Hub) error {
	channel, email := "email", "ann@shop.example"
	_, err := h.AddBusiness(ctx, hub.Call{Actor: handoff.Operator()}, hub.BusinessInput{Slug: "shop", Channel: &channel, Email: &email})
	return err
}

func handOn(ctx context.Context, h *hub.Hub, call hub.Call, key string) (string, error) {
	out, err := h.Initiate(ctx, call, hub.InitiateInput{Slug: "shop", Mode: "agent", IdempotencyKey: key, Purpose: summary})
	return out.HandoffID, err
}

// deskHub opens a hub with a shop and n callers, whose rate is not limited.
func (j job) deskHub(ctx context.Context, mail bool) (h *hub.Hub, callers []hub.Call, end func() error, err error) {
	p, err := fresh(j.Database, j.URL)
	if err != nil {
		return nil, nil, nil, err
	}
	h, callers, st, err := j.deskHubAt(ctx, p, mail)
	return h, callers, func() error { return errors.Join(st.Close(), p.close()) }, err
}

func (j job) deskHubAt(ctx context.Context, p place, mail bool) (h *hub.Hub, callers []hub.Call, st *store.Store, err error) {
	debug.SetGCPercent(800)
	if st, err = store.Open(ctx, p.cfg); err != nil {
		return nil, nil, nil, err
	}
	h = hub.New(hub.Config{Store: st, PublicURL: "https://hub.example", Mail: mail})
	if callers, _, err = people(ctx, h, max(j.Callers, 1)); err == nil {
		err = addShop(ctx, h)
	}
	return h, callers, st, err
}

// desk measures agent mode, called as a door calls it.
func (j job) desk() (outcome, error) {
	ctx := context.Background()
	h, callers, end, err := j.deskHub(ctx, false)
	if err != nil {
		return outcome{}, err
	}
	out := work(j.Callers, j.Duration, func(w, i int) error {
		_, err := handOn(ctx, h, callers[w], fmt.Sprintf("key-%d-%d", w, i))
		return err
	})
	return out, end()
}

// redeem has 64 callers redeem one token at once, again and again, and gives the time until all have
// their answer.
func (j job) redeem() (outcome, error) {
	const redeemers, rounds = 64, 100
	ctx := context.Background()
	h, callers, end, err := j.deskHub(ctx, false)
	if err != nil {
		return outcome{}, err
	}
	var all []time.Duration
	began := time.Now()
	for round := range rounds {
		made, err := h.Initiate(ctx, callers[0], hub.InitiateInput{Slug: "shop", Mode: "agent", IdempotencyKey: "key-" + strconv.Itoa(round)})
		if err != nil {
			return outcome{}, err
		}
		var wg sync.WaitGroup
		won := make(chan bool, redeemers)
		start := time.Now()
		for range redeemers {
			wg.Go(func() {
				_, err := h.RedeemContinuation(ctx, hub.Call{}, hub.RedeemInput{Token: made.Continuation.Token})
				if err == nil {
					won <- true
				}
			})
		}
		wg.Wait()
		all = append(all, time.Since(start))
		if len(won) != 1 {
			return outcome{}, fmt.Errorf("%d redeemed one token", len(won))
		}
	}
	out := outcome{PerSecond: redeemers * rounds / time.Since(began).Seconds(), P99: p99(all)}
	out.P50 = all[len(all)/2]
	return out, end()
}

// due takes what is due, one delivery at a time, beside j.Callers deliveries that are done.
func (j job) due() (outcome, error) {
	done := j.Callers
	j.Callers = 1
	ctx := context.Background()
	at, err := fresh(j.Database, j.URL)
	if err != nil {
		return outcome{}, err
	}
	h, callers, st, err := j.deskHubAt(ctx, at, true)
	if err != nil {
		return outcome{}, err
	}
	if err := queueMail(ctx, h, callers[0], "first"); err != nil {
		return outcome{}, err
	}
	if _, err := takeMail(ctx, h); err != nil {
		return outcome{}, err
	}
	// Nobody else may have a SQLite file open in the process that owns it.
	if err := errors.Join(st.Close(), j.copyDeliveries(ctx, at, done)); err != nil {
		return outcome{}, err
	}
	if st, err = store.Open(ctx, at.cfg); err != nil {
		return outcome{}, err
	}
	h = hub.New(hub.Config{Store: st, PublicURL: "https://hub.example", Mail: true})
	var all []time.Duration
	for i := range samples + 20 {
		if err := queueMail(ctx, h, callers[0], "key-"+strconv.Itoa(i)); err != nil {
			return outcome{}, err
		}
		took, err := takeMail(ctx, h)
		if err != nil {
			return outcome{}, err
		}
		if i >= 20 {
			all = append(all, took)
		}
	}
	out := outcome{P99: p99(all)}
	out.P50 = all[len(all)/2]
	return out, errors.Join(st.Close(), at.close())
}

// queueMail makes a handoff whose mail is due. The call would wait for the first outcome of that; called
// off, its handoff is there all the same.
func queueMail(ctx context.Context, h *hub.Hub, call hub.Call, key string) error {
	gone, leave := context.WithCancel(ctx)
	defer leave()
	over := make(chan error, 1)
	go func() {
		_, err := h.Initiate(gone, call, hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: key})
		over <- err
	}()
	select {
	case <-h.Sendable():
		leave()
		<-over
		return nil
	case err := <-over:
		return errors.Join(errors.New("no mail was due"), err)
	}
}

// takeMail takes the one that is due, says how long that took, and reports it as sent.
func takeMail(ctx context.Context, h *hub.Hub) (time.Duration, error) {
	began := time.Now()
	list, err := h.TakeDeliveries(ctx, hub.Lane{Channel: handoff.ChannelEmail}, 16)
	took := time.Since(began)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("%d were due", len(list))
	}
	if err != nil {
		return 0, err
	}
	return took, h.ReportDelivery(ctx, &list[0], handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: "x"})
}

// copyDeliveries writes n deliveries like the one that there is.
func (j job) copyDeliveries(ctx context.Context, p place, n int) error {
	db, err := open(j.Database, p)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	const chunk = 50_000
	for from := 0; from < n; from += chunk {
		if _, err := db.ExecContext(ctx, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO deliveries (id, handoff_id, kind, channel, recipient_id, sequence_no, event_seq, state, reason, provider_id, attempts, unknown, due_at, created_at, updated_at, spend_day, cost)
			SELECT t.id || '-' || n.i, t.handoff_id || '', t.kind, t.channel, t.recipient_id, t.sequence_no, t.event_seq, t.state, t.reason, t.provider_id, t.attempts, t.unknown, t.due_at, t.created_at, t.updated_at, t.spend_day, t.cost
			FROM deliveries t, n WHERE t.id NOT LIKE '%%-%%-%%-%%-%%-%%'`, from+1, min(from+chunk, n))); err != nil {
			return err
		}
	}
	if j.Database == "postgres" {
		_, err = db.ExecContext(ctx, "ANALYZE deliveries")
	}
	return err
}

// mail sends mail to a sink and does nothing else.
func (j job) mail() (outcome, error) {
	c, err := notify.ParseSMTP("smtp://"+j.URL+"?tls=none", "")
	if err != nil {
		return outcome{}, err
	}
	c.From = mail.Address{Name: "Handclasp", Address: "hub@bench.example"}
	sender, err := notify.NewEmail(c)
	if err != nil {
		return outcome{}, err
	}
	return work(j.Callers, j.Duration, func(w, i int) error {
		id := fmt.Sprintf("%d-%d", w, i)
		o := sender.Send(context.Background(), handoff.Notification{
			ID: id, HandoffID: id, First: id, Kind: handoff.NotifyHandoff, Channel: handoff.ChannelEmail, To: "ann@shop.example", Business: "shop",
			Link: "http://127.0.0.1/h/x", Urgency: handoff.UrgencyNormal, Reason: summary, CreatedAt: time.Now(), Attempt: 1,
		})
		if o.Kind != handoff.OutcomeSent {
			return fmt.Errorf("%s: %w", o.Reason, o.Err)
		}
		return nil
	}), nil
}

// sink takes mail and keeps none, until its standard input closes.
func sink(dir string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", l.Addr())
	signal.Ignore(syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = os.RemoveAll(dir)
		os.Exit(0)
	}()
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return drop{}, nil }))
	s.Domain = "sink.example"
	return s.Serve(l)
}

type drop struct{}

func (drop) Mail(string, *smtp.MailOptions) error { return nil }
func (drop) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (drop) Reset()                               {}
func (drop) Logout() error                        { return nil }

func (drop) Data(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

func initiateBody(mode string) string {
	b, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": "initiate_handoff", "arguments": map[string]any{
			"slug": "shop", "mode": mode, "idempotency_key": mode + " " + keyMark, "purpose": summary, "reason": summary[:100],
		}},
	})
	return string(b)
}

func (b *bench) desk() error {
	fmt.Printf("\nThe desk, agent mode: handoffs per second (median of %d)\n\n| database | callers | raw limit | hub | ratio | p50 | p99 |\n|---|---|---|---|---|---|---|\n", b.rounds)
	rows := func(name, url string) error {
		for _, n := range callers {
			out, err := b.measure(job{Kind: "raw-desk", Database: name, URL: url, Callers: n}, job{Kind: "desk", Database: name, URL: url, Callers: n})
			if err != nil {
				return err
			}
			fmt.Printf("| %s | %d | %.0f | %.0f | %.2f | %s | %s |\n", name, n, out[0].PerSecond, out[1].PerSecond, out[1].PerSecond/out[0].PerSecond, ms(out[1].P50), ms(out[1].P99))
		}
		return nil
	}
	if err := errors.Join(rows("sqlite", ""), onPostgres(rows)); err != nil {
		return err
	}
	if err := b.deskOverHTTP(); err != nil {
		return err
	}
	other := func(name, url string) error {
		var redeemed, few, many outcome
		if err := errors.Join(
			job{Kind: "redeem", Database: name, URL: url}.child(&redeemed),
			job{Kind: "due", Database: name, URL: url, Callers: 1_000}.child(&few),
			job{Kind: "due", Database: name, URL: url, Callers: 1_000_000}.child(&many)); err != nil {
			return err
		}
		fmt.Printf("\n%s: 64 redeemers of one token all have their answer after p50 %s, p99 %s. Taking what is due: p99 %s beside 1,000 deliveries that are done, %s beside 1,000,000, ratio %.2f.\n",
			name, ms(redeemed.P50), ms(redeemed.P99), ms(few.P99), ms(many.P99), float64(many.P99)/float64(few.P99))
		return nil
	}
	return errors.Join(other("sqlite", ""), onPostgres(other))
}

// deskOverHTTP compares both modes with a tool that does nothing, and human mode with mail alone.
func (b *bench) deskOverHTTP() error {
	mailSink, err := startChild("sink")
	if err != nil {
		return err
	}
	defer mailSink.stop()
	noopServer, err := startChild("noop")
	if err != nil {
		return err
	}
	defer noopServer.stop()
	hubServer, key, err := startHub("--smtp-url", "smtp://"+mailSink.url+"?tls=none", "--mail-from", "Handclasp <hub@bench.example>", "--limit-parked-calls", "1000")
	if err != nil {
		return err
	}
	defer hubServer.stop()
	fmt.Printf("\nOver HTTP, SQLite, calls per second (median of %d)\n\n| callers | no-op, our door | agent mode | of the no-op | mail alone | human mode | of the no-op | of mail alone | p50 | p99 |\n|---|---|---|---|---|---|---|---|---|---|\n", b.rounds)
	for _, n := range callers {
		out, err := b.measure(
			job{Kind: "load", URL: noopServer.url, Path: "/mcp/team", Key: noopServer.key, Body: callBody("noop"), Callers: n},
			job{Kind: "load", URL: hubServer.url, Path: "/mcp/desk", Key: key, Body: initiateBody("agent"), Expect: `"continuation_url"`, Callers: n},
			job{Kind: "mail", URL: strings.TrimPrefix(mailSink.url, "http://"), Callers: n},
			job{Kind: "load", URL: hubServer.url, Path: "/mcp/desk", Key: key, Body: initiateBody("human"), Expect: `"delivered_via":"email"`, Callers: n})
		if err != nil {
			return err
		}
		door, agent, mail, human := out[0].PerSecond, out[1].PerSecond, out[2].PerSecond, out[3].PerSecond
		fmt.Printf("| %d | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f | %.2f | %s | %s |\n", n, door, agent, agent/door, mail, human, human/door, human/mail, ms(out[3].P50), ms(out[3].P99))
	}
	return nil
}
