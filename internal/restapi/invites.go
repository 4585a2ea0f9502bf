package restapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// InviteLink is a join link at the one moment it is shown.
type InviteLink struct {
	JTI       string `json:"jti"`
	URL       string `json:"url"`
	Handle    string `json:"handle"`
	Inviter   string `json:"inviter_handle"`
	ExpiresAt string `json:"expires_at"`
}

// Invite is a join link without its token.
type Invite struct {
	JTI        string  `json:"jti"`
	Handle     string  `json:"handle"`
	Name       string  `json:"name"`
	Role       string  `json:"role"`
	Inviter    string  `json:"inviter_handle"`
	Status     string  `json:"status"` // open, used or expired
	CreatedAt  string  `json:"created_at"`
	ExpiresAt  string  `json:"expires_at"`
	RedeemedAt *string `json:"redeemed_at"`
}

func (o *operator) invite(w http.ResponseWriter, r *http.Request) {
	var in hub.InviteInput
	if !o.decode(w, r, &in) {
		return
	}
	l, err := o.hub.Invite(r.Context(), asOperator, in)
	o.answer(w, r, err, InviteLink{l.ID, l.URL, l.Handle, l.Inviter, stamp(l.ExpiresAt)})
}

func (o *operator) listInvites(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.Invites(r.Context(), asOperator)
	out := make([]Invite, len(list))
	for i, v := range list {
		out[i] = Invite{v.ID, v.Handle, v.Name, v.Role, v.Inviter, string(v.Status), stamp(v.CreatedAt), stamp(v.ExpiresAt), stampOrNull(v.RedeemedAt)}
	}
	o.answer(w, r, err, map[string]any{"invites": out})
}

func (o *operator) revokeInvite(w http.ResponseWriter, r *http.Request) {
	err := o.hub.RevokeInvite(r.Context(), asOperator, r.PathValue("jti"))
	o.answer(w, r, err, map[string]any{"jti": r.PathValue("jti"), "revoked": true})
}

const (
	// maxRedeem bounds the body of a redemption in bytes; a token has some 600.
	maxRedeem = 8 << 10
	// redeemsPerMinute is for one address. Tokens cannot be guessed, so this only keeps a script
	// from keeping the hub busy.
	redeemsPerMinute = 60
	// maxAddresses bounds the memory of who asked.
	maxAddresses = 10_000
)

// Redeemed is who joined. Its key is shown here and never again.
type Redeemed struct {
	AgentID string `json:"agent_id"`
	Handle  string `json:"handle"`
	APIKey  string `json:"api_key"`
}

// Redeem serves POST /invites/{jti}/redeem. The token in the body is the credential; mount it
// behind a check of Host and Origin. A refusal is {"error": word} and nothing else (contracts:
// relay-wire).
func Redeem(h *hub.Hub, log *slog.Logger) http.Handler {
	return &redeemer{hub: h, log: log, limits: newAddressLimits(redeemsPerMinute)}
}

type redeemer struct {
	hub    *hub.Hub
	log    *slog.Logger
	limits *addressLimits
}

func (d *redeemer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "application/json")
	if wait := d.limits.wait(r.RemoteAddr); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		refuse(w, http.StatusTooManyRequests, "rate_limited")
		return
	}
	var in struct {
		Token string `json:"token"`
	}
	if err := decodeOne(http.MaxBytesReader(w, r.Body, maxRedeem), &in); err != nil {
		if handoff.CodeOf(err) == handoff.CodeContentTooLarge {
			refuse(w, http.StatusRequestEntityTooLarge, "content_too_large")
			return
		}
		refuse(w, http.StatusBadRequest, "invalid_request")
		return
	}
	k, err := d.hub.Redeem(r.Context(), r.PathValue("jti"), in.Token)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(Redeemed{k.AgentID, k.Handle, k.Secret}) // the browser may be gone
}

// fail answers a refusal of the hub.
func (d *redeemer) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, hub.ErrInviteUsed):
		refuse(w, http.StatusGone, "already_used")
	case errors.Is(err, hub.ErrInviteExpired):
		refuse(w, http.StatusGone, "expired")
	case errors.Is(err, hub.ErrInviteTaken):
		refuse(w, http.StatusConflict, "handle_taken")
	case errors.Is(err, hub.ErrInviteUnknown):
		refuse(w, http.StatusNotFound, "not_found")
	case handoff.CodeOf(err) == handoff.CodeUnavailable:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "unavailable")
	default:
		d.log.ErrorContext(r.Context(), "internal error", "route", r.Pattern, "error", err)
		refuse(w, http.StatusInternalServerError, "internal")
	}
}

func refuse(w http.ResponseWriter, status int, word string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": word})
}

// addressLimits limits how often each address asks.
type addressLimits struct {
	perMinute int

	mu     sync.Mutex
	recent map[netip.Prefix]*rate.Limiter
}

func newAddressLimits(perMinute int) *addressLimits {
	return &addressLimits{perMinute: perMinute, recent: map[netip.Prefix]*rate.Limiter{}}
}

// wait counts one attempt of an address and says how long it has to wait.
func (d *addressLimits) wait(remote string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := network(remote)
	l := d.recent[from]
	if l == nil {
		if len(d.recent) >= maxAddresses {
			clear(d.recent)
		}
		l = rate.NewLimiter(rate.Limit(float64(d.perMinute)/60), d.perMinute)
		d.recent[from] = l
	}
	reservation := l.Reserve()
	wait := reservation.Delay()
	if wait > 0 {
		reservation.Cancel()
	}
	return wait
}

// network is an address as one user has it: IPv6 is handed out by the /64.
func network(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // no network address: a test, or a socket
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // in range
	return p
}
