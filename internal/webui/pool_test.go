package webui

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

const shop = "/srv/shop"

// marker stands in the payload and must stand on no page.
const marker = "MARKER<7f3a>"

func wantNoPayload(t *testing.T, page string) {
	t.Helper()
	for _, form := range []string{marker, "MARKER", "7f3a", base64.StdEncoding.EncodeToString([]byte(marker))} {
		if strings.Contains(page, form) {
			t.Errorf("the page holds the payload as %q\n%s", form, page)
		}
	}
}

// crew are the agents that have to do with an open handoff, each with its browser.
type crew struct {
	t        *testing.T
	f        *hubtest.Fixture
	calls    map[string]hub.Call
	browsers map[string]*browser
}

func newCrew(t *testing.T, f *hubtest.Fixture, handles ...string) *crew {
	t.Helper()
	c := &crew{t, f, map[string]hub.Call{}, map[string]*browser{}}
	for _, handle := range handles {
		call, key := f.AgentWithKey(handle)
		c.calls[handle], c.browsers[handle] = call, newBrowser(t, f).signIn(key)
	}
	return c
}

func (c *crew) open(from string, in hub.OpenInput) string {
	c.t.Helper()
	in.ProjectRoot, in.From, in.Payload = shop, from, json.RawMessage(`{"m":"`+marker+`"}`)
	if in.Visibility == "" {
		in.Visibility = "private"
	}
	out, err := c.f.Hub.Open(context.Background(), c.calls[from], in)
	c.must(err)
	return out.HandoffID
}

func (c *crew) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *crew) claim(as, id string) {
	c.t.Helper()
	out, err := c.f.Hub.Claim(context.Background(), c.calls[as], hub.ClaimInput{ProjectRoot: shop, AgentID: as, ThreadID: id})
	c.must(err)
	if !strings.Contains(string(out.Work.Handoff.Payload), marker) {
		c.t.Fatal("the claimant got no payload")
	}
}

func (c *crew) hold(as, id string) hub.HoldInput {
	return hub.HoldInput{ProjectRoot: shop, AgentID: as, ThreadID: id}
}

// see wants the parts on the page of each of some agents.
func (c *crew) see(handles, id string, parts ...string) {
	c.t.Helper()
	for _, handle := range strings.Fields(handles) {
		page := c.browsers[handle].page("/inbox/" + id)
		wantIn(c.t, page, parts...)
		wantNoPayload(c.t, page)
	}
}

// miss wants a page that says nothing of the handoff.
func (c *crew) miss(status int, handles, id string) {
	c.t.Helper()
	for _, handle := range strings.Fields(handles) {
		w := c.browsers[handle].get("/inbox/" + id)
		if w.Code != status || strings.Contains(w.Body.String(), "is it green") || strings.Contains(w.Body.String(), shop) {
			c.t.Errorf("%s gets %d\n%s", handle, w.Code, w.Body)
		}
		wantNoPayload(c.t, w.Body.String())
	}
}

