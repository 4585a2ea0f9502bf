package secrecy

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
	"handclasp/internal/restapi"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
	"handclasp/internal/webui"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

const (
	shop   = "/srv/shop"
	other  = "/srv/other"
	strict = "/srv/vault"
)

// world is a whole hub, as serve puts it together, with a vault of the secrets in it.
type world struct {
	*hubtest.Fixture
	t              *testing.T
	kind           string
	vault          *Vault
	public, socket *httptest.Server
	cast           map[string]*actor
	offers         []*offer
	dummies        int

	mu   sync.Mutex
	seen map[string]bool // "actor secret" that was shown
	// heard is what this node told others.
	heard []string
}

// actor is somebody who asks: an agent, the operator at the socket, or anybody without a key.
type actor struct {
	w       *world
	name    string // the handle; "operator"; "anybody"
	key     hub.NewKey
	root    string
	reviews bool // offers the capability that verifies
	cookie  *http.Cookie
}

// offer is an open handoff and what is secret about it.
type offer struct {
	name, id, root string
	payload        string // as it was sent
	key            string // of every claim of it
	verifier       handoff.VerifyByKind
}

func (o *offer) secret(what string) string { return o.name + "/" + what }

func newWorld(t *testing.T, kind string) *world {
	f := hubtest.New(t, kind)
	log := telemetry.NewLogger(f.Log, "json", slog.LevelDebug)
	w := &world{Fixture: f, t: t, kind: kind, vault: NewVault(), cast: map[string]*actor{}, seen: map[string]bool{}}
	cfg := httpserver.Config{
		Hub: f.Hub, Metrics: f.Metrics, Log: log, PublicURL: "http://hub.example",
		MCP: mcpserver.New(f.Hub, mcpserver.Options{
			Version: "test", Log: log, ProgressEvery: 20 * time.Millisecond,
			Observe: func(tool, code string) { f.Metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
		}),
		Inbox: webui.New(f.Hub, webui.Options{PublicURL: "http://hub.example", Log: log}), Operator: restapi.Operator(f.Hub, log),
	}
	w.public, w.socket = httptest.NewServer(httpserver.New(cfg)), httptest.NewServer(httpserver.NewSocket(cfg))
	t.Cleanup(w.public.Close)
	t.Cleanup(w.socket.Close)
	if kind == "postgres" {
		w.listen()
	}
	w.cast["operator"], w.cast["anybody"] = &actor{w: w, name: "operator", root: shop}, &actor{w: w, name: "anybody", root: shop}
	return w
}

// listen keeps what nodes tell each other.
func (w *world) listen() {
	st, err := store.Open(context.Background(), w.Config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(ready) })
	go func() {
		defer close(done)
		_ = st.Listen(ctx, func(keys []string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard = append(w.heard, keys...)
		}, once)
	}()
	<-ready
	w.t.Cleanup(func() {
		cancel()
		<-done
		if err := st.Close(); err != nil {
			w.t.Error(err)
		}
	})
}

// agent registers one.
func (w *world) agent(handle, root string, capabilities ...string) *actor {
	w.t.Helper()
	k, err := w.Hub.AddAgent(context.Background(), hubtest.Operator(), hub.AgentInput{Handle: handle, Capabilities: capabilities})
	if err != nil {
		w.t.Fatal(err)
	}
	a := &actor{w: w, name: handle, key: k, root: root}
	for _, c := range capabilities {
		a.reviews = a.reviews || c == "review"
	}
	w.cast[handle] = a
	return a
}

// answer is what came back, with its head.
type answer struct {
	status int
	whole  string
	body   []byte
}

// ask sends a request as the actor and searches the answer.
func (a *actor) ask(what string, r *http.Request) answer {
	a.w.t.Helper()
	got, err := a.send(r)
	if err != nil {
		a.w.t.Fatalf("%s as %s: %v", what, a.name, err)
	}
	a.w.check(a, what, got.whole)
	if got.status >= http.StatusInternalServerError {
		a.w.t.Errorf("%s as %s: %d %.300s", what, a.name, got.status, got.body)
	}
	return got
}

