package store_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// crowd gives the database n copies of an open handoff, each offered as that one is.
func crowd(t *testing.T, f *fixture, h *handoff.Handoff, n int) {
	t.Helper()
	f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
	db := hubtest.Beside(t, f.cfg)
	var names, values []string
	for _, c := range columnsOf(t, db, f.cfg, "handoffs") {
		value := "h." + c.name
		switch c.name {
		case "id":
			value += " || '-' || n"
		case "created_at":
			value += " + n"
		}
		names, values = append(names, c.name), append(values, value)
	}
	series := fmt.Sprintf(`WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < %d)`, n)
	run(t, db,
		fmt.Sprintf(`%s INSERT INTO handoffs (%s) SELECT %s FROM series, handoffs h WHERE h.id = '%s'`, series, strings.Join(names, ", "), strings.Join(values, ", "), h.ID),
		fmt.Sprintf(`%s INSERT INTO offers (target_key, workspace_id, rank, position, handoff_id)
			SELECT o.target_key, o.workspace_id, o.rank, o.position + n, o.handoff_id || '-' || n FROM series, offers o WHERE o.handoff_id = '%s'`, series, h.ID))
	must(t, db.Close())
}

// crowded is a database with open handoffs of three kinds, of which PostgreSQL knows the numbers.
// SQLite is never told any.
func crowded(t *testing.T, f *fixture) {
	t.Helper()
	for i, target := range []string{
		`{"strategy":"broadcast"}`, `{"strategy":"capability","capability":"go"}`,
		`{"strategy":"direct_with_fallback","agent_id":"frank","fallback_after_seconds":2592000}`,
	} {
		crowd(t, f, aPool(fmt.Sprint("crowd", i), "w", target), 4000)
	}
	if f.Kind() == "postgres" {
		db := hubtest.Beside(t, f.cfg)
		run(t, db, "ANALYZE")
		must(t, db.Close())
	}
}

var (
	scanOf     = regexp.MustCompile(`(?m)^.*(SCAN (offers|handoffs|h)\b|Seq Scan on (offers|handoffs)\b).*$`)
	mentionsIt = regexp.MustCompile(`(?m)^.*(SEARCH offers\b|Scan using \S+ on offers\b).*$`)
)

func TestFindingWhatIsOfferedWalksThePrimaryKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		crowded(t, f)
		many := []string{"any", "cap:go", "cap:none"}
		for i := range 120 { // more than one statement takes
			many = append(many, fmt.Sprint("role:", i))
		}
		behind := store.Place{Rank: 0, CreatedAt: noon.Add(time.Millisecond).UnixMicro(), ID: "crowd1-7"}
		for name, find := range map[string]func(*store.Tx, []string, store.Place) error{
			"a page": func(tx *store.Tx, keys []string, after store.Place) error {
				_, err := tx.Offered("w", keys, after, 51)
				return err
			},
			"a claim": func(tx *store.Tx, keys []string, after store.Place) error {
				_, _, err := tx.TakeOffered("w", keys, after)
				return err
			},
		} {
			for _, keys := range [][]string{{"any"}, {"any", "cap:go", "scan", "agent:frank", "role:r"}, many} {
				for _, after := range []store.Place{store.Start, behind} {
					f.write(func(tx *store.Tx) error {
						plan, err := tx.Explain(func(tx *store.Tx) error { return find(tx, keys, after) })
						must(t, err)
						wantWalks(t, fmt.Sprintf("%s under %d keys", name, len(keys)), f.Kind(), plan, len(keys))
						return nil
					})
				}
			}
		}
	})
}

