// Package hub holds the use cases, one file per verb. A verb checks the actor, lets package
// handoff apply the rule, writes row, event, notices and idempotency key in one transaction,
// and wakes whoever waits once that is committed. It is the only package that opens a
// transaction; doors call its methods and nothing below it calls back.
package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// Config is what a hub is made of.
type Config struct {
	Store   *store.Store
	Limits  handoff.Limits
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// PublicURL is the address people and agents reach the hub by, without a trailing slash;
	// empty when there is none (links are then paths).
	PublicURL string
	// CallsPerMinute limits each actor; 0 means no limit.
	CallsPerMinute int
	// ParkedCalls limits how many calls of one actor may wait at once.
	ParkedCalls int
	// NoProposedActions refuses propose_action, as hubs of protocol v0.1 do.
	NoProposedActions bool
	// NoTrace ignores trace_id at the pool; NoVerification refuses acceptance_criteria and verify_by,
	// NoDAG depends_on. What was made before goes on.
	NoTrace, NoVerification, NoDAG bool
	// Mail: e-mail can be sent from here. MailElsewhere: another node on the same database sends it.
	Mail, MailElsewhere bool
	// CheckOutside says why the address of a webhook would not be dialled; nil looks at none.
	CheckOutside func(ctx context.Context, address string) error
	// Retain says how long what is finished is kept.
	Retain Retention
	// StrictTrust wants a session and its secret with every verb on a pool handoff.
	StrictTrust bool
}

// Hub runs the use cases over one store.
type Hub struct {
	cfg      Config
	st       *store.Store
	lim      handoff.Limits
	log      *slog.Logger
	metrics  *telemetry.Metrics
	waiters  *waiters
	keys     *keyCache
	agents   rosterCache
	claimers claimers
	claiming claiming
	scanMost int // the constant; less in tests
	chunk    int // retainChunk; less in tests
	handles  handleCache
	rates    *rates
	stats    statsCache
	// sessions were used since it was last written down when.
	sessions sessionUses
	// secret signs the sessions of browsers, inviteSecret join links.
	secret, inviteSecret func(context.Context) ([]byte, error)
	// linkSecret makes the links of persons.
	linkSecret func(context.Context) ([]byte, error)
	sendable   chan struct{}
	channels   channelCache
	initiates  initiateRates
}

// New makes a hub. Call [Hub.Run] to keep it listening to other nodes.
func New(cfg Config) *Hub {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = telemetry.New()
	}
	if cfg.Limits == (handoff.Limits{}) {
		cfg.Limits = handoff.DefaultLimits()
	}
	if cfg.ParkedCalls == 0 {
		cfg.ParkedCalls = 64
	}
	h := &Hub{
		cfg: cfg, st: cfg.Store, lim: cfg.Limits, log: cfg.Log, metrics: cfg.Metrics,
		waiters:  newWaiters(cfg.ParkedCalls),
		rates:    newRates(cfg.CallsPerMinute),
		scanMost: scanMost,
		chunk:    retainChunk,
	}
	h.keys = newKeyCache(cfg.Store.Shared())
	h.secret, h.inviteSecret, h.linkSecret = h.loadSecret("session_secret"), h.loadSecret("invite_secret"), h.loadSecret("link_secret")
	h.sendable = make(chan struct{}, 1)
	return h
}

// Limits are the bounds this hub enforces.
func (h *Hub) Limits() handoff.Limits { return h.lim }

// StrictTrust reports whether the hub wants a session with every verb on a pool handoff.
func (h *Hub) StrictTrust() bool { return h.cfg.StrictTrust }

// Ready reports whether new calls should come here: the database answers and the hub is not
// shutting down.
func (h *Hub) Ready(ctx context.Context) error {
	select {
	case <-h.waiters.draining:
		return handoff.Unavailable("the hub is shutting down", nil)
	default:
		return h.st.Ping(ctx)
	}
}

// newID makes a UUIDv7: ids of one process sort by the time they were made.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		// Only a broken random source gets here, and then nothing must go on.
		panic("no randomness for an id: " + err.Error())
	}
	return id.String()
}

// Call is what surrounds one use of a verb: who calls, and the trace it belongs to.
type Call struct {
	Actor handoff.Actor
	// TraceParent is the W3C traceparent that came with the call; empty when there was none.
	TraceParent string
	// HeaderKey is the Idempotency-Key header; see [ResolveKey].
	HeaderKey string
}

// traceID is the trace id inside the call's traceparent.
func (c Call) traceID() string {
	if parts := strings.Split(c.TraceParent, "-"); len(parts) >= 4 { // later versions may add parts
		return parts[1]
	}
	return ""
}

