package store_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

func TestAnUpdatedAgentKeepsItsHandleAndGivesItsWordsToTheCatalog(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		ctx := context.Background()
		was := store.AgentRow{Email: "a@b", Agent: handoff.Agent{ID: newID("Agent"), Handle: "Anna@acme", Name: "Anna", Skills: []string{"go"}, Capabilities: []string{"review"}, Tags: map[string][]string{"team": {"x"}}}}
		now := store.AgentRow{Email: "c@d", CreatedAt: noon, Agent: handoff.Agent{
			ID: was.ID, Handle: "other@acme", Name: "A.", Role: "lead", Repos: []string{"acme/api"}, Capabilities: []string{"deploy"}, Tags: map[string][]string{"region": {"eu", "us"}}, Unlisted: true,
		}}
		must(t, f.Write(ctx, func(tx *store.Tx) error { return tx.InsertAgent(&was, noon) }))
		must(t, f.Write(ctx, func(tx *store.Tx) error {
			if _, err := tx.LockAgent("ANNA@ACME"); err != nil {
				return err
			}
			return tx.UpdateAgent(&now, noon.Add(time.Hour))
		}))
		read := func() (got store.AgentRow, catalog []string) {
			must(t, f.Read(ctx, func(tx *store.Tx) (err error) {
				if got, err = tx.AgentByHandle("anna@acme"); err != nil {
					return err
				}
				if catalog, err = tx.Texts(`SELECT kind || ' ' || name FROM catalog ORDER BY kind, name`); err != nil {
					return err
				}
				if err := tx.WithLabels(&got); err != nil {
					return err
				}
				return tx.WithEmail(&got)
			}))
			return got, catalog
		}
		got, catalog := read()
		now.Handle = "Anna@acme"
		if !reflect.DeepEqual(got, now) || !slices.Equal(catalog, []string{"capability deploy", "capability review", "tag region", "tag team", "tag_value region=eu", "tag_value region=us", "tag_value team=x"}) {
			t.Errorf("%+v\nwant %+v\ncatalog %q", got, now, catalog)
		}
		now.Email = ""
		must(t, f.Write(ctx, func(tx *store.Tx) error { return tx.UpdateAgent(&now, noon) }))
		if got, _ := read(); got.Email != "" {
			t.Errorf("the address is still %s", got.Email)
		}
	})
}

func TestAnInviteIsReadBackAndMarkedOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		ctx := context.Background()
		want := store.Invite{ID: newID("Invite"), Handle: "anna@acme", Name: "Anna", Role: "lead", InviterID: "operator", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour)}
		older := store.Invite{ID: newID("Invite"), Handle: "frank@acme", InviterID: "operator", CreatedAt: noon.Add(-time.Hour), ExpiresAt: noon}
		must(t, f.Write(ctx, func(tx *store.Tx) error {
			must(t, tx.InsertInvite(&older))
			return tx.InsertInvite(&want)
		}))
		must(t, f.Read(ctx, func(tx *store.Tx) error {
			list, err := tx.Invites()
			if !reflect.DeepEqual(list, []store.Invite{want, older}) {
				t.Errorf("%+v", list)
			}
			return err
		}))
		redeem := func() error {
			return f.Write(ctx, func(tx *store.Tx) error { return tx.RedeemInvite(want.ID, "agent", noon.Add(time.Minute)) })
		}
		must(t, redeem())
		if redeem() == nil {
			t.Error("it was redeemed twice")
		}
		if f.Write(ctx, func(tx *store.Tx) error { return tx.DeleteInvite(want.ID) }) == nil {
			t.Error("a used one was taken back")
		}
		must(t, f.Write(ctx, func(tx *store.Tx) error { return tx.DeleteInvite(older.ID) }))
		want.AgentID, want.RedeemedAt = "agent", noon.Add(time.Minute)
		must(t, f.Write(ctx, func(tx *store.Tx) error {
			got, err := tx.LockInvite(want.ID)
			if got != want {
				t.Errorf("%+v", got)
			}
			if _, err := tx.LockInvite(older.ID); !store.IsNoRows(err) {
				t.Errorf("the other is still there: %v", err)
			}
			return err
		}))
	})
}
