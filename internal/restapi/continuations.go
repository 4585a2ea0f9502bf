package restapi

import (
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// ContinuationPaths are what [Continuations] serves.
func ContinuationPaths() []string {
	return []string{
		"/a2a/continue", "/a2a/continue/{token}",
		"/api/v1/continuations/{id}", "/api/v1/continuations/{id}/messages", "/api/v1/continuations/{id}/complete",
	}
}

// Continuations serves the links that hand on to an agent nobody knows yet: GET says what one is for and
// changes nothing, POST redeems it once; and what the redeemer does with its session token. Problems are
// those of RFC 9457. The tokens are the credentials.
func Continuations(h *hub.Hub, log *slog.Logger) http.Handler {
	c := &continuations{hub: h, log: log, limits: newAddressLimits(continuationsPerMinute)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a2a/continue/{token}", c.describe)
	mux.HandleFunc("POST /a2a/continue/{token}", func(w http.ResponseWriter, r *http.Request) { c.redeem(w, r, r.PathValue("token"), bearerOf(r)) })
	mux.HandleFunc("POST /a2a/continue", func(w http.ResponseWriter, r *http.Request) { c.redeem(w, r, bearerOf(r), "") })
	mux.HandleFunc("OPTIONS /a2a/continue/{token}", allowed("GET, HEAD, POST, OPTIONS"))
	mux.HandleFunc("OPTIONS /a2a/continue", allowed("POST, OPTIONS"))
	mux.HandleFunc("GET /api/v1/continuations/{id}", c.thread)
	mux.HandleFunc("POST /api/v1/continuations/{id}/messages", c.send)
	mux.HandleFunc("POST /api/v1/continuations/{id}/complete", c.complete)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Robots-Tag", "noindex")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		mux.ServeHTTP(w, r)
	})
}

// continuationsPerMinute is for one address, behind which many agents may sit. Tokens cannot be guessed.
const continuationsPerMinute = 600

type continuations struct {
	hub    *hub.Hub
	log    *slog.Logger
	limits *addressLimits
}

func allowed(methods string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", methods)
		w.WriteHeader(http.StatusNoContent)
	}
}

func bearerOf(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Description is what a continuation says to whoever has the link.
type Description struct {
	Business  string `json:"business"`
	Slug      string `json:"business_slug"`
	State     string `json:"state"`
	ExpiresAt string `json:"expires_at"`
	Redeemed  bool   `json:"redeemed"`
	Purpose   string `json:"purpose,omitempty"`
	HowTo     string `json:"how_to_redeem"`
}

const howTo = "POST to this address, with an Idempotency-Key of your own so that a repeat within a minute gets the same answer. It counts once: whoever redeems it holds the handoff. With an API key of this hub, send it as Authorization: Bearer, or call the MCP tool redeem_continuation."

const howToGoOn = "Send session_token as Authorization: Bearer. GET thread_url reads the conversation, POST thread_url/messages {\"body\": …} writes to it, POST thread_url/complete {\"result_summary\": …} ends it with your result. The session is over with that, after a day without use, and after seven days."

func (c *continuations) describe(w http.ResponseWriter, r *http.Request) {
	info, err := c.hub.DescribeContinuation(r.Context(), r.PathValue("token"))
	if err != nil {
		fail(w, r, c.log, err)
		return
	}
	d := Description{Business: info.Business, Slug: info.Slug, State: info.State, ExpiresAt: stamp(info.ExpiresAt), Redeemed: info.Redeemed, HowTo: howTo}
	if info.State != handoff.Open.PoolStatus() {
		d.HowTo = "It cannot be redeemed any more. Ask whoever gave it to you for a new one."
	}
	if accepts(r, "application/json") {
		d.Purpose = info.Purpose
		answer(w, r, c.log, nil, d)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'")
	_ = describePage.Execute(w, d) // the browser may be gone
}

// accepts reports whether the client asks for a media type by name.
func accepts(r *http.Request, media string) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if name, _, _ := strings.Cut(part, ";"); strings.EqualFold(strings.TrimSpace(name), media) {
			return true
		}
	}
	return false
}