// change is one read-write transaction with what has to happen after its commit.
type change struct {
	*store.Tx
	hub  *Hub
	verb string
	call Call
	wake map[string]bool
	did  []did
	// session is the one that the caller names.
	session string
	// sends: there is something to send once this is committed.
	sends bool
	// untold are deliveries that nothing went out of.
	untold []handoff.Delivery
	// kept is the caller as keptLabelled read it in the workspace keptIn.
	kept   *handoff.Agent
	keptIn string
}

type did struct {
	door  handoff.Door
	event handoff.EventType
}

// change runs fn in one transaction, and after the commit wakes those whom it concerns. fn may
// run more than once.
func (h *Hub) change(ctx context.Context, verb string, call Call, fn func(*change) error) error {
	return h.changeIn(ctx, h.st.Write, verb, call, fn)
}

// changeIn is change in a transaction of another kind.
func (h *Hub) changeIn(ctx context.Context, write func(context.Context, func(*store.Tx) error) error, verb string, call Call, fn func(*change) error) error {
	began := time.Now()
	var c *change
	err := write(ctx, func(tx *store.Tx) error {
		c = &change{Tx: tx, hub: h, verb: verb, call: call, wake: map[string]bool{}}
		return fn(c)
	})
	if err != nil {
		return err
	}
	h.metrics.TransitionSeconds.WithLabelValues(verb).Observe(time.Since(began).Seconds())
	for _, d := range c.did {
		h.metrics.Transitions.WithLabelValues(string(d.door), string(d.event)).Inc()
	}
	h.logUntold(ctx, c.untold)
	h.announce(c.wake)
	if c.sends {
		h.kick()
	}
	return nil
}

// announce wakes waiters here and on the other nodes.
func (h *Hub) announce(keys map[string]bool) {
	if len(keys) == 0 {
		return
	}
	list := make([]string, 0, len(keys))
	for k := range keys {
		list = append(list, k)
	}
	h.wakeLocal(list)
	h.st.Publish(list)
	if slices.ContainsFunc(list, func(k string) bool { return k == lookAgain || strings.HasPrefix(k, credentialChanged) }) {
		h.st.Flush() // before the command says that it is done
	}
}

// wakeLocal acts on what was announced: wakes waiters, drops cached credentials.
func (h *Hub) wakeLocal(keys []string) {
	for _, k := range keys {
		if id, ok := strings.CutPrefix(k, credentialChanged); ok {
			h.keys.forget(id)
			h.agents.forget()
			h.channels.forget()
			h.waiters.recheck(id)
			continue
		}
		if k == lookAgain {
			h.waiters.recheckAll()
			continue
		}
		h.waiters.wake(k)
	}
	h.waiters.wake(anyEvent)
}

// take reads a handoff under its lock as it is now, writing down a lapse or an expiry that no
// sweep has written down yet. Whoever may not see it gets not_found.
func (c *change) take(id string) (was, now handoff.Handoff, err error) {
	return c.takeIf(id, func(h *handoff.Handoff, a *handoff.Agent) bool {
		return h.VisibleTo(c.call.Actor, a, c.Now())
	}, func(h *handoff.Handoff) (*handoff.Agent, error) { return agentFor(c.Tx, c.call.Actor, h) })
}

// takeIf is take by another rule of who may see the handoff.
func (c *change) takeIf(id string, visible func(*handoff.Handoff, *handoff.Agent) bool, labels func(*handoff.Handoff) (*handoff.Agent, error)) (was, now handoff.Handoff, err error) {
	was, err = c.LockHandoff(id)
	if err != nil {
		return was, was, err
	}
	now = was
	seen := was.At(c.Now()) // a lease that is over shows h to nobody any more
	// The agent's labels are read only where its part in the handoff does not say enough.
	if !visible(&seen, &handoff.Agent{ID: c.call.Actor.ID, Handle: c.call.Actor.Handle}) || needsLabels(c.call.Actor, &seen) {
		a, err := labels(&seen)
		if err != nil {
			return was, now, err
		}
		if !visible(&seen, a) {
			return was, now, handoff.NotFound("handoff", was.ID)
		}
	}
	if err := c.lapse(&was, &now); err != nil || now.EventSeq == was.EventSeq {
		return was, now, err
	}
	// At once, because a verb that finds nothing left to do writes no row, and then events would
	// be committed that the row does not count.
	err = c.update(&was, &now)
	return now, now, err
}

