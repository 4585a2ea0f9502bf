package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

func TestAgentIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		rapid.Check(t, func(rt *rapid.T) {
			id := newID("Agent")
			want := store.AgentRow{Agent: handoff.Agent{
				ID: id, Handle: id + "@ACME", Name: someText.Draw(rt, "name"), Role: someText.Draw(rt, "role"), Skills: someTexts.Draw(rt, "skills"), Repos: someTexts.Draw(rt, "repos"),
				Capabilities: []string{"a " + someText.Draw(rt, "capability"), "b"}, Tags: map[string][]string{"team": {"x", "y"}, "t" + someText.Draw(rt, "tag"): {someText.Draw(rt, "value")}},
				Unlisted: rapid.Bool().Draw(rt, "unlisted"),
			}, Email: "someone@example.com"}
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertAgent(&want, noon) }))
			want.Email, want.CreatedAt = "", noon // kept apart, so that it can be erased
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				got, err := tx.AgentByHandle(strings.ToUpper(want.Handle))
				must(rt, err)
				must(rt, tx.WithLabels(&got))
				wantSame(rt, "by its handle in another case", got, want)
				bare := want
				bare.Capabilities, bare.Tags = nil, nil
				got, err = tx.Agent(id)
				must(rt, err)
				wantSame(rt, "by its id", got, bare)
				names, err := tx.Names([]string{id, "none"})
				wantSame(rt, "its names", names, map[string]handoff.Agent{id: bare.Agent})
				email, err2 := tx.Texts(`SELECT email FROM contacts WHERE subject_id = '` + id + `'`)
				wantSame(rt, "its address", email, []string{"someone@example.com"})
				return errors.Join(err, err2)
			}))
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.SetDisabled(id, true, noon) }))
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				got, err := tx.Agent(id)
				if !got.Disabled {
					rt.Error("it is not disabled")
				}
				return err
			}))
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.SetDisabled(id, false, noon) }))
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				got, err := tx.Agent(id)
				if got.Disabled {
					rt.Error("it is still disabled")
				}
				return err
			}))
		})
		f.read(func(tx *store.Tx) error {
			agents, err := tx.Agents()
			if !slices.IsSortedFunc(agents, func(a, b store.AgentRow) int {
				return strings.Compare(handoff.FoldHandle(a.Handle), handoff.FoldHandle(b.Handle))
			}) {
				t.Error("agents do not come in the order of their handles")
			}
			none, err2 := tx.Names(nil)
			wantSame(t, "the names of nobody", none, map[string]handoff.Agent{})
			for _, ask := range []func(string) (store.AgentRow, error){tx.Agent, tx.AgentByHandle} {
				if _, err := ask("none"); handoff.CodeOf(err) != handoff.CodeNotFound {
					t.Errorf("no agent gives %v", err)
				}
			}
			return errors.Join(err, err2)
		})
		f.write(add("Taken@acme"))
		wantUnavailable(t, "a handle that is taken in another case", f.Write(context.Background(), add("tAKEN@acme")), nothing)
	})
}