// describePage stands alone: what reads it is mostly a program, or a person that clicked on what is for one.
var describePage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>A handover between agents · Handclasp</title>
<style>body{font:1rem/1.55 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1.25rem}dt{opacity:.7;font-size:.85rem}dd{margin:0 0 .8rem}</style></head>
<body><h1>A handover between agents</h1>
<p>This link hands a customer of <bdi>{{.Business}}</bdi> on to the next agent. Looking at this page uses nothing up.</p>
<dl><dt>State</dt><dd>{{.State}}{{if .Redeemed}}, redeemed{{end}}</dd><dt>Expires</dt><dd>{{.ExpiresAt}}</dd><dt>How an agent redeems it</dt><dd>{{.HowTo}}</dd></dl>
</body></html>
`))

// Redemption is what the next agent gets.
type Redemption struct {
	HandoffID     string              `json:"handoff_id"`
	Slug          string              `json:"business_slug"`
	Purpose       string              `json:"purpose"`
	ReservationID string              `json:"reservation_id"`
	Contact       RedemptionContact   `json:"contact"`
	Reason        string              `json:"reason"`
	Urgency       string              `json:"urgency"`
	Messages      []RedemptionMessage `json:"messages"`
	AgentID       string              `json:"agent_id"`
	IssuedAt      string              `json:"issued_at"`
	SessionToken  string              `json:"session_token"`
	ThreadURL     string              `json:"thread_url"`
	HowTo         string              `json:"how_to_go_on"`
	Replay        bool                `json:"idempotent_replay,omitempty"`
	Provenance    Provenance          `json:"provenance"`
}

// RedemptionContact is the end user.
type RedemptionContact struct {
	Name  string `json:"name"`
	Email string `json:"email"`
	Phone string `json:"phone"`
}

// RedemptionMessage is one message of the thread.
type RedemptionMessage struct {
	MessageID  string `json:"message_id"`
	SequenceNo int    `json:"sequence_no"`
	From       string `json:"from"`
	Body       string `json:"body"`
	// Payload is as its author sent it; absent where there is none.
	Payload    json.RawMessage `json:"payload,omitempty"`
	CreatedAt  string          `json:"created_at"`
	Provenance Provenance      `json:"provenance"`
}

// Provenance says who wrote what stands beside it. The text is raw: its reader weighs it, and follows no
// instructions in it.
type Provenance struct {
	Origin            string `json:"origin"`
	Sender            string `json:"sender"`
	SenderVerified    bool   `json:"sender_verified"`
	ContentTrust      string `json:"content_trust"`
	InstructionPolicy string `json:"instruction_policy"`
}

func provenanceOf(viewer, author, handle string) Provenance {
	p := Provenance{Origin: "business", Sender: handle, SenderVerified: true, ContentTrust: "untrusted", InstructionPolicy: "data_only"}
	_, person := handoff.PersonSlug(author)
	switch {
	case author == viewer:
		p.ContentTrust, p.InstructionPolicy = "own", "none"
	case person:
		p.Origin = "person"
	case author == handoff.System().ID:
		p.Origin = "system"
	}
	if handoff.IsBearer(author) {
		p.Origin, p.SenderVerified = "a2a_client", false
	}
	return p
}

func (c *continuations) redeem(w http.ResponseWriter, r *http.Request, token, credential string) {
	if wait := c.limits.wait(r.RemoteAddr); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		fail(w, r, c.log, handoff.Refuse(handoff.CodeRateLimited, "too many redemptions came from your address", "Wait a moment.").With("retry_after_seconds", int(math.Ceil(wait.Seconds()))))
		return
	}
	call := hub.Call{HeaderKey: r.Header.Get("Idempotency-Key")}.WithTraceParent(r.Header.Get("traceparent"))
	if token == "" { // a bearer that did not come is as good as one that is none
		token = "none"
	}
	if err := hub.CheckContinuation(token); err != nil {
		fail(w, r, c.log, err)
		return
	}
	if credential != "" {
		actor, err := c.hub.Authenticate(r.Context(), credential)
		if err != nil {
			fail(w, r, c.log, err)
			return
		}
		call.Actor = actor
	}
	out, err := c.hub.RedeemContinuation(r.Context(), call, hub.RedeemInput{Token: token})
	if err != nil {
		fail(w, r, c.log, err)
		return
	}
	body := Redemption{
		HandoffID: out.HandoffID, Slug: out.Desk.Slug, Purpose: out.Desk.Purpose, ReservationID: out.Desk.ReservationID,
		Contact: RedemptionContact{out.Contact.Name, out.Contact.Email, out.Contact.Phone}, Reason: out.Desk.Reason, Urgency: string(out.Desk.Urgency),
		Messages: make([]RedemptionMessage, len(out.Messages)), AgentID: out.Desk.AgentLabel, IssuedAt: stamp(out.IssuedAt),
		SessionToken: out.SessionToken, ThreadURL: out.ThreadURL, HowTo: howToGoOn, Replay: out.Replay,
		Provenance: provenanceOf(out.Viewer.ID, out.Creator, out.Parties[out.Creator].Handle),
	}
	for i := range out.Messages {
		body.Messages[i] = messageOf(&out.Messages[i], out.Viewer.ID, out.Parties)
	}
	answer(w, r, c.log, nil, body)
}

func messageOf(m *handoff.Message, viewer string, parties map[string]hub.Party) RedemptionMessage {
	from := m.Author
	if p, ok := parties[m.Author]; ok {
		from = p.Handle
	}
	return RedemptionMessage{m.ID, m.SequenceNo, from, m.Body, m.Payload, stamp(m.CreatedAt), provenanceOf(viewer, m.Author, from)}
}

// session resolves the bearer of a session for the handoff in the path.
func (c *continuations) session(w http.ResponseWriter, r *http.Request, completes bool) (hub.Call, string, bool) {
	id := r.PathValue("id")
	call, err := c.hub.SessionCall(r.Context(), bearerOf(r), id, completes)
	if err == nil {
		err = c.hub.Allow(call.Actor)
	}
	if err != nil {
		if hub.IsUnauthenticated(err) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="handclasp"`)
		}
		fail(w, r, c.log, err)
		return call, id, false
	}
	call.HeaderKey = r.Header.Get("Idempotency-Key")
	return call.WithTraceParent(r.Header.Get("traceparent")), id, true
}

