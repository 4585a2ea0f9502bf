package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

// payloadMark stands in the payload of every open handoff here, and in nothing that is printed.
const payloadMark = "PAYLOAD-5e1c"

func wantNoPayload(t *testing.T, printed string) {
	t.Helper()
	for _, form := range []string{payloadMark, "PAYLOAD", base64.StdEncoding.EncodeToString([]byte(payloadMark))} {
		if strings.Contains(printed, form) {
			t.Errorf("it prints the payload:\n%s", printed)
		}
	}
}

// delivered makes one that frank claimed and delivered, and that waits for the verdict of grace.
func (w *workshop) delivered() string {
	w.t.Helper()
	first := w.open("/srv/shop", hub.OpenInput{})[0]
	id := w.open("/srv/shop", hub.OpenInput{
		Target: json.RawMessage(`{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"frank@acme"},{"strategy":"role","role":"lead\u001b[2J"}]}`), Payload: json.RawMessage(`{"p":"` + payloadMark + `"}`),
		Criteria: []string{"is green\nEvents\n   1 forged", "is documented"}, VerifyBy: json.RawMessage(`{"kind":"agent","agent_id":"grace@acme"}`), Priority: "high", TraceID: "trace-1",
	})[0]
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		got, err := h.Claim(context.Background(), as("frank@acme"), hub.ClaimInput{ProjectRoot: "/srv/shop", AgentID: "frank@acme", ThreadID: id})
		if err != nil || !strings.Contains(string(got.Work.Handoff.Payload), payloadMark) {
			w.t.Fatalf("%+v %v", got, err)
		}
		if _, err := h.Deliver(context.Background(), as("frank@acme"), hub.DeliverInput{HoldInput: hub.HoldInput{ProjectRoot: "/srv/shop", AgentID: "frank@acme", ThreadID: id}, Result: json.RawMessage(`"RESULT"`)}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := h.Open(context.Background(), as("anna@acme"), hub.OpenInput{ProjectRoot: "/srv/shop", From: "anna@acme", Visibility: "private", Target: json.RawMessage(`{"strategy":"broadcast"}`), DependsOn: []string{id, first}}); err != nil {
			w.t.Fatal(err)
		}
	})
	return id
}

func TestTheOperatorListsAndShowsOpenHandoffsWithoutTheirPayload(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, w *workshop) {
		sent := w.send(0, "to a teammate")[0]
		id := w.delivered()
		out := w.ok("handoff", "list")
		wantNoPayload(t, out)
		rows := strings.Split(strings.TrimSpace(out), "\n")
		if len(rows) != 5 || strings.Contains(out, "\x1b") || !strings.Contains(rows[4], "pending") || !strings.Contains(rows[3], "OPEN") || !strings.Contains(rows[3], "any agent") {
			t.Fatalf("%q", out)
		}
		for _, part := range []string{id, "VERIFYING", "anna@acme", "(frank@acme) or (role lead\uFFFD[2J) (held by frank@acme)", "in /srv/shop"} {
			if !strings.Contains(rows[2], part) {
				t.Errorf("%q is missing in %q", part, rows[2])
			}
		}
		for args, want := range map[string]int{"--door team": 1, "--door pool": 3, "--workspace /srv/shop/": 3, "--workspace /srv/other": 0, "--status VERIFYING": 1, "--status verifying,pending": 4, "--door pool --status accepted": 1} {
			var list restapi.Handoffs
			w.json(&list, append([]string{"handoff", "list"}, strings.Fields(args)...)...)
			if len(list.Handoffs) != want {
				t.Errorf("%s: %d, want %d", args, len(list.Handoffs), want)
			}
			for _, h := range list.Handoffs {
				if (h.Door == "pool") != (h.Pool != nil) || (h.ThreadID == sent) != (h.Pool == nil) || h.Pool != nil && (h.ProjectRoot != "/srv/shop" || h.Intent != "" || h.Status != strings.ToUpper(h.State)) {
					t.Errorf("%s: %+v", args, h)
				}
			}
		}
		w.refused(2, "exclude each other", "handoff", "list", "--door", "team", "--workspace", "/srv/shop")
		w.refused(2, "--door desk exclude each other", "handoff", "list", "--door", "desk", "--workspace", "/srv/shop")
		w.refused(2, "--door", "handoff", "list", "--door", "back")
		w.refused(1, "the project root: \"shop\" came", "handoff", "list", "--workspace", "shop")
		w.refused(1, "and at the pool OPEN, CLAIMED, VERIFYING", "handoff", "list", "--status", "done")

		out = w.ok("handoff", "show", id)
		asJSON := w.ok("handoff", "show", id, "--json")
		wantNoPayload(t, out+asJSON)
		if strings.Contains(out+asJSON, "RESULT") || strings.ContainsRune(out, '\x1b') || strings.Count(out, "\nEvents\n") != 1 || strings.Contains(out, "Fetched") || strings.Contains(out, "Summary") {
			t.Errorf("%q\n%s", out, asJSON)
		}
		for _, part := range []string{
			"Status      VERIFYING\n", "From        anna@acme\n", "For         (frank@acme) or (role lead\uFFFD[2J)\n", "Workspace   /srv/shop\n", "Visibility  private\n", "Priority    high\n", "Trace       trace-1\n",
			"Holder      frank@acme, claim epoch 1\n", "Verified by grace@acme\n", "Result      there is one; its creator,", "\nAcceptance criteria\n    is green\n    Events\n       1 forged\n    is documented\n", "handoff.verification_requested",
		} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is missing in\n%s", part, out)
			}
		}
		var waiting restapi.Handoffs
		w.json(&waiting, "handoff", "list", "--limit", "1")
		out = w.ok("handoff", "show", waiting.Handoffs[0].ThreadID)
		if !strings.Contains(out, "Waits for   2 of 2: 0 completed, 0 failed\n") || !strings.Contains(out, "    "+id+"  VERIFYING\n") {
			t.Errorf("%s", out)
		}
		var got restapi.HandoffThread
		w.json(&got, "handoff", "show", id)
		if got.Contract == nil || len(got.Criteria) != 2 || got.VerifyBy.AgentID != "grace@acme" || !got.HasResult || got.Target.Words() == "" || got.Verification != nil || got.Dependencies != nil {
			t.Errorf("%+v %+v", got, got.Contract)
		}
		w.within(func(h *hub.Hub, as func(string) hub.Call) {
			if _, err := h.Verify(context.Background(), as("grace@acme"), hub.VerifyInput{HoldInput: hub.HoldInput{ProjectRoot: "/srv/shop", AgentID: "grace@acme", ThreadID: id}, Verdict: "fail", Feedback: "FEEDBACK"}); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Send(context.Background(), as("frank@acme"), hub.SendInput{ThreadID: id, Body: "I see"}); err != nil {
				t.Fatal(err)
			}
		})
		out = w.ok("handoff", "show", id)
		if !strings.Contains(out, "Verdict     fail by grace@acme, 20") || !strings.Contains(out, "\nMessage 1, frank@acme, ") || strings.Contains(out, "FEEDBACK") {
			t.Errorf("%s", out)
		}
	})
}