// lapse writes down what the clock did to a handoff: its lease or its deadline passed.
func (c *change) lapse(was, h *handoff.Handoff) error {
	if event, ok := h.Lapse(c.Now()); ok {
		if err := c.record(h, event, handoff.System(), "", 0, h.Creator, was.Holder); err != nil {
			return err
		}
		if err := c.parted(h, was.Holder); err != nil {
			return err
		}
	}
	if event, ok := h.OpenFallback(c.Now()); ok {
		if err := c.record(h, event, handoff.System(), "", 0); err != nil {
			return err
		}
	}
	event, ok := h.Expire(c.Now())
	if !ok {
		return nil
	}
	if h.Door == handoff.DoorDesk && h.Recipient == "" {
		if err := c.record(h, handoff.EventContinuationExpired, handoff.System(), "", 0); err != nil {
			return err
		}
	}
	return c.record(h, event, handoff.System(), "", 0, h.Creator, h.Recipient)
}

// parted takes the thread from the inbox of a holder that lost it and has no other part in it. A
// pool handoff stays: its past holder may claim it again.
func (c *change) parted(h *handoff.Handoff, holder string) error {
	if holder == "" || h.Door == handoff.DoorPool || slices.Contains(others(h), holder) {
		return nil
	}
	c.wake[holder] = true
	return c.ClearNotices(holder, h)
}

// needsLabels: with its id alone an agent may seem to match more than it does, such as an exclusion.
func needsLabels(actor handoff.Actor, h *handoff.Handoff) bool {
	return h.Door == handoff.DoorPool && actor.ID != h.Creator && actor.ID != h.Holder && actor.ID != h.Recipient && !h.HeldBefore(actor.ID) && !actor.IsOperator()
}

// agentFor loads what the rules of h ask about the actor: its labels matter only where a
// target or a capability verifier looks at them.
func agentFor(tx *store.Tx, actor handoff.Actor, h *handoff.Handoff) (*handoff.Agent, error) {
	if actor.Kind == handoff.KindPerson || actor.Kind == handoff.KindBearer {
		return &handoff.Agent{ID: actor.ID, Handle: actor.Handle}, nil
	}
	if actor.Kind != handoff.KindAgent {
		return nil, nil
	}
	if h.Target == nil && h.VerifyBy == nil {
		return &handoff.Agent{ID: actor.ID, Handle: actor.Handle}, nil
	}
	return labelled(tx, actor, h.WorkspaceID)
}

// record counts an event on h, writes it, and tells those whom it concerns. The row itself is
// written by the caller, once, when all is recorded.
func (c *change) record(h *handoff.Handoff, event handoff.EventType, by handoff.Actor, subject string, sequenceNo int, whom ...string) error {
	h.EventSeq++
	return c.tell(h, event, by, subject, sequenceNo, whom...)
}

// tell writes the event that h.EventSeq counts and a notice for each agent it concerns. subject
// is the message or draft it is about, sequenceNo the message that the notice carries, or 0.
func (c *change) tell(h *handoff.Handoff, event handoff.EventType, by handoff.Actor, subject string, sequenceNo int, whom ...string) error {
	now := c.Now()
	if err := c.InsertEvent(&handoff.Event{
		Type: event, HandoffID: h.ID, Seq: h.EventSeq, ActorID: by.ID, SubjectID: subject,
		State: h.State, Epoch: h.Epoch, TraceID: c.traceOf(h), At: now, SessionID: c.session,
	}); err != nil {
		return err
	}
	told := map[string]bool{by.ID: true, "": true, handoff.Operator().ID: true, handoff.System().ID: true}
	for _, id := range whom {
		if told[id] || handoff.IsOutside(id) { // nobody outside has an inbox here
			continue
		}
		told[id], c.wake[id], c.wake[wakeNews(id)] = true, true, true
		if err := c.InsertNotice(id, h, h.EventSeq, sequenceNo, event, now); err != nil {
			return err
		}
		if err := c.notifyOutside(id, h); err != nil {
			return err
		}
	}
	c.wakeReaders(h)
	c.did = append(c.did, did{h.Door, event})
	return nil
}

func (c *change) traceOf(h *handoff.Handoff) string {
	id := c.call.traceID()
	if id == "" || h.Door == handoff.DoorPool {
		return h.TraceID
	}
	return id
}

// others are the agents of the thread.
func others(h *handoff.Handoff) []string { return []string{h.Creator, h.Recipient, h.Holder} }

// fingerprint identifies the input of a call, so that a key that is used again with other
// content is noticed. in is marshalled; fields that do not belong to the effect carry the tag
// json:"-".
func fingerprint(in any) string {
	b, err := json.Marshal(in)
	if err != nil {
		// Inputs are plain structs whose raw JSON was checked when it was decoded.
		panic("fingerprint: " + err.Error())
	}
	b = canonical(b)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// canonical writes JSON with sorted names and one spelling of every text, so that a client that
// encodes its input anew for a retry is recognised. Number literals stay as they are.
func canonical(b []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return b
	}
	out, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return out
}

