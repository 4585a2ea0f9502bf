package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// What is written is read back the same, every column, on both databases.

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// onEachAtNoon is onEach with a clock that stands still.
func onEachAtNoon(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, kind)
			cfg.Clock = func() time.Time { return noon }
			test(t, open(t, cfg))
		})
	}
}

func wantSame(t rapid.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got, cmp.AllowUnexported(handoff.Target{})))
	}
}

// Generators. Text is whatever may be stored: any Unicode but NUL.
var (
	someText = rapid.Custom(func(t *rapid.T) string {
		return strings.ReplaceAll(strings.ToValidUTF8(rapid.OneOf(
			rapid.StringN(0, 40, -1),
			rapid.SampledFrom([]string{"", "'", `"`, `\`, "$1", "?1", "%s", "<b>&amp;</b>", "שלום", "\u202ereversed", "🤝🏽", "e\u0301", "line\nline\r\n\ttab", "null", "{}", "\u2028"}),
		).Draw(t, "text"), ""), "\x00", "")
	})
	someTime = rapid.Custom(func(t *rapid.T) time.Time {
		us := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 4e15)).Draw(t, "microseconds")
		if us == 0 {
			return time.Time{}
		}
		return time.UnixMicro(us).UTC()
	})
	someNumber = rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 1<<40))
	someObject = rapid.Map(rapid.SampledFrom([]string{"", `{}`, `{"a":1}`, `{ "kept": "as it came" , "n":1.00e2}`, `{"<":"&\u003c"}`, `{"deep":[{"x":null}]}`}),
		func(s string) json.RawMessage {
			if s == "" {
				return nil
			}
			return json.RawMessage(s)
		})
	someValue = rapid.OneOf(someObject, rapid.SampledFrom([]json.RawMessage{json.RawMessage(`null`), json.RawMessage(`"text"`), json.RawMessage(`[1,2]`), json.RawMessage(`0`)}))
	someTexts = rapid.Map(rapid.SliceOfN(someText, 0, 4), func(l []string) []string {
		if len(l) == 0 {
			return nil
		}
		return l
	})
	someArtifacts = rapid.Custom(func(t *rapid.T) []handoff.Artifact {
		raw := rapid.SliceOfN(rapid.SampledFrom([]json.RawMessage{
			json.RawMessage(`{"type":"link","url":"https://example.com/?a=1&b=<2>","title":"T & T"}`),
			json.RawMessage(`{"type":"file_diff","path":"a.go","diff":"--- a\n+++ b\n<>&\u2028"}`),
			json.RawMessage(`{"type":"file_ref","path":"b.go","git_sha":"abc","lines":[1,2],"extra":{"kept":1e2}}`),
			json.RawMessage(`{"type":"test_command","command":"go test","cwd":"x"}`),
			json.RawMessage(`{"type":"api_contract","schema_url":"https://example.com/s","inline":{"a":[1,"\u00e9"]}}`),
		}), 0, 4).Draw(t, "artifacts")
		if len(raw) == 0 {
			return nil
		}
		list, err := handoff.ParseArtifacts("artifacts", raw, handoff.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return list
	})
	someTarget = rapid.Custom(func(t *rapid.T) *handoff.Target {
		text := rapid.SampledFrom([]string{
			"",
			`{"strategy":"direct","agent_id":"frank@acme"}`,
			`{"strategy":"capability","capability":"go"}`,
			`{"strategy":"capability","capability":["go","sql"]}`,
			`{"strategy":"role","role":"reviewer"}`,
			`{"strategy":"tag","selector":{"team":"platform","area":["a","b"]}}`,
			`{"strategy":"tag","selector":[{"key":"team","operator":"In","values":["x"]},{"key":"off","operator":"DoesNotExist"}]}`,
			`{"strategy":"broadcast"}`,
			`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[{"strategy":"capability","capability":"go"}]}]}`,
			`{"strategy":"direct_with_fallback","agent_id":"frank@acme","fallback_after_seconds":60}`,
			`{"strategy":"direct_with_fallback","agent_id":"frank@acme","fallback_after_seconds":60,"fallback":{"strategy":"role","role":"r"}}`,
		}).Draw(t, "target")
		if text == "" {
			return nil
		}
		target, err := handoff.ParseTarget(json.RawMessage(text), handoff.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return target
	})
	someID = rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "anna", "frank", "grace", "operator"}).Draw(t, "id")
	})
)

var serial atomic.Int64

func newID(noun string) string { return fmt.Sprintf("%s-%06d", noun, serial.Add(1)) }

var someHandoff = rapid.Custom(func(t *rapid.T) handoff.Handoff {
	h := handoff.Handoff{
		ID:             newID("handoff"),
		Door:           rapid.SampledFrom([]handoff.Door{handoff.DoorTeam, handoff.DoorPool, handoff.DoorDesk}).Draw(t, "door"),
		State:          rapid.SampledFrom([]handoff.State{handoff.Open, handoff.Claimed, handoff.Verifying, handoff.Completed, handoff.Rejected, handoff.Cancelled, handoff.Expired}).Draw(t, "state"),
		Creator:        someID.Draw(t, "creator"),
		Recipient:      someID.Draw(t, "recipient"),
		Holder:         someID.Draw(t, "holder"),
		PastHolders:    someTexts.Draw(t, "past holders"),
		Epoch:          someNumber.Draw(t, "epoch"),
		LeaseLength:    time.Duration(someNumber.Draw(t, "lease")%1e9) * time.Microsecond,
		LeaseExpiresAt: someTime.Draw(t, "lease expires"),

		Intent:      rapid.SampledFrom([]handoff.Intent{"", handoff.Inform, handoff.AskQuestion, handoff.ProposeAction}).Draw(t, "intent"),
		Preview:     someText.Draw(t, "preview"),
		Question:    someText.Draw(t, "question"),
		Metadata:    someObject.Draw(t, "metadata"),
		WorkspaceID: someID.Draw(t, "workspace"),
		Target:      someTarget.Draw(t, "target"),
		Visibility:  rapid.SampledFrom([]handoff.Visibility{handoff.Public, handoff.Eligible, handoff.Private}).Draw(t, "visibility"),
		Priority:    rapid.IntRange(-1, 1).Draw(t, "priority"),
		Payload:     someValue.Draw(t, "payload"),
		Result:      someValue.Draw(t, "result"),
		Criteria:    someTexts.Draw(t, "criteria"),
		DepsPending: someNumber.Draw(t, "pending"),
		DepsFailed:  someNumber.Draw(t, "failed"),
		FallbackAt:  someTime.Draw(t, "fallback"),

		RecipientDeclined: rapid.Bool().Draw(t, "declined"),
		WaitsForReply:     rapid.Bool().Draw(t, "waits"),
		Messages:          someNumber.Draw(t, "messages"),
		EventSeq:          someNumber.Draw(t, "event seq"),
		TraceID:           someText.Draw(t, "trace id"),
		TraceParent:       someText.Draw(t, "traceparent"),

		CreatedAt:           someTime.Draw(t, "created"),
		UpdatedAt:           someTime.Draw(t, "updated"),
		ExpiresAt:           someTime.Draw(t, "expires"),
		FetchedAt:           someTime.Draw(t, "fetched"),
		AcceptedAt:          someTime.Draw(t, "accepted"),
		CompletedAt:         someTime.Draw(t, "completed"),
		EndedBy:             someID.Draw(t, "ended by"),
		EndedReason:         someText.Draw(t, "reason"),
		ResultSummary:       someText.Draw(t, "result summary"),
		CompletionArtifacts: someArtifacts.Draw(t, "completion artifacts"),
	}
	if rapid.Bool().Draw(t, "proposes") {
		h.ProposedAction = &handoff.ProposedAction{Description: someText.Draw(t, "description"), TargetFiles: someTexts.Draw(t, "files"), Rationale: someText.Draw(t, "rationale"), SuggestedDiff: someText.Draw(t, "diff")}
	}
	if rapid.Bool().Draw(t, "verified") {
		h.VerifyBy = &handoff.VerifyBy{Kind: handoff.VerifyByAgent, AgentID: someText.Draw(t, "verifier"), Capability: someText.Draw(t, "capability")}
		h.Verdict = &handoff.Verdict{Pass: rapid.Bool().Draw(t, "pass"), Feedback: someText.Draw(t, "feedback"), VerifiedBy: someID.Draw(t, "verified by"), At: someTime.Draw(t, "verdict at")}
	}
	return h
})

func TestHandoffIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		rapid.Check(t, func(rt *rapid.T) {
			h := someHandoff.Draw(rt, "handoff")
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertHandoff(&h) }))
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				got, err := tx.Handoff(h.ID)
				wantSame(rt, "as it was inserted", got, h)
				if err != nil || h.Target == nil {
					return err
				}
				keys, err := tx.Texts(`SELECT target_key FROM handoff_targets WHERE handoff_id = '` + h.ID + `' ORDER BY target_key`)
				wantSame(rt, "its keys", keys, h.Target.Keys())
				return err
			}))
			// A transition changes these fields and no others.
			now := someHandoff.Draw(rt, "as it is to be")
			want := h
			want.State, want.Holder, want.PastHolders, want.Epoch, want.LeaseLength = now.State, now.Holder, now.PastHolders, now.Epoch, now.LeaseLength
			want.LeaseExpiresAt, want.Result, want.Verdict, want.DepsPending, want.DepsFailed = now.LeaseExpiresAt, now.Result, now.Verdict, now.DepsPending, now.DepsFailed
			want.RecipientDeclined, want.WaitsForReply, want.Messages, want.EventSeq = now.RecipientDeclined, now.WaitsForReply, now.Messages, now.EventSeq
			want.UpdatedAt, want.FetchedAt, want.AcceptedAt, want.CompletedAt = now.UpdatedAt, now.FetchedAt, now.AcceptedAt, now.CompletedAt
			want.EndedBy, want.EndedReason, want.ResultSummary, want.CompletionArtifacts = now.EndedBy, now.EndedReason, now.ResultSummary, now.CompletionArtifacts
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error {
				was, err := tx.LockHandoff(h.ID)
				wantSame(rt, "under its lock", was, h)
				return errors.Join(err, tx.UpdateHandoff(&was, &want))
			}))
			for _, stale := range []handoff.Handoff{{State: want.State, Epoch: want.Epoch + 1}, {State: "other", Epoch: want.Epoch}} {
				wantUnavailable(rt, "an update from a stale row", f.Write(context.Background(), func(tx *store.Tx) error {
					return tx.UpdateHandoff(&stale, &h)
				}), nothing)
			}
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				got, err := tx.Handoff(h.ID)
				wantSame(rt, "as it was updated", got, want)
				return err
			}))
		})
	})
}

func TestMessageIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		rapid.Check(t, func(rt *rapid.T) {
			h := aHandoff(newID("handoff"))
			var list []handoff.Message
			for i := range rapid.IntRange(0, 5).Draw(rt, "messages") {
				list = append(list, handoff.Message{
					ID: newID("message"), HandoffID: h.ID, SequenceNo: i + 1, Author: someID.Draw(rt, "author"), Body: someText.Draw(rt, "body"),
					Payload: someValue.Draw(rt, "payload"), Artifacts: someArtifacts.Draw(rt, "artifacts"), ExpectsReply: rapid.Bool().Draw(rt, "expects"), CreatedAt: someTime.Draw(rt, "at"),
				})
			}
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error {
				err := tx.InsertHandoff(h)
				for i := range slices.Backward(list) { // the order of writing is not that of reading
					err = errors.Join(err, tx.InsertMessage(&list[i]))
				}
				return err
			}))
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				after, limit := rapid.IntRange(0, 6).Draw(rt, "after"), rapid.IntRange(1, 7).Draw(rt, "limit")
				got, err := tx.Messages(h.ID, after, limit)
				must(rt, err)
				want := list[min(after, len(list)):min(after+limit, len(list))]
				if len(want)+len(got) > 0 {
					wantSame(rt, "a page of the thread", got, want)
				}
				for i, m := range list {
					one, err := tx.MessageAt(h.ID, i+1)
					must(rt, err)
					wantSame(rt, "one by its number", one, m)
				}
				for _, none := range []int{-1, 0, len(list) + 1} {
					if _, err := tx.MessageAt(h.ID, none); handoff.CodeOf(err) != handoff.CodeNotFound {
						rt.Fatalf("message %d gives %v", none, err)
					}
				}
				return nil
			}))
		})
	})
}

func TestDraftIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		h := aHandoff("h")
		f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		var all []handoff.Draft
		statuses := []handoff.DraftStatus{handoff.Drafted, handoff.DraftApproved, handoff.DraftDeclined, handoff.DraftSuperseded}
		rapid.Check(t, func(rt *rapid.T) {
			d := handoff.Draft{
				ID: newID("draft"), HandoffID: h.ID, No: len(all) + 1, Author: someID.Draw(rt, "author"), Epoch: someNumber.Draw(rt, "epoch"),
				SuggestedDiff: someText.Draw(rt, "diff"), Description: someText.Draw(rt, "description"), TargetFiles: someTexts.Draw(rt, "files"), Rationale: someText.Draw(rt, "rationale"),
				Status: rapid.SampledFrom(statuses).Draw(rt, "status"), DecidedBy: someID.Draw(rt, "by"), Reason: someText.Draw(rt, "reason"), CreatedAt: someTime.Draw(rt, "created"), DecidedAt: someTime.Draw(rt, "decided"),
			}
			read := func(what string) {
				must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
					got, err := tx.Draft(d.ID)
					wantSame(rt, what, got, d)
					return err
				}))
			}
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertDraft(&d) }))
			read("as it was inserted")
			d.Status, d.DecidedBy, d.Reason, d.DecidedAt = rapid.SampledFrom(statuses).Draw(rt, "new status"), someID.Draw(rt, "decided by"), someText.Draw(rt, "new reason"), someTime.Draw(rt, "decided at")
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.UpdateDraft(&d) }))
			read("as it was decided")
			all = append(all, d)
		})
		f.read(func(tx *store.Tx) error {
			got, err := tx.Drafts(h.ID)
			listed := slices.Clone(all)
			for i, d := range listed {
				if d.Status == handoff.DraftSuperseded {
					listed[i].SuggestedDiff, listed[i].Description, listed[i].TargetFiles, listed[i].Rationale = "", "", nil, ""
				}
			}
			wantSame(t, "the drafts of the handoff", got, listed)
			waiting := slices.DeleteFunc(slices.Clone(all), func(d handoff.Draft) bool { return d.Status != handoff.Drafted })
			slices.SortFunc(waiting, func(a, b handoff.Draft) int {
				// No time is the time 0.
				at := func(d handoff.Draft) int64 {
					if d.CreatedAt.IsZero() {
						return 0
					}
					return d.CreatedAt.UnixMicro()
				}
				if at(a) != at(b) {
					return int(min(1, max(-1, at(a)-at(b))))
				}
				return strings.Compare(a.ID, b.ID)
			})
			undecided, err2 := tx.UndecidedDrafts(5)
			wantSame(t, "the oldest that wait", undecided, waiting[:min(5, len(waiting))])
			_, err3 := tx.Draft("none")
			if handoff.CodeOf(err3) != handoff.CodeNotFound {
				t.Errorf("no draft gives %v", err3)
			}
			return errors.Join(err, err2)
		})
		wantUnavailable(t, "an update of no draft", f.Write(context.Background(), func(tx *store.Tx) error { return tx.UpdateDraft(&handoff.Draft{ID: "none"}) }), nothing)
	})
}

func TestEventIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		var want []handoff.Event
		rapid.Check(t, func(rt *rapid.T) {
			e := handoff.Event{
				Type: rapid.SampledFrom([]handoff.EventType{handoff.EventCreated, handoff.EventClaimed, handoff.EventKeyRevoked}).Draw(rt, "type"),
				Seq:  len(want), ActorID: someID.Draw(rt, "actor"), SubjectID: someText.Draw(rt, "subject"),
				State: rapid.SampledFrom([]handoff.State{"", handoff.Open, handoff.Expired}).Draw(rt, "state"), Epoch: someNumber.Draw(rt, "epoch"),
				TraceID: someText.Draw(rt, "trace"), At: someTime.Draw(rt, "at"), HandoffID: rapid.SampledFrom([]string{"", "h"}).Draw(rt, "handoff"),
			}
			must(rt, f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertEvent(&e) }))
			want = append(want, e)
		})
		var got []handoff.Event
		eventually(t, "every event is settled", func() bool {
			f.read(func(tx *store.Tx) (err error) {
				got, _, err = tx.Events(store.Beginning, 10_000)
				return err
			})
			return len(got) == len(want)
		})
		for i := range got {
			if got[i].Cursor == "" {
				t.Error("an event has no cursor")
			}
			got[i].Cursor = ""
			wantSame(t, "an event", got[i], want[i])
		}
		twice := handoff.Event{Type: handoff.EventCreated, HandoffID: "h", Seq: -1}
		f.write(func(tx *store.Tx) error { return tx.InsertEvent(&twice) })
		wantUnavailable(t, "a second event of the same number", f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertEvent(&twice) }), nothing)
	})
}

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
