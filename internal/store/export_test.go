package store

import "time"

// Queued is how many writes wait for the SQLite writer.
func (s *Store) Queued() int { return len(s.group.jobs) }

// LongBatches lets a batch go on for as long as functions wait, so that a slow machine does
// not split what a test puts into one. Call it before the writes it is meant for.
func (s *Store) LongBatches() { s.group.work = time.Minute }

// EachRow runs a query and calls f for each of its rows.
func (tx *Tx) EachRow(query string, f func()) error {
	return tx.each(query, nil, func(rows) error {
		f()
		return nil
	})
}

// InUse is how many connections are lent out; none may be while nobody calls.
func (s *Store) InUse() int {
	if s.db != nil {
		return s.db.Stats().InUse
	}
	return cap(s.readers) - len(s.readers)
}

// Texts reads the first column of a query without parameters, as text.
func (tx *Tx) Texts(query string) (list []string, err error) {
	err = tx.each(query, nil, func(r rows) error {
		var text string
		err := r.Scan(&text)
		list = append(list, text)
		return err
	})
	return list, err
}

// Exec runs writes without parameters.
func (tx *Tx) Exec(queries ...string) error {
	for _, query := range queries {
		if err := tx.exec(query); err != nil {
			return err
		}
	}
	return nil
}

// Plan is how SQLite would run a query.
func (tx *Tx) Plan(query string) (list []string, err error) {
	err = tx.each("EXPLAIN QUERY PLAN "+query, nil, func(r rows) error {
		var id, parent, unused int64
		var detail string
		err := r.Scan(&id, &parent, &unused, &detail)
		list = append(list, detail)
		return err
	})
	return list, err
}
