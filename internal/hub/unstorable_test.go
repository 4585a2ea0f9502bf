package hub_test

import (
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestANameThatNoRowCanHoldIsNotFoundByTheOperatorOnEitherDatabase(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		op := hubtest.Operator()
		for _, bad := range []string{"a\x00b@c", "a\xff@c"} {
			for verb, call := range map[string]func() error{
				"reassign": func() error {
					_, err := f.Hub.Reassign(bg, op, hub.ReassignInput{ThreadID: id, To: bad, Reason: "r"})
					return err
				},
				"revoke an invite": func() error { return f.Hub.RevokeInvite(bg, op, bad) },
				"revoke a key":     func() error { return f.Hub.RevokeKey(bg, op, bad) },
				"show a draft":     func() error { _, err := f.Hub.FindDraft(bg, op, bad); return err },
				"decide a draft": func() error {
					_, err := f.Hub.DecideDraft(bg, op, hub.DecideInput{DraftID: bad, Approve: true})
					return err
				},
				"disable": func() error { return f.Hub.SetDisabled(bg, op, bad, true) },
			} {
				if code := handoff.CodeOf(call()); code != handoff.CodeNotFound && code != handoff.CodeRecipientNotFound {
					t.Errorf("%s %q: %s", verb, bad, code)
				}
			}
		}
	})
}
