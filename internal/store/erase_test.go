package store_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// textTables are those that hold text about a handoff. A table that a later migration adds stands
// here, or among those that hold none, or the test below fails.
var (
	textTables  = []string{"handoffs", "messages", "drafts", "desk", "contacts"}
	otherTables = []string{
		"settings", "agents", "agent_labels", "catalog", "api_keys", "blocks", "workspaces", "workspace_members", "offers", "sessions", "dependencies",
		"notices", "events", "deliveries", "businesses", "spend", "person_links", "signing_keys", "continuations", "agent_channels", "idempotency", "invites", "goose_db_version", "sqlite_sequence",
	}
)

func TestAnErasureReachesEveryTableThatHoldsText(t *testing.T) {
	t.Parallel()
	onEachAtNoon(t, func(t *testing.T, f *fixture) {
		const secret = "SECRET"
		tables := `SELECT name FROM sqlite_master WHERE type = 'table'`
		if f.Kind() == "postgres" {
			tables = `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`
		}
		f.read(func(tx *store.Tx) error {
			names, err := tx.Texts(tables)
			for _, name := range names {
				if !slices.Contains(textTables, name) && !slices.Contains(otherTables, name) {
					t.Errorf("does the table %s hold text about a handoff? Then Erase has to reach it", name)
				}
			}
			return err
		})
		for _, id := range []string{"gone", "kept"} {
			f.write(func(tx *store.Tx) error { return writeEverywhere(tx, id, secret) })
		}
		f.write(func(tx *store.Tx) error {
			h, err := tx.LockHandoff("gone")
			if err != nil {
				return err
			}
			if _, err := h.Erase(handoff.Operator(), noon); err != nil {
				return err
			}
			h.EventSeq++
			if err := tx.EraseMessages("gone", handoff.ErasedText, 1, 100); err != nil {
				return err
			}
			return tx.EraseHandoff(&h, handoff.ErasedText)
		})
		f.read(func(tx *store.Tx) error {
			for _, id := range []string{"gone", "kept"} {
				for _, query := range []string{
					`SELECT preview || question || proposed_action || metadata || payload || result || criteria || verdict || ended_reason || result_summary || completion_artifacts FROM handoffs WHERE id = '` + id + `'`,
					`SELECT body || payload || artifacts FROM messages WHERE handoff_id = '` + id + `'`,
					`SELECT suggested_diff || description || target_files || rationale || reason FROM drafts WHERE handoff_id = '` + id + `'`,
					`SELECT reason || purpose || reservation_id || agent_label FROM desk WHERE handoff_id = '` + id + `'`,
					`SELECT name || email || phone FROM contacts WHERE subject_id = '` + id + `'`,
				} {
					texts, err := tx.Texts(query)
					if err != nil {
						return err
					}
					if holds := strings.Contains(strings.Join(texts, ""), secret); holds != (id == "kept") {
						t.Errorf("%s: %v", query, texts)
					}
				}
			}
			got, err := tx.Handoff("gone")
			if !got.ErasedAt.Equal(noon) || got.EventSeq != 2 || got.Metadata != nil || got.Payload != nil || got.CompletionArtifacts != nil || got.Preview != handoff.ErasedText {
				t.Errorf("%+v", got)
			}
			return err
		})
		wantUnavailable(t, "an erasure of what was erased", f.Write(t.Context(), func(tx *store.Tx) error {
			h, err := tx.LockHandoff("gone")
			if err != nil {
				return err
			}
			return tx.EraseHandoff(&h, handoff.ErasedText)
		}), nothing)
	})
}

// writeEverywhere stores an ended handoff with the text in every place that takes one.
func writeEverywhere(tx *store.Tx, id, text string) error {
	raw := json.RawMessage(`"` + text + `"`)
	artifacts, err := handoff.ParseArtifacts("artifacts", []json.RawMessage{json.RawMessage(`{"type":"link","url":"https://x.io/` + text + `"}`)}, handoff.Limits{})
	if err != nil {
		return err
	}
	h := handoff.Handoff{
		ID: id, Door: handoff.DoorTeam, State: handoff.Completed, Creator: "anna", Recipient: "frank", Holder: "frank", Intent: handoff.ProposeAction, EventSeq: 1,
		Preview: text, Question: text, Metadata: json.RawMessage(`{"a":"` + text + `"}`), Payload: raw, Result: raw, Criteria: []string{text},
		ProposedAction: &handoff.ProposedAction{Description: text, TargetFiles: []string{text}, Rationale: text, SuggestedDiff: text},
		Verdict:        &handoff.Verdict{Feedback: text, At: noon}, EndedBy: "frank", EndedReason: text, ResultSummary: text, CompletionArtifacts: artifacts,
		CreatedAt: noon, UpdatedAt: noon,
	}
	if err := tx.InsertHandoff(&h); err != nil {
		return err
	}
	for n := 1; n <= 2; n++ {
		if err := tx.InsertMessage(&handoff.Message{ID: newID("message"), HandoffID: id, SequenceNo: n, Author: "anna", Body: text, Payload: raw, Artifacts: artifacts, CreatedAt: noon}); err != nil {
			return err
		}
		if err := tx.InsertDraft(&handoff.Draft{ID: newID("draft"), HandoffID: id, No: n, Author: "frank", SuggestedDiff: text, Description: text, TargetFiles: []string{text}, Rationale: text, Status: handoff.DraftDeclined, Reason: text, CreatedAt: noon}); err != nil {
			return err
		}
	}
	return tx.Exec(`INSERT INTO businesses (slug, name, search, timezone, preferred, phone, email, form_url, region, daily_messages, daily_cost, created_at, updated_at)
		VALUES ('shop', 'Shop', 'shop', 'UTC', '', '', '', '', '', 0, 0, 1, 1) ON CONFLICT DO NOTHING`,
		`INSERT INTO desk (handoff_id, slug, mode, urgency, reason, purpose, reservation_id, agent_label)
		VALUES ('`+id+`', 'shop', 'human', 'normal', '`+text+`', '`+text+`', '`+text+`', '`+text+`')`,
		`INSERT INTO contacts (subject_id, name, email, phone) VALUES ('`+id+`', '`+text+`', '`+text+`', '`+text+`')`)
}

func TestAPageOfHandoffsAndOfAnInboxWalksAnIndex(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	for _, test := range []struct{ query, index string }{
		{`SELECT h.id FROM handoffs h WHERE h.holder_id = 'x' AND h.holder_id <> '' AND h.holder_id <> h.recipient_id AND (h.created_at, h.id) < (1, 'a') ORDER BY h.created_at DESC, h.id DESC LIMIT 3`, "handoffs_by_holder"},
		{`SELECT h.id FROM handoffs h WHERE h.created_at >= 0 AND h.id < 'x' ORDER BY h.id DESC LIMIT 3`, "sqlite_autoindex_handoffs_1"},
		{`SELECT id FROM handoffs WHERE id >= 'a' AND id < 'b' ORDER BY id LIMIT 3`, "sqlite_autoindex_handoffs_1"},
	} {
		f.read(func(tx *store.Tx) error {
			plan, err := tx.Plan(test.query)
			if text := strings.Join(plan, "\n"); !strings.Contains(text, test.index) || strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("%s:\n%s", test.query, text)
			}
			return err
		})
	}
}