func wantWalks(t *testing.T, what, kind, plan string, keys int) {
	t.Helper()
	if scan := scanOf.FindString(plan); scan != "" {
		t.Errorf("%s: %s\n%s", what, scan, plan)
	}
	walks := map[string]string{"sqlite": "SEARCH offers USING PRIMARY KEY (target_key=? AND workspace_id=? AND (rank,position,handoff_id)>(?,?,?))", "postgres": "Scan using offers_pkey on offers"}[kind]
	if kind == "postgres" {
		keys = 1 // one walk, begun for each
	}
	lines := mentionsIt.FindAllString(plan, -1)
	if len(lines) < keys || slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(line, walks) }) {
		t.Errorf("%s looks at offers %d times:\n%s", what, len(lines), plan)
	}
	byID := map[string]string{"sqlite": "SEARCH h USING INDEX sqlite_autoindex_handoffs_1 (id=?)", "postgres": "Index Scan using handoffs_pkey on handoffs h"}[kind]
	if !strings.Contains(plan, byID) {
		t.Errorf("%s does not look handoffs up by their ids:\n%s", what, plan)
	}
	if kind == "postgres" && strings.Count(plan, `(ROW(rank, "position", handoff_id) > ROW(`) < keys {
		t.Errorf("%s does not begin behind the place:\n%s", what, plan)
	}
}

func TestWhatTimeDidIsFoundWithoutLookingThroughWhatIsOpen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		crowded(t, f)
		for name, test := range map[string]struct {
			find    func(*store.Tx) error
			indexes []string
		}{
			"due": {
				func(tx *store.Tx) error { _, err := tx.Due(noon, 100); return err },
				[]string{"handoffs_by_lease", "handoffs_by_deadline", "handoffs_by_fallback"},
			},
			"next due": {
				func(tx *store.Tx) error { _, err := tx.NextDue(); return err },
				[]string{"handoffs_by_lease", "handoffs_by_deadline", "handoffs_by_fallback"},
			},
			"erasable": {
				func(tx *store.Tx) error { _, err := tx.Erasable(noon, 100); return err },
				[]string{"handoffs_to_erase"},
			},
			"slipped": {
				func(tx *store.Tx) error { _, err := tx.Slipped("w", 100); return err },
				[]string{"handoffs_by_lease", "handoffs_by_fallback"},
			},
			"held": {
				func(tx *store.Tx) error { _, err := tx.PoolHeld("w", "anna", store.Place{}, 51); return err },
				[]string{"handoffs_held"},
			},
			"claims": {
				func(tx *store.Tx) error { _, err := tx.Claims("anna", 51); return err },
				[]string{"handoffs_held"},
			},
			"moved": {
				func(tx *store.Tx) error { _, err := tx.MovePool("elsewhere", "w", 100); return err },
				[]string{"handoffs_of_workspace"},
			},
			"scattered": {
				func(tx *store.Tx) error { _, err := tx.Scattered(); return err },
				[]string{"handoffs_of_workspace"},
			},
			"created": {
				func(tx *store.Tx) error { _, err := tx.PoolOf("w", "anna", store.Place{}, 51); return err },
				[]string{"handoffs_by_creator"},
			},
		} {
			f.write(func(tx *store.Tx) error {
				tx.Now() // begins the transaction
				plan, err := tx.Explain(test.find)
				must(t, err)
				for _, index := range test.indexes {
					if !strings.Contains(plan, index) {
						t.Errorf("%s does not use %s:\n%s", name, index, plan)
					}
				}
				if scan := scanOf.FindString(plan); scan != "" || strings.Contains(plan, "handoffs_by_state") {
					t.Errorf("%s looks through more than that: %s\n%s", name, scan, plan)
				}
				return nil
			})
		}
	})
}

func TestWhomNobodyWasToldOfIsFoundAmongWhatIsOpenAtTheDesk(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		crowded(t, f)
		for name, test := range map[string]struct {
			find  func(*store.Tx) error
			index string
		}{
			"the list": {func(tx *store.Tx) error {
				_, err := tx.Handoffs(store.HandoffQuery{Untold: true, Limit: 51})
				return err
			}, "handoffs_by_state"},
			"those of a shop": {func(tx *store.Tx) error {
				_, err := tx.Handoffs(store.HandoffQuery{RecipientID: "person:shop", Limit: 51})
				return err
			}, "handoffs_by_recipient"},
			"of which business": {func(tx *store.Tx) error { _, err := tx.Destinations([]string{"a", "b"}); return err }, "desk"},
		} {
			f.write(func(tx *store.Tx) error {
				tx.Now() // begins the transaction
				plan, err := tx.Explain(test.find)
				must(t, err)
				if scan := scanOf.FindString(plan); scan != "" || !strings.Contains(plan, test.index) {
					t.Errorf("%s: %s\n%s", name, scan, plan)
				}
				return nil
			})
		}
	})
}
