package hub_test

import (
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestAnAgentIsToldOutsideThatItsInboxHasNewsAndNotWhatItSays(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		box := f.Post(f.Hub, nil)
		set, err := f.Hub.SetNotify(bg, hubtest.Operator(), "Frank@acme", hub.NotifyInput{Webhook: "https://ci.example.com/hook", Email: "frank@example.com"})
		noError(t, err)
		if len(set.Channels) != 2 || set.Handle != "frank@acme" || !strings.HasPrefix(set.Channels[1].Secret, "whsec_") || set.Channels[0].Secret != "" {
			t.Fatalf("%+v", set)
		}
		id := send(f, anna, hub.CreateInput{To: "frank@acme", Summary: "SECRET words"}).ThreadID
		arrived := func(n int) []handoff.Notification {
			t.Helper()
			eventually(t, "he is told", func() bool { return len(box.All()) >= n })
			return box.All()
		}
		all := arrived(2)
		for _, n := range all {
			if n.Kind != handoff.NotifyNews || n.Event != handoff.EventCreated || n.Status != "pending" || n.Sender != "anna@acme" || n.Link != "https://hub.example/inbox/"+id ||
				strings.Contains(n.Reason+n.Body, "SECRET") || (n.Channel == handoff.ChannelWebhook) != (n.To == "https://ci.example.com/hook" && n.Secret == set.Channels[1].Secret) {
				t.Errorf("he gets %+v", n)
			}
		}
		before := look(f, id).Handoff
		accept(f, frank, id)
		say(f, frank, id, "hello")
		say(f, anna, id, "and back")
		arrived(4)
		complete(f, frank, id)
		if after := look(f, id).Handoff; after.EventSeq != before.EventSeq+4 {
			t.Errorf("what was sent of it stands in its log: %d events after %d", after.EventSeq, before.EventSeq)
		}
		off, err := f.Hub.SetNotify(bg, hubtest.Operator(), "frank@acme", hub.NotifyInput{Off: true})
		noError(t, err)
		send(f, anna, hub.CreateInput{To: "frank@acme"})
		if n := len(box.All()); len(off.Channels) != 0 || n != 4 {
			t.Errorf("after it was turned off: %+v, %d", off, n)
		}
	}, hubtest.WithMail())
}

// What follows a notification that has not gone out yet changes what that one names; what follows one
// that has gets one of its own.
func TestTheLastNewsIsToldWhateverWasTakenMeanwhile(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "anna@acme", hub.NotifyInput{Webhook: "https://ci.example.com/hook"})
		noError(t, err)
		taken := func() (list []string) {
			t.Helper()
			out, err := f.Hub.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelWebhook}, 10)
			noError(t, err)
			for _, n := range out {
				list = append(list, string(n.Event)+" "+n.Status)
				noError(t, f.Hub.ReportDelivery(bg, &n, handoff.Outcome{Kind: handoff.OutcomeSent}))
			}
			return list
		}
		want := func(got []string, want ...string) {
			t.Helper()
			if strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("she is told %q, want %q", got, want)
			}
		}
		quick := send(f, anna, hub.CreateInput{To: "frank@acme"}).ThreadID
		accept(f, frank, quick)
		complete(f, frank, quick)
		want(taken(), "handoff.completed completed")
		slow := send(f, anna, hub.CreateInput{To: "frank@acme"}).ThreadID
		accept(f, frank, slow)
		want(taken(), "handoff.claimed accepted")
		complete(f, frank, slow)
		want(taken(), "handoff.completed completed")
		between := send(f, anna, hub.CreateInput{To: "frank@acme"}).ThreadID
		accept(f, frank, between)
		under, err := f.Hub.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelWebhook}, 10) // and its outcome is not known when the next event comes
		noError(t, err)
		complete(f, frank, between)
		if len(under) != 1 || under[0].Event != handoff.EventClaimed || under[0].Status != "accepted" {
			t.Errorf("under way is %+v", under)
		}
		want(taken(), "handoff.completed completed")
	})
}

func TestNoEndIsLostAmongNewsThatGoOutMeanwhile(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "anna@acme", hub.NotifyInput{Webhook: "https://ci.example.com/hook"})
		noError(t, err)
		box := f.Post(f.Hub, nil)
		var work sync.WaitGroup
		ids := map[string]bool{}
		for range 10 {
			id := send(f, anna, hub.CreateInput{To: "frank@acme"}).ThreadID
			ids[id] = true
			work.Go(func() {
				accept(f, frank, id)
				say(f, frank, id, "on it")
				complete(f, frank, id)
			})
		}
		work.Wait()
		eventually(t, "she is told of every end", func() bool {
			ended := map[string]bool{}
			for _, n := range box.All() {
				if n.Event == handoff.EventCompleted && n.Status == "completed" {
					ended[n.HandoffID] = true
				} else if n.Event == handoff.EventCompleted || n.Status == "completed" {
					t.Errorf("%s with the status %s", n.Event, n.Status)
				}
			}
			return len(ended) == len(ids)
		})
	})
}

func TestOddPlacesToBeToldAtAreRefused(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	f.Agent("frank@acme")
	for name, in := range map[string]hub.NotifyInput{
		"nothing": {}, "both": {Off: true, Slack: "https://x.example"}, "a scheme": {Webhook: "ftp://x.example/SECRET_MARK"}, "a user": {Webhook: "https://u:SECRET_MARK@x.example"},
		"no host": {Slack: "https:///SECRET_MARK"}, "a fragment": {Slack: "https://x.example/#SECRET_MARK"},
	} {
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "frank@acme", in)
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); strings.Contains(e.Error(), "SECRET_MARK") {
			t.Errorf("%s: %v", name, e)
		}
	}
	_, err := f.Hub.SetNotify(bg, f.Agent("anna@acme"), "frank@acme", hub.NotifyInput{Off: true})
	hubtest.WantCode(t, err, handoff.CodePermissionDenied)
}