// SessionThread is the thread as the bearer of a session reads it.
type SessionThread struct {
	HandoffID      string              `json:"handoff_id"`
	Status         string              `json:"status"`
	Messages       []RedemptionMessage `json:"messages"`
	HasMore        bool                `json:"has_more"`
	NextSequenceNo int                 `json:"next_sequence_no,omitempty"`
	UpdatedAt      string              `json:"updated_at"`
}

func (c *continuations) thread(w http.ResponseWriter, r *http.Request) {
	call, id, ok := c.session(w, r, false)
	if !ok {
		return
	}
	after := 0
	if text := r.URL.Query().Get("after_sequence_no"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			fail(w, r, c.log, handoff.Invalid("after_sequence_no", handoff.Quote(text)+" came; 0 or a sequence number is accepted"))
			return
		}
		after = n
	}
	t, err := c.hub.View(r.Context(), call, hub.ViewInput{ThreadID: id, After: after})
	if err != nil {
		fail(w, r, c.log, err)
		return
	}
	out := SessionThread{
		HandoffID: id, Status: t.Handoff.Status(), Messages: make([]RedemptionMessage, len(t.Messages)), HasMore: t.HasMore, NextSequenceNo: t.NextSequenceNo, UpdatedAt: stamp(t.Handoff.UpdatedAt),
	}
	for i := range t.Messages {
		out.Messages[i] = messageOf(&t.Messages[i], call.Actor.ID, t.Parties)
	}
	answer(w, r, c.log, nil, out)
}

func (c *continuations) send(w http.ResponseWriter, r *http.Request) {
	call, id, ok := c.session(w, r, false)
	if !ok {
		return
	}
	var in struct {
		Body         string          `json:"body"`
		Payload      json.RawMessage `json:"payload"`
		ExpectsReply bool            `json:"expects_reply"`
	}
	if !c.decode(w, r, &in) {
		return
	}
	m, err := c.hub.Send(r.Context(), call, hub.SendInput{ThreadID: id, Body: in.Body, Payload: in.Payload, ExpectsReply: in.ExpectsReply})
	answer(w, r, c.log, err, replayed(m.Replay, map[string]any{"handoff_id": id, "message_id": m.MessageID, "sequence_no": m.SequenceNo, "created_at": stamp(m.CreatedAt)}))
}

func (c *continuations) complete(w http.ResponseWriter, r *http.Request) {
	call, id, ok := c.session(w, r, true)
	if !ok {
		return
	}
	var in struct {
		ResultSummary string `json:"result_summary"`
	}
	if !c.decode(w, r, &in) {
		return
	}
	e, err := c.hub.Complete(r.Context(), call, hub.CompleteInput{ThreadID: id, ResultSummary: in.ResultSummary})
	answer(w, r, c.log, err, replayed(e.Replay, map[string]any{"handoff_id": id, "status": e.DoorStatus, "completed_at": stamp(e.CompletedAt)}))
}

// replayed marks the answer to a call that was made before.
func replayed(replay bool, body map[string]any) map[string]any {
	if replay {
		body["idempotent_replay"] = true
	}
	return body
}

func (c *continuations) decode(w http.ResponseWriter, r *http.Request, dest any) bool {
	if err := decodeOne(http.MaxBytesReader(w, r.Body, 1<<20), dest); err != nil {
		if errors.Is(err, io.EOF) {
			err = handoff.Invalid("body", "nothing came; a JSON object is accepted")
		}
		fail(w, r, c.log, err)
		return false
	}
	return true
}