func TestKeysAndTheirUse(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("owner"))
		f.write(add("other"))
		keys := []store.Key{
			{ID: "k1", AgentID: "owner", Hash: "hash1", Hint: "hc_live_ab", Label: "laptop 💻", CreatedAt: noon},
			{ID: "k2", AgentID: "owner", Hash: "hash2", Hint: "hc_live_cd", CreatedAt: noon.Add(-time.Hour)},
			{ID: "k3", AgentID: "other", Hash: "hash3", CreatedAt: noon},
		}
		f.write(func(tx *store.Tx) error {
			var errs []error
			for i := range keys {
				errs = append(errs, tx.InsertKey(&keys[i]))
			}
			return errors.Join(errs...)
		})
		read := func(want store.Key) store.AgentRow {
			t.Helper()
			var agent store.AgentRow
			f.read(func(tx *store.Tx) error {
				byHash, a1, err := tx.KeyByHash(want.Hash)
				byID, a2, err2 := tx.KeyByID(want.ID)
				wantSame(t, "by its hash", byHash, want)
				wantSame(t, "by its id", byID, want)
				wantSame(t, "its agent", a1, a2)
				agent = a1
				return errors.Join(err, err2)
			})
			return agent
		}
		if a := read(keys[0]); a.ID != "owner" || !a.LastSeenAt.IsZero() {
			t.Errorf("the key's agent is %+v", a)
		}
		f.read(func(tx *store.Tx) error {
			list, err := tx.Keys("owner")
			wantSame(t, "the owner's keys, oldest first", list, []store.Key{keys[1], keys[0]})
			for _, ask := range []func(string) (store.Key, store.AgentRow, error){tx.KeyByHash, tx.KeyByID} {
				if _, _, err := ask("none"); !store.IsNoRows(err) {
					t.Errorf("no key gives %v", err)
				}
			}
			return err
		})
		touch := func(at time.Time) { f.write(func(tx *store.Tx) error { return tx.Touch("k1", "owner", at) }) }
		touch(noon.Add(time.Minute))
		touch(noon) // a late note of an earlier use
		keys[0].LastUsedAt = noon.Add(time.Minute)
		if a := read(keys[0]); !a.LastSeenAt.Equal(noon.Add(time.Minute)) {
			t.Errorf("the agent was last seen %v", a.LastSeenAt)
		}
		revoke := func(at time.Time) { f.write(func(tx *store.Tx) error { return tx.RevokeKey("k1", at) }) }
		revoke(noon.Add(2 * time.Minute))
		revoke(noon.Add(3 * time.Minute))
		keys[0].RevokedAt = noon.Add(2 * time.Minute)
		read(keys[0])
		read(keys[2])
		wantUnavailable(t, "a key of nobody", f.Write(context.Background(), func(tx *store.Tx) error {
			return tx.InsertKey(&store.Key{ID: "k4", AgentID: "nobody", Hash: "hash4"})
		}), nothing)
		wantUnavailable(t, "a hash that is taken", f.Write(context.Background(), func(tx *store.Tx) error {
			return tx.InsertKey(&store.Key{ID: "k5", AgentID: "owner", Hash: "hash1"})
		}), nothing)
	})
}

func TestBlocksAndReach(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("sender"))
		f.write(func(tx *store.Tx) error {
			return tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: "r-id", Handle: "Frank@ACME", Name: "Frank", Role: "dev", Skills: []string{"go"}, Repos: []string{"r"}, Unlisted: true}}, noon)
		})
		op := store.Operation{Actor: "sender", Verb: "create", Key: "key"}
		const recipient = "r-id"
		reach := func(what string, op store.Operation, handle string, want store.Reach) {
			t.Helper()
			f.read(func(tx *store.Tx) error {
				got, err := tx.Reach(op, handle)
				wantSame(t, what, got, want)
				e, found, err2 := tx.Effect(op)
				wantSame(t, what+": the effect", store.Reach{Effect: e, Found: found}, store.Reach{Effect: want.Effect, Found: want.Found})
				return errors.Join(err, err2)
			})
		}
		reach("a recipient", op, "fRANK@acme", store.Reach{RecipientID: recipient})
		reach("nobody", op, "nobody@acme", store.Reach{})
		block := func(reason string) {
			f.write(func(tx *store.Tx) error { return tx.InsertBlock("r-id", "sender", reason, noon) })
		}
		block("noise")
		block("again")
		f.read(func(tx *store.Tx) error {
			one, err := tx.Blocked("r-id", "sender")
			other, err2 := tx.Blocked("sender", "r-id")
			if !one || other {
				t.Errorf("blocked: %v, the other way round: %v", one, other)
			}
			return errors.Join(err, err2)
		})
		reach("a recipient that blocks the sender", op, "frank@acme", store.Reach{RecipientID: recipient, Blocked: true})
		f.write(func(tx *store.Tx) error { return tx.DeleteBlock("r-id", "sender") })
		f.write(func(tx *store.Tx) error { return tx.DeleteBlock("r-id", "sender") })
		e := store.Effect{Fingerprint: "print", HandoffID: "h", RefID: "m", Epoch: 7}
		f.write(func(tx *store.Tx) error { return tx.InsertEffect(op, e, noon) })
		reach("what was done before", op, "frank@acme", store.Reach{RecipientID: recipient, Effect: e, Found: true})
		reach("what was done before, to nobody", op, "gone@acme", store.Reach{Effect: e, Found: true})
		for _, other := range []store.Operation{
			{Actor: "r-id", Verb: op.Verb, Key: op.Key},
			{Actor: op.Actor, Verb: "other", Key: op.Key},
			{Actor: op.Actor, Verb: op.Verb, Key: "KEY"},
			{Actor: op.Actor, Verb: op.Verb},
		} {
			reach(fmt.Sprintf("another effect: %+v", other), other, "frank@acme", store.Reach{RecipientID: recipient})
		}
		wantUnavailable(t, "the same key again", f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertEffect(op, e, noon) }), nothing)
		f.write(func(tx *store.Tx) error { return tx.SetDisabled("r-id", true, noon) })
		reach("a recipient that was disabled", store.Operation{Actor: "sender", Verb: "create"}, "frank@acme", store.Reach{})
		// No key: nothing is kept, however often.
		f.write(func(tx *store.Tx) error {
			none := store.Operation{Actor: "sender", Verb: "create"}
			return errors.Join(tx.InsertEffect(none, e, noon), tx.InsertEffect(none, e, noon))
		})
	})
}

