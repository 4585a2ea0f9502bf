package hub_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestAHandoffToYourselfIsRefusedInAnyCase(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		for _, to := range []string{"anna@acme", "ANNA@Acme"} {
			_, err := f.Hub.Create(bg, anna, hub.CreateInput{To: to, Intent: handoff.Inform, Summary: "s"})
			hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		}
		if n := stored(f); n != 0 {
			t.Fatalf("%d handoffs were stored", n)
		}
	})
}

func TestASendToNobodyNamesNearMatchesAndStoresNothing(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		f.Agent("frankie@acme")
		f.Agent("gone@acme")
		f.Agent("frank") // a bare name is nobody's teammate
		disable(f, "frankie@acme")
		disable(f, "gone@acme")
		try := func(to, key string) *handoff.Error {
			t.Helper()
			_, err := f.Hub.Create(bg, anna, hub.CreateInput{To: to, Intent: handoff.Inform, Summary: "s", IdempotencyKey: key})
			return hubtest.WantCode(t, err, handoff.CodeRecipientNotFound)
		}
		for _, to := range []string{"frnak@acme", "frankie@acme", "Frankie@ACME"} {
			e := try(to, "k")
			near, _ := e.Details["near_matches"].([]string)
			if len(near) != 1 || near[0] != "frank@acme" || !strings.Contains(e.Message, "frank@acme") {
				t.Errorf("%s: near matches %v (%s)", to, near, e.Message)
			}
		}
		unknown, off := try("zzz@nowhere", ""), try("gone@acme", "")
		if unknown.Details["near_matches"] != nil || strings.ReplaceAll(unknown.Message, "zzz@nowhere", "gone@acme") != off.Message {
			t.Errorf("a disabled agent is told from an unknown one: %q, %q", unknown.Message, off.Message)
		}
		if n := stored(f); n != 0 {
			t.Fatalf("%d handoffs were stored", n)
		}
		send(f, anna, hub.CreateInput{To: "frank@acme", IdempotencyKey: "k"}) // a refusal uses no key up
	})
}

func TestHandlesCompareWithoutCaseAndAreShownAsRegistered(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("Frank.O-Neil@Acme")
		out := send(f, anna, hub.CreateInput{To: "fRANK.o-nEIL@aCME"})
		if out.Recipient != "fRANK.o-nEIL@aCME" {
			t.Errorf("recipient %q, want it as it came", out.Recipient)
		}
		thread := view(f, anna, out.ThreadID)
		if got := thread.Party(frank.Actor.ID).Handle; got != "Frank.O-Neil@Acme" {
			t.Errorf("shown as %q", got)
		}
		accept(f, frank, out.ThreadID)
	})
}

func TestOnlyAHandleOfATeammateIsAddressed(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank")
	for _, to := range []string{"", "frank", "me", "operator", "a@b@c", "@acme", "anna@", "fr ank@acme", "frank@acme\n", strings.Repeat("a", 252) + "@acme"} {
		_, err := f.Hub.Create(bg, anna, hub.CreateInput{To: to, Intent: handoff.Inform, Summary: "s"})
		if handoff.CodeOf(err) != handoff.CodeInvalidParams {
			t.Errorf("%q: %v", to, err)
		}
	}
}

func TestAHandleIsReservedDottedOrGivenOutOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("Frank@acme")
		f.Agent("admin@acme")
		disable(f, "frank@ACME")
		for _, handle := range []string{"me", "Hub", "OPERATOR", "admin", "person", "anonymous", "a..b@acme", "a@b..c", ".a@acme", "frank@ACME", "", "a b", "019236d0-1111-7abc-8def-0123456789ab"} {
			_, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: handle})
			e := hubtest.WantCode(t, err, handoff.CodeInvalidParams)
			if e.Details["field"] != "handle" {
				t.Errorf("%q: %v", handle, e.Details)
			}
		}
	})
}

func action() *handoff.ProposedAction {
	return &handoff.ProposedAction{Description: "rename it", TargetFiles: []string{"main.go"}, Rationale: "clearer"}
}