func TestTheOperatorCancelsReassignsAndErasesWhatWaitsForItsVerdict(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, w *workshop) {
		one, two := w.delivered(), w.delivered()
		if out := w.ok("handoff", "cancel", one, "--reason", "called off"); out != "CANCELLED "+one+"\n" {
			t.Errorf("%q", out)
		}
		w.refused(1, "grace@acme", "handoff", "reassign", two, "grac@acme", "--reason", "r")
		w.refused(1, "nobody would be left who may verify it", "handoff", "reassign", two, "grace@acme", "--reason", "r")
		if out := w.ok("handoff", "reassign", two, "frank@acme", "--reason", "do it anew"); out != two+" is held by frank@acme, claim epoch 2\n" {
			t.Errorf("%q", out)
		}
		out := w.ok("handoff", "show", two)
		if !strings.Contains(out, "Status      CLAIMED\n") || !strings.Contains(out, "\nMessage 1, operator, ") || !strings.Contains(out, "Reassigned to frank@acme: do it anew") {
			t.Errorf("%s", out)
		}
		w.refused(1, "this handoff is CLAIMED: only one that has ended can be erased", "handoff", "erase", two, "--yes")
		w.refused(1, "it is CANCELLED", "handoff", "reassign", one, "frank@acme", "--reason", "r")
		w.ok("handoff", "erase", one, "--yes")
		out = w.ok("handoff", "show", one) + w.ok("handoff", "show", one, "--json")
		if strings.Contains(out, "is green") || strings.Contains(out, "called off") || strings.Contains(out, "there is one") ||
			!strings.Contains(out, "\nAcceptance criteria\n    "+handoff.ErasedText+"\n") || !strings.Contains(out, "Trace       trace-1\n") || !strings.Contains(out, "handoff.erased") {
			t.Errorf("%s", out)
		}
		wantNoPayload(t, out)
	})
}

func TestAPersonsInboxSaysWhatIsOfThePool(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.delivered()
	for _, args := range [][]string{{"inbox", "--as", "grace@acme"}, {"inbox", id, "--as", "grace@acme"}} {
		if out := w.ok(args...); !strings.Contains(out, id) || !strings.Contains(out, "the pool (held by frank@acme)") {
			t.Errorf("%v: %s", args, out)
		}
	}
}

func TestADisabledAgentHoldsNothingOfThePool(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, w *workshop) {
		id := w.open("/srv/shop", hub.OpenInput{})[0]
		w.within(func(h *hub.Hub, as func(string) hub.Call) {
			if _, err := h.Claim(context.Background(), as("frank@acme"), hub.ClaimInput{ProjectRoot: "/srv/shop", AgentID: "frank@acme"}); err != nil {
				t.Fatal(err)
			}
		})
		if out := w.ok("agent", "show", "frank@acme"); !strings.Contains(out, "0 open for it, 1 held by it") {
			t.Errorf("%s", out)
		}
		w.ok("agent", "disable", "frank@acme")
		if out := w.ok("handoff", "show", id); !strings.Contains(out, "Status      OPEN\n") || !strings.Contains(out, "Holder      nobody, claim epoch 1\n") || !strings.Contains(out, "handoff.released") {
			t.Errorf("%s", out)
		}
		if out := w.ok("agent", "show", "frank@acme"); !strings.Contains(out, "0 open for it, 0 held by it") {
			t.Errorf("%s", out)
		}
	})
}

func TestAPersonIsAskedBeforeAnOpenHandoffIsErased(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.open("/srv/shop", hub.OpenInput{Payload: json.RawMessage(`"` + payloadMark + `"`)})[0]
	var stderr strings.Builder
	if err := askToErase(&env{ctx: context.Background(), stderr: &stderr}, &w.where, &handoffID{id}, strings.NewReader("no")); err == nil {
		t.Error("no is taken for yes")
	}
	if asked := stderr.String(); !strings.Contains(asked, id+", OPEN, from anna@acme to any agent: in /srv/shop\n") || strings.Contains(asked, payloadMark) {
		t.Errorf("it asks %q", asked)
	}
}