// once is a call that takes effect once: its operation with the key, and the fingerprint of its
// input.
type once struct {
	op    store.Operation
	print string
}

// keyed finds the key of a call, takes it out of the input, and fingerprints the rest. key points
// into in, the input that will be marshalled.
func (h *Hub) keyed(call Call, verb string, key *string, in any) (once, error) {
	k, err := ResolveKey(*key, nil, call.HeaderKey)
	if err != nil {
		return once{}, err
	}
	*key = ""
	op, err := h.operation(call, verb, k)
	return once{op, fingerprint(in)}, err
}

// begin takes the handoff of a keyed call and looks up what was done under the key.
func (c *change) begin(id string, o once) (was, row handoff.Handoff, effect store.Effect, found bool, err error) {
	if was, row, err = c.take(id); err == nil {
		effect, found, err = c.done(o.op, o.print)
	}
	return was, row, effect, found, err
}

// beginHeld is begin for a verb that may need a session.
func (c *change) beginHeld(id string, s Session, o once) (was, row handoff.Handoff, effect store.Effect, found bool, err error) {
	if was, row, err = c.take(id); err == nil {
		err = c.admit(s, &row)
	}
	if err == nil {
		effect, found, err = c.done(o.op, o.print)
	}
	return was, row, effect, found, err
}

// keep binds the key of a call to what was done.
func (c *change) keep(o once, e store.Effect) error {
	e.Fingerprint = o.print
	return c.InsertEffect(o.op, e, c.Now())
}

// done looks up what the actor did under the key. found is false when nothing was done yet;
// another input under the same key is refused.
func (c *change) done(op store.Operation, print string) (store.Effect, bool, error) {
	e, found, err := c.Effect(op)
	if err == nil && found && e.Fingerprint != print {
		err = keyReused(op)
	}
	return e, found, err
}

func keyReused(op store.Operation) *handoff.Error {
	return handoff.Refuse(handoff.CodeDuplicateKey, "idempotency_key: "+handoff.Quote(op.Key)+" was used before by you for the same operation with other content",
		"Nothing was written. Use a new key for a new effect, or repeat the first call exactly.")
}

func (h *Hub) operation(call Call, verb, key string) (store.Operation, error) {
	if len(key) > h.lim.Key {
		return store.Operation{}, handoff.TooLarge("idempotency_key", len(key), h.lim.Key, "bytes")
	}
	if err := handoff.CheckText("idempotency_key", key, h.lim.Key); err != nil {
		return store.Operation{}, err
	}
	return store.Operation{Actor: call.Actor.ID, Verb: verb, Key: key}, nil
}

// ResolveKey finds the idempotency key of a call among its three sources, in the order
// argument, metadata.client_idempotency_key, header. Two that differ are invalid_params.
func ResolveKey(argument string, metadata json.RawMessage, header string) (string, error) {
	fromMeta := ""
	if len(metadata) > 0 {
		members := map[string]json.RawMessage{} // a struct would match the name in any case
		_ = json.Unmarshal(metadata, &members)  // its shape is checked where it is used
		if raw, ok := members["client_idempotency_key"]; ok && string(raw) != "null" {
			if json.Unmarshal(raw, &fromMeta) != nil {
				return "", handoff.Invalid("metadata.client_idempotency_key", "a value that is no string came; a string of 1 to 255 bytes is accepted")
			}
		}
	}
	key, source := "", ""
	for _, k := range [][2]string{{"idempotency_key", argument}, {"metadata.client_idempotency_key", fromMeta}, {"header Idempotency-Key", header}} {
		switch {
		case k[1] == "":
		case key == "":
			key, source = k[1], k[0]
		case key != k[1]:
			return "", handoff.Invalid(source, "it differs from "+k[0]+"; give one key, or the same everywhere")
		}
	}
	return key, nil
}

func onceValue[T any](load func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var value T
	loaded := false
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if loaded {
			return value, nil
		}
		v, err := load(ctx)
		if err == nil {
			value, loaded = v, true
		}
		return v, err
	}
}

func isCode(err error, code handoff.Code) bool {
	var e *handoff.Error
	return errors.As(err, &e) && e.Code == code
}

// WithTraceParent gives the call the trace context that came with it, if that is well formed
// (W3C Trace Context, traceparent).
func (c Call) WithTraceParent(traceparent string) Call {
	if telemetry.ValidTraceParent(traceparent) {
		c.TraceParent = traceparent
	}
	return c
}