func TestAnActionComesWithItsIntentAndOnlyWithIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		frank := f.Agent("frank@acme")
		for _, in := range []hub.CreateInput{
			{Intent: handoff.ProposeAction}, {Intent: handoff.Inform, ProposedAction: action()}, {Intent: handoff.AskQuestion, ProposedAction: action()},
		} {
			in.To, in.Summary, in.IdempotencyKey = "frank@acme", "s", "k"
			_, err := f.Hub.Create(bg, anna, in)
			hubtest.WantCode(t, err, handoff.CodeInvalidIntentPayload)
		}
		if got := inbox(f, frank, hub.InboxInput{}); stored(f) != 0 || len(got.Items) != 0 || got.UnreadTotal != 0 {
			t.Fatalf("something was written: %+v", got)
		}
		out := send(f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, ProposedAction: action(), IdempotencyKey: "k"})
		if got := accept(f, frank, out.ThreadID).Handoff.ProposedAction; got == nil || got.Description != "rename it" {
			t.Fatalf("the action: %+v", got)
		}
	})
}

func TestAHubOfTheFirstProtocolRefusesActions(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.NoProposedActions, c.PublicURL = true, "" }))
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	_, err := f.Hub.Create(bg, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, Summary: "s", ProposedAction: action()})
	hubtest.WantCode(t, err, handoff.CodeInvalidIntentPayload)
	out := send(f, anna, hub.CreateInput{To: "frank@acme"})
	if out.InboxURL != "/inbox/"+out.ThreadID {
		t.Errorf("without a public URL the link is the path alone, not %q", out.InboxURL)
	}
}

func TestADiffIsKeptAsItIsWithAWarning(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		for diff, want := range map[string]string{
			"":                       "",
			diffOf("main.go"):        "",
			diffOf("other<&>.go"):    "target_files",
			"just do it, <please> &": "does not parse",
		} {
			a := action()
			a.SuggestedDiff = diff
			out := send(f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, ProposedAction: a})
			if (out.Warning == "") != (want == "") || !strings.Contains(out.Warning, want) {
				t.Errorf("%q: warning %q, want %q", diff, out.Warning, want)
			}
			if got := view(f, anna, out.ThreadID).Handoff.ProposedAction.SuggestedDiff; got != diff {
				t.Errorf("kept as %q instead of %q", got, diff)
			}
		}
	})
}

func TestWhatACreateCarriesIsBounded(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	deep := json.RawMessage(strings.Repeat(`{"a":`, 17) + "1" + strings.Repeat("}", 17))
	tests := []struct {
		field string
		in    hub.CreateInput
		want  handoff.Code
	}{
		{"summary", hub.CreateInput{}, handoff.CodeInvalidParams},
		{"summary", hub.CreateInput{Summary: strings.Repeat("a", 64<<10+1)}, handoff.CodeContentTooLarge},
		{"summary", hub.CreateInput{Summary: "a\x00b"}, handoff.CodeInvalidParams},
		{"summary", hub.CreateInput{Summary: "a\xffb"}, handoff.CodeInvalidParams},
		{"question", hub.CreateInput{Summary: "s", Question: strings.Repeat("a", 8<<10+1)}, handoff.CodeContentTooLarge},
		{"intent", hub.CreateInput{Summary: "s", Intent: "demand"}, handoff.CodeInvalidParams},
		{"metadata", hub.CreateInput{Summary: "s", Metadata: json.RawMessage(`[1]`)}, handoff.CodeInvalidParams},
		{"metadata", hub.CreateInput{Summary: "s", Metadata: json.RawMessage(`{"a":"\ud800"}`)}, handoff.CodeInvalidParams},
		{"metadata", hub.CreateInput{Summary: "s", Metadata: deep}, handoff.CodeContentTooLarge},
		{"metadata", hub.CreateInput{Summary: "s", Metadata: json.RawMessage(`{"a":"` + strings.Repeat("a", 16<<10) + `"}`)}, handoff.CodeContentTooLarge},
		{"artifacts", hub.CreateInput{Summary: "s", Artifacts: make([]json.RawMessage, 51)}, handoff.CodeContentTooLarge},
		{"artifacts[0].url", hub.CreateInput{Summary: "s", Artifacts: []json.RawMessage{json.RawMessage(`{"type":"link","url":"file:///etc/passwd"}`)}}, handoff.CodeInvalidParams},
		{"expires_in_seconds", hub.CreateInput{Summary: "s", ExpiresIn: 59}, handoff.CodeInvalidParams},
		{"expires_in_seconds", hub.CreateInput{Summary: "s", ExpiresIn: -1}, handoff.CodeInvalidParams},
		{"expires_in_seconds", hub.CreateInput{Summary: "s", ExpiresIn: 31_536_001}, handoff.CodeInvalidParams},
	}
	for _, test := range tests {
		test.in.To = "frank@acme"
		if test.in.Intent == "" {
			test.in.Intent = handoff.Inform
		}
		_, err := f.Hub.Create(bg, anna, test.in)
		if e := hubtest.WantCode(t, err, test.want); e.Details["field"] != test.field {
			t.Errorf("%s: %v (%s)", test.field, e.Details["field"], e.Message)
		}
	}
	if n := stored(f); n != 0 {
		t.Fatalf("%d handoffs were stored", n)
	}
	for _, seconds := range []int64{60, 31_536_000} {
		send(f, anna, hub.CreateInput{To: "frank@acme", Summary: strings.Repeat("a", 64<<10), ExpiresIn: seconds})
	}
}

