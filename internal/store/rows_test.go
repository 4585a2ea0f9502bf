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
		DepsTotal:   someNumber.Draw(t, "dependencies"),
		DepsPending: someNumber.Draw(t, "pending"),
		DepsFailed:  someNumber.Draw(t, "failed"),
		FallbackAt:  someTime.Draw(t, "fallback"),

		FallbackOpened:    rapid.Bool().Draw(t, "opened"),
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
		ErasedAt:            someTime.Draw(t, "erased"),
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
				must(rt, err)
				offered, err := offersOf(tx, h.ID)
				wantSame(rt, "what is offered", offered, offersIn(&h))
				return err
			}))
			// A transition changes these fields and no others.
			now := someHandoff.Draw(rt, "as it is to be")
			want := h
			want.State, want.Holder, want.PastHolders, want.Epoch, want.LeaseLength = now.State, now.Holder, now.PastHolders, now.Epoch, now.LeaseLength
			want.LeaseExpiresAt, want.Result, want.Verdict, want.DepsPending, want.DepsFailed = now.LeaseExpiresAt, now.Result, now.Verdict, now.DepsPending, now.DepsFailed
			want.Recipient, want.FallbackAt, want.FallbackOpened = now.Recipient, now.FallbackAt, now.FallbackOpened
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
				must(rt, err)
				offered, err := offersOf(tx, h.ID)
				wantSame(rt, "what is offered then", offered, offersIn(&want))
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
				TraceID: someText.Draw(rt, "trace"), SessionID: someText.Draw(rt, "session"), At: someTime.Draw(rt, "at"), HandoffID: rapid.SampledFrom([]string{"", "h"}).Draw(rt, "handoff"),
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
