package store

import (
	"slices"

	"handclasp/internal/handoff"
)

// LockDependencies reads handoffs that another is to depend on and keeps them from changing until
// the end of tx, in the order of their ids. Those that do not exist are left out.
func (tx *Tx) LockDependencies(ids []string) ([]handoff.Handoff, error) {
	ids = slices.Sorted(slices.Values(ids))
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return !storable(id) })
	if len(ids) == 0 {
		return nil, nil
	}
	in, args := placeholders(ids, 1)
	return tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h WHERE h.id IN (`+in+`) ORDER BY h.id`+tx.d.forShare(), args)
}

// InsertDependency notes that one handoff waits for another.
func (tx *Tx) InsertDependency(handoffID, dependsOn string) error {
	return tx.exec(`INSERT INTO dependencies (handoff_id, depends_on) VALUES ($1, $2)`, handoffID, dependsOn)
}

// Dependents names the handoffs that wait for one, in the order of their ids.
func (tx *Tx) Dependents(id string) ([]string, error) {
	return tx.ids(`SELECT handoff_id FROM dependencies WHERE depends_on = $1 ORDER BY handoff_id`, id)
}

// Dependencies reads what each of some handoffs waits or waited for, without payloads.
func (tx *Tx) Dependencies(ids []string) (map[string][]handoff.Handoff, error) {
	out := map[string][]handoff.Handoff{}
	if len(ids) == 0 {
		return out, nil
	}
	in, args := placeholders(ids, 1)
	pairs := map[string][]string{}
	var all []string
	err := tx.each(`SELECT handoff_id, depends_on FROM dependencies WHERE handoff_id IN (`+in+`) ORDER BY handoff_id, depends_on`, args, func(r rows) error {
		var id, on string
		err := r.Scan(&id, &on)
		pairs[id] = append(pairs[id], on)
		all = append(all, on)
		return err
	})
	if err != nil || len(all) == 0 {
		return out, err
	}
	slices.Sort(all)
	byID := map[string]handoff.Handoff{}
	for some := range slices.Chunk(slices.Compact(all), 500) {
		in, args := placeholders(some, 1)
		list, err := tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h WHERE h.id IN (`+in+`)`, args)
		if err != nil {
			return nil, err
		}
		for i := range list {
			byID[list[i].ID] = list[i]
		}
	}
	for id, on := range pairs {
		for _, d := range on {
			out[id] = append(out[id], byID[d])
		}
	}
	return out, nil
}