func TestOldKeysArePurgedInChunksAndInitiationsAreKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		op := func(verb string, i int) store.Operation {
			return store.Operation{Actor: "a", Verb: verb, Key: fmt.Sprint(i)}
		}
		f.write(func(tx *store.Tx) error {
			var errs []error
			for i := range 10 {
				errs = append(errs, tx.InsertEffect(op("create", i), store.Effect{Fingerprint: "p"}, noon.Add(time.Duration(i)*time.Hour)))
			}
			return errors.Join(append(errs, tx.InsertEffect(op("initiate", 0), store.Effect{Fingerprint: "p"}, noon))...)
		})
		left := func() (n int) {
			f.read(func(tx *store.Tx) error {
				for i := range 10 {
					if _, found, err := tx.Effect(op("create", i)); err != nil {
						return err
					} else if found {
						n++
					}
				}
				_, found, err := tx.Effect(op("initiate", 0))
				if !found {
					t.Error("what initiated a handoff was forgotten")
				}
				return err
			})
			return n
		}
		for _, want := range []int{6, 4, 4} { // six are older than six hours
			f.write(func(tx *store.Tx) error { return tx.PurgeEffects(noon.Add(6*time.Hour), 4) })
			if n := left(); n != want {
				t.Errorf("%d keys are left, want %d", n, want)
			}
		}
	})
}

func TestSettingKeepsItsFirstValue(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for _, fresh := range []string{"first", "second"} {
			f.write(func(tx *store.Tx) error {
				v, err := tx.SettingOrNew("name", fresh)
				if v != "first" {
					t.Errorf("it is %q", v)
				}
				return err
			})
		}
	})
}

func TestNoticesAreCountedAndCleared(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		h := aHandoff("h")
		f.write(func(tx *store.Tx) error {
			return errors.Join(tx.InsertHandoff(h),
				tx.InsertNotice("frank", h, 2, 1, handoff.EventMessageCreated, noon),
				tx.InsertNotice("frank", h, 1, 0, handoff.EventCreated, noon),
				tx.InsertNotice("anna", h, 3, 2, handoff.EventMessageCreated, noon))
		})
		want := func(notices []store.Notice, unread int) {
			t.Helper()
			f.read(func(tx *store.Tx) error {
				list, err := tx.Notices("frank", h)
				n, err2 := tx.UnreadTotal("frank")
				wantSame(t, "the notices", list, notices)
				if n != unread {
					t.Errorf("%d unread, want %d", n, unread)
				}
				return errors.Join(err, err2)
			})
		}
		created := store.Notice{HandoffID: "h", EventSeq: 1, Type: handoff.EventCreated}
		message := store.Notice{HandoffID: "h", EventSeq: 2, SequenceNo: 1, Type: handoff.EventMessageCreated}
		want([]store.Notice{created, message}, 1)
		f.write(func(tx *store.Tx) error { return tx.ClearNotice("frank", h, 2) })
		want([]store.Notice{created}, 0)
		f.write(func(tx *store.Tx) error { return tx.ClearNotice("frank", h, 1) })
		f.write(func(tx *store.Tx) error { return tx.ClearNotice("frank", h, 1) })
		want(nil, 0)
		f.read(func(tx *store.Tx) error {
			n, err := tx.UnreadTotal("anna")
			if n != 1 {
				t.Errorf("another's notices were touched: %d", n)
			}
			return err
		})
	})
}