func (a *actor) send(r *http.Request) (answer, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	head, err := httputil.DumpResponse(resp, false)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(resp.Body)
	for _, c := range resp.Cookies() {
		if c.MaxAge >= 0 {
			a.cookie = c
		}
	}
	return answer{resp.StatusCode, string(head) + string(body), body}, err
}

// request is one to the public listener, with the actor's key; the operator's goes to the socket.
func (a *actor) request(method, path, body string) *http.Request {
	a.w.t.Helper()
	base := a.w.public.URL
	if a.name == "operator" {
		base = a.w.socket.URL
	}
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		a.w.t.Fatal(err)
	}
	if a.key.Secret != "" {
		r.Header.Set("Authorization", "Bearer "+a.key.Secret)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// rpc calls a method of MCP; stream asks for an event stream with progress.
func (a *actor) rpc(ctx context.Context, method, params string, stream bool) (answer, error) {
	if stream {
		params = strings.Replace(params, "{", `{"_meta":{"progressToken":"p"},`, 1)
	}
	r := a.request(http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", "2025-11-25")
	return a.send(r.WithContext(ctx))
}

// method is rpc with the answer searched; result is nil for an error.
func (a *actor) method(what, method, params string) (result json.RawMessage) {
	a.w.t.Helper()
	got, err := a.rpc(context.Background(), method, params, false)
	if err != nil {
		a.w.t.Fatalf("%s as %s: %v", what, a.name, err)
	}
	a.w.check(a, what, got.whole)
	var m struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal(got.body, &m); err != nil || got.status >= http.StatusInternalServerError {
		a.w.t.Fatalf("%s as %s: %d %v %.300s", what, a.name, got.status, err, got.body)
	}
	return m.Result
}

// reply is the result of a tool.
type reply struct {
	IsError           bool
	StructuredContent json.RawMessage
	Content           []struct{ Text string }
	fields            map[string]any
}

// call calls a tool; args may hold raw JSON.
func (a *actor) call(tool string, args map[string]any) reply {
	a.w.t.Helper()
	var r reply
	result := a.method(tool, "tools/call", `{"name":"`+tool+`","arguments":`+text(a.w.t, args)+`}`)
	if result == nil {
		a.w.t.Fatalf("%s as %s is no tool call", tool, a.name)
	}
	if err := json.Unmarshal(result, &r); err != nil {
		a.w.t.Fatal(err)
	}
	if r.IsError && len(r.StructuredContent) == 0 { // its output schema is closed
		return r
	}
	dec := json.NewDecoder(strings.NewReader(string(r.StructuredContent)))
	dec.UseNumber()
	if err := dec.Decode(&r.fields); err != nil {
		a.w.t.Fatal(err)
	}
	if e, ok := r.fields["error"].(map[string]any); r.IsError && ok && (e["code"] == "internal" || e["code"] == "unavailable") {
		a.w.t.Errorf("%s as %s with %v: %v", tool, a.name, args, e)
	}
	return r
}

// must calls a tool that has to succeed.
func (a *actor) must(tool string, args map[string]any) reply {
	a.w.t.Helper()
	r := a.call(tool, args)
	if r.IsError {
		a.w.t.Fatalf("%s as %s: %s", tool, a.name, r.StructuredContent)
	}
	return r
}

func text(t testing.TB, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// at are the arguments of a tool about a handoff, and more by name and value.
func (a *actor) at(o *offer, more ...any) map[string]any {
	m := map[string]any{"project_root": a.root, "agent_id": a.name}
	if o != nil {
		m["handoff_id"] = o.id
	}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// page gets a page as a person who signed in with the agent's key.
func (a *actor) page(path string) answer {
	a.w.t.Helper()
	if a.cookie == nil && a.key.Secret != "" {
		r := a.request(http.MethodPost, "/login", url.Values{"key": {a.key.Secret}}.Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if got := a.ask("POST /login", r); got.status != http.StatusSeeOther || a.cookie == nil {
			a.w.t.Fatalf("sign in as %s: %d", a.name, got.status)
		}
	}
	r := a.request(http.MethodGet, path, "")
	if a.cookie != nil {
		r.AddCookie(a.cookie)
	}
	return a.ask("GET "+path, r)
}

// check fails the test for every secret in an output that its reader may not see.
func (w *world) check(a *actor, what, output string) {
	w.t.Helper()
	w.judge(a, what, output, w.may)
}

func (w *world) judge(a *actor, what, output string, may func(*actor, string) bool) {
	w.t.Helper()
	for _, trace := range w.vault.Search([]byte(output)) {
		if trace.Form == "plain" && trace.Secret != "" && may(a, trace.Secret) {
			w.mu.Lock()
			w.seen[a.name+" "+trace.Secret] = true
			w.mu.Unlock()
			continue
		}
		w.t.Errorf("secret shown: %s shows %s the %s (%s): %.600s", what, a.name, nameOf(trace), trace.Form, output)
	}
}

func nameOf(t Trace) string {
	if t.Secret == "" {
		return "part of a mark"
	}
	return t.Secret
}

// row reads a handoff as it is now.
func (w *world) row(id string) (h handoff.Handoff) {
	w.t.Helper()
	err := w.Store.Read(context.Background(), func(tx *store.Tx) error {
		row, err := tx.Handoff(id)
		h = row.At(tx.Now())
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// offered finds the offer that a secret belongs to, and which of its secrets it is.
func (w *world) offered(secret string) (*offer, string) {
	for _, o := range w.offers {
		if what, ok := strings.CutPrefix(secret, o.name+"/"); ok {
			return o, what
		}
	}
	w.t.Fatalf("no handoff has the secret %q", secret)
	return nil, ""
}

// may says who may see what, in the words of the domain ("Who sees what") and not in those of the
// program.
func (w *world) may(a *actor, secret string) bool {
	o, what := w.offered(secret)
	if o.id == "" { // it is being made: nobody but its creator has anything of it, and gets nothing back
		return false
	}
	h := w.row(o.id)
	if !h.ErasedAt.IsZero() {
		return false
	}
	holds := h.Holder == a.key.AgentID && a.key.AgentID != ""
	claimant := holds && h.State != handoff.Open
	switch what {
	case "payload":
		return holds && (h.State == handoff.Claimed || h.State == handoff.Verifying || h.State == handoff.Completed)
	case "result", "feedback":
		return a == w.cast["cora@acme"] || claimant || w.verifies(a, o, &h)
	}
	// A reason stands in the thread, which its creator, holder, verifier and the operator read.
	return a.name == "operator" || a == w.cast["cora@acme"] || claimant || w.verifies(a, o, &h) || h.EndedBy == a.key.AgentID
}

// verifies: one that a handoff names does from the start, one of many from VERIFYING on, and whoever
// gave the latest verdict knows what it judged.
func (w *world) verifies(a *actor, o *offer, h *handoff.Handoff) bool {
	switch o.verifier {
	case handoff.VerifyByAgent:
		return a == w.cast["vera@acme"]
	case handoff.VerifyByCapability:
		return h.Verdict != nil && h.Verdict.VerifiedBy == a.key.AgentID ||
			a.reviews && h.Holder != a.key.AgentID && (h.State == handoff.Verifying || h.State == handoff.Completed)
	}
	return false
}

// everyone in an order that is always the same.
func (w *world) everyone() []*actor {
	var list []*actor
	for _, name := range []string{"cora@acme", "clem@acme", "vera@acme", "vick@acme", "pat@acme", "lois@acme", "stan@acme", "olli@acme", "nora@acme"} {
		list = append(list, w.cast[name])
	}
	return list
}