func TestTheQuestionStandsInTheMetadataOverTheCallersOwn(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		out := send(f, anna, hub.CreateInput{To: "frank@acme", Question: "Why <so>?", Metadata: json.RawMessage(`{"question":"mine","n":12345678901234567890.10}`)})
		var got struct {
			Question string      `json:"question"`
			N        json.Number `json:"n"`
		}
		noError(t, json.Unmarshal(accept(f, frank, out.ThreadID).Handoff.Metadata, &got))
		if got.Question != "Why <so>?" || got.N != "12345678901234567890.10" {
			t.Fatalf("metadata: %+v", got)
		}
	})
}

func TestADeadlineIsJudgedByTheClockWithoutASweep(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		in := hub.CreateInput{To: "frank@acme", ExpiresIn: 60, IdempotencyKey: "k"}
		id := send(f, anna, in).ThreadID
		taken := send(f, anna, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		accept(f, frank, taken)
		f.Clock.Advance(61 * time.Second)

		if got := view(f, anna, id).Handoff; got.State != handoff.Expired || !got.UpdatedAt.Equal(got.ExpiresAt) {
			t.Errorf("viewed as %s, updated %v", got.State, got.UpdatedAt)
		}
		if again := send(f, anna, in); again.ThreadID != id || again.Status != "expired" || !again.Replay {
			t.Errorf("replayed: %+v", again)
		}
		if got := inbox(f, frank, hub.InboxInput{Statuses: []string{"pending"}}); len(got.Items) != 0 {
			t.Errorf("still pending: %v", ids(got))
		}
		if got := inbox(f, anna, hub.InboxInput{Statuses: []string{"expired"}}); len(got.Items) != 1 || got.Items[0].Handoff.ID != id || got.Items[0].Handoff.State != handoff.Expired {
			t.Errorf("expired: %v", ids(got))
		}
		_, err := f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		_, err = f.Hub.Cancel(bg, anna, hub.CancelInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		_, err = f.Hub.Send(bg, anna, hub.SendInput{ThreadID: id, Body: "?"})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		complete(f, frank, taken) // a deadline is for what nobody took

		n, err := f.Hub.Sweep(bg)
		noError(t, err)
		again, err := f.Hub.Sweep(bg)
		noError(t, err)
		if n != 1 || again != 0 {
			t.Fatalf("swept %d, then %d", n, again)
		}
		if got := eventsOf(f, id); got[len(got)-1] != handoff.EventExpired || len(got) != 2 {
			t.Fatalf("events %v", got)
		}
		for _, call := range []hub.Call{anna, frank} {
			if got := inbox(f, call, hub.InboxInput{Statuses: []string{"expired"}}).Items; len(got) != 1 || got[0].News[len(got[0].News)-1] != handoff.EventExpired {
				t.Errorf("%s was not told: %+v", call.Actor.Handle, got)
			}
		}
	})
}

func diffOf(files ...string) string {
	var b strings.Builder
	for _, name := range files {
		b.WriteString("diff --git a/" + name + " b/" + name + "\n--- a/" + name + "\n+++ b/" + name + "\n@@ -1 +1 @@\n-old\n+new <b> & co\n")
	}
	return b.String()
}