func TestDueHeldAndFetchedHandoffsAreFound(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		insert := func(id string, change func(*handoff.Handoff)) {
			h := aHandoff(id)
			change(h)
			f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		}
		claimed := func(lease time.Time, state handoff.State) func(*handoff.Handoff) {
			return func(h *handoff.Handoff) { h.State, h.Holder, h.LeaseExpiresAt = state, "frank", lease }
		}
		deadline := func(at time.Time, state handoff.State) func(*handoff.Handoff) {
			return func(h *handoff.Handoff) { h.State, h.ExpiresAt, h.CreatedAt = state, at, noon }
		}
		insert("lapsed", claimed(noon, handoff.Claimed))
		insert("leased", claimed(noon.Add(time.Microsecond), handoff.Claimed))
		insert("unleased", claimed(time.Time{}, handoff.Claimed))
		insert("verifying", claimed(time.Time{}, handoff.Verifying))
		insert("done", claimed(noon, handoff.Completed))
		insert("past", deadline(noon, handoff.Open))
		insert("coming", deadline(noon.Add(time.Microsecond), handoff.Open))
		insert("timeless", deadline(time.Time{}, handoff.Open))
		insert("over", deadline(noon, handoff.Expired))
		f.read(func(tx *store.Tx) error {
			due, err := tx.Due(noon, 10)
			slices.Sort(due)
			wantSame(t, "what is due", due, []string{"lapsed", "past"})
			one, err2 := tx.Due(noon, 1)
			if len(one) != 1 {
				t.Errorf("%v came for a limit of one", one)
			}
			held, err3 := tx.HeldBy("frank")
			wantSame(t, "what is held", held, []string{"lapsed", "leased", "unleased", "verifying"})
			st, err4 := tx.Stats()
			if !st.OldestUnfetched.Equal(noon) {
				t.Errorf("the oldest unfetched is of %v", st.OldestUnfetched)
			}
			wantSame(t, "the counts", st.States, []store.StateCount{
				{Door: "team", State: "claimed", Count: 3},
				{Door: "team", State: "completed", Count: 1},
				{Door: "team", State: "expired", Count: 1},
				{Door: "team", State: "open", Count: 3},
				{Door: "team", State: "verifying", Count: 1},
			})
			return errors.Join(err, err2, err3, err4)
		})
		f.write(func(tx *store.Tx) error {
			return errors.Join(tx.MarkFetched("recipient", []string{"past", "coming", "none"}, noon), tx.MarkFetched("other", []string{"timeless"}, noon))
		})
		f.write(func(tx *store.Tx) error { return tx.MarkFetched("recipient", []string{"past"}, noon.Add(time.Hour)) })
		f.read(func(tx *store.Tx) error {
			for id, want := range map[string]time.Time{"past": noon, "coming": noon, "timeless": {}} {
				if h, err := tx.Handoff(id); err != nil || !h.FetchedAt.Equal(want) {
					t.Errorf("%s was fetched at %v (%v), want %v", id, h.FetchedAt, err, want)
				}
			}
			if _, err := tx.Handoff("none"); handoff.CodeOf(err) != handoff.CodeNotFound {
				t.Errorf("no handoff gives %v", err)
			}
			return nil
		})
		if err := f.Write(context.Background(), func(tx *store.Tx) error { _, err := tx.LockHandoff("none"); return err }); handoff.CodeOf(err) != handoff.CodeNotFound {
			t.Errorf("locking no handoff gives %v", err)
		}
	})
}