func TestThePageOfAnOpenHandoffShowsItsPartsAndNeverThePayload(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		ctx := context.Background()
		c := newCrew(t, f, "anna@acme", "cid@acme", "vera@acme", "eve@acme")
		first := c.open("anna@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"role","role":"<b>lead\u202e"}`), Priority: "high", TraceID: "trace <1>"})
		c.see("anna@acme", first, "Open handoff from anna@acme", `<span class="badge s-pending">OPEN</span>`, "role &lt;b&gt;lead", "U+202E", shop, "private", "high", "trace &lt;1&gt;",
			`<dt>Held by</dt><dd><span class="muted">nobody</span>`, "No messages.")
		wantNotIn(t, c.browsers["anna@acme"].page("/inbox/"+first), "Summary", "Fetched by recipient", "<dt>To</dt>")
		c.miss(http.StatusNotFound, "cid@acme vera@acme eve@acme", first)

		id := c.open("anna@acme", hub.OpenInput{
			Target: json.RawMessage(`{"strategy":"direct","agent_id":"cid@acme"}`), Criteria: []string{"is it green <x>", "and documented"},
			VerifyBy: json.RawMessage(`{"kind":"agent","agent_id":"vera@acme"}`), DependsOn: []string{first},
		})
		c.see("anna@acme", id, "<dt>To</dt>", "is it green &lt;x&gt;", "and documented", "Verified by", "vera@acme", "Waits for", "0 of 1 completed", first, "OPEN")
		c.see("cid@acme", id, "is it green", "0 of 1 completed")
		wantNotIn(t, c.browsers["cid@acme"].page("/inbox/"+id), first) // it may not see what it waits for
		_, err := f.Hub.Reassign(ctx, hubtest.Operator(), hub.ReassignInput{ThreadID: first, To: "eve@acme", Reason: "she knows it"})
		c.must(err)
		c.see("eve@acme anna@acme", first, "CLAIMED", "Reassigned to eve@acme: she knows it", `id="m1"`)
		epoch := 1
		in := c.hold("eve@acme", first)
		in.ClaimEpoch = &epoch
		_, err = f.Hub.Deliver(ctx, c.calls["eve@acme"], hub.DeliverInput{HoldInput: in, Result: json.RawMessage(`{"out":"RESULT 1.50"}`)})
		c.must(err)
		c.see("eve@acme anna@acme", first, "COMPLETED", "RESULT 1.50")

		c.claim("cid@acme", id)
		c.see("anna@acme cid@acme", id, "CLAIMED", "1 of 1 completed", "<dt>Lease until</dt>")
		_, err = f.Hub.Send(ctx, c.calls["cid@acme"], hub.SendInput{ThreadID: id, Body: "the first message"})
		c.must(err)
		_, err = f.Hub.Deliver(ctx, c.calls["cid@acme"], hub.DeliverInput{HoldInput: c.hold("cid@acme", id), Result: json.RawMessage(`{"out":"RESULT <2>"}`)})
		c.must(err)
		c.see("anna@acme cid@acme vera@acme", id, `<span class="badge s-accepted">VERIFYING</span>`, "RESULT &lt;2&gt;", "the first message", `id="m1"`)
		_, err = f.Hub.Verify(ctx, c.calls["vera@acme"], hub.VerifyInput{HoldInput: c.hold("vera@acme", id), Verdict: "fail", Feedback: "FEEDBACK <3>"})
		c.must(err)
		c.see("anna@acme cid@acme", id, "CLAIMED", "Verdict: fail", "FEEDBACK &lt;3&gt;")
		_, err = f.Hub.CancelAny(ctx, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "called off"})
		c.must(err)
		c.see("anna@acme cid@acme", id, "CANCELLED", "called off", "Last held by")
		c.miss(http.StatusNotFound, "eve@acme", id)
	})
}

func TestWhoOnlyMaySeeAnOpenHandoffDoesNotReadItsThread(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		c := newCrew(t, f, "anna@acme", "cid@acme", "eve@acme")
		id := c.open("anna@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`), Visibility: "public", Criteria: []string{"is it green"}})
		c.miss(http.StatusForbidden, "cid@acme eve@acme", id)
		c.claim("cid@acme", id)
		c.see("cid@acme", id, "is it green", "any agent")
		c.miss(http.StatusForbidden, "eve@acme", id)
	})
}

func TestAnErasedOpenHandoffIsShownWithTheMarkerOnly(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	ctx := context.Background()
	c := newCrew(t, f, "anna@acme", "cid@acme")
	id := c.open("anna@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`), Criteria: []string{"SECRET"}})
	c.claim("cid@acme", id)
	_, err := f.Hub.Deliver(ctx, c.calls["cid@acme"], hub.DeliverInput{HoldInput: c.hold("cid@acme", id), Result: json.RawMessage(`"SECRET"`)})
	c.must(err)
	_, err = f.Hub.Verify(ctx, c.calls["anna@acme"], hub.VerifyInput{HoldInput: c.hold("anna@acme", id), Verdict: "fail", Feedback: "SECRET"})
	c.must(err)
	_, err = f.Hub.CancelAny(ctx, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "SECRET"})
	c.must(err)
	_, err = f.Hub.Erase(ctx, hubtest.Operator(), id)
	c.must(err)
	c.see("anna@acme cid@acme", id, handoff.ErasedText, ">erased<", "CANCELLED", "any agent", shop)
	for _, b := range c.browsers {
		wantNotIn(t, b.page("/inbox/"+id), "SECRET")
	}
}
