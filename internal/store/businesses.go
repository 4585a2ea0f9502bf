package store

import (
	"errors"
	"strings"

	"handclasp/internal/handoff"
)

const businessColumns = `slug, name, timezone, preferred, phone, email, form_url, region, daily_messages, daily_cost, created_at, updated_at`

type businessScan struct {
	b                handoff.Business
	created, updated int64
}

func (s *businessScan) dest() []any {
	b := &s.b
	return []any{&b.Slug, &b.Name, &b.Timezone, &b.Preferred, &b.Phone, &b.Email, &b.FormURL, &b.Region, &b.DailyMessages, &b.DailyCost, &s.created, &s.updated}
}

func (s *businessScan) value() handoff.Business {
	s.b.CreatedAt, s.b.UpdatedAt = timeOf(s.created), timeOf(s.updated)
	return s.b
}

func businessValues(b *handoff.Business) []any {
	return []any{
		b.Slug, b.Name, b.Timezone, string(b.Preferred), b.Phone, b.Email, b.FormURL, b.Region, b.DailyMessages, b.DailyCost,
		micros(b.CreatedAt), micros(b.UpdatedAt),
	}
}

// byMail: the person of a business is reached by e-mail.
const byMail = `preferred = 'email' AND email <> ''`

// BusinessesByMail is how many are reached by e-mail.
func (tx *Tx) BusinessesByMail() (n int, err error) {
	err = tx.row(`SELECT count(*) FROM businesses WHERE ` + byMail).scan(&n)
	return n, err
}

// InsertBusiness stores a new business.
func (tx *Tx) InsertBusiness(b *handoff.Business) error {
	return tx.exec("INSERT INTO businesses ("+businessColumns+", search) VALUES ("+params(1, 13)+")", append(businessValues(b), foundBy(b))...)
}

// UpdateBusiness stores all of a business but its slug and when it was made.
func (tx *Tx) UpdateBusiness(b *handoff.Business) error {
	return tx.execOne(`UPDATE businesses SET name = $2, timezone = $3, preferred = $4, phone = $5, email = $6, form_url = $7, region = $8,
		daily_messages = $9, daily_cost = $10, updated_at = $11, search = $12 WHERE slug = $1`,
		b.Slug, b.Name, b.Timezone, string(b.Preferred), b.Phone, b.Email, b.FormURL, b.Region, b.DailyMessages, b.DailyCost, micros(b.UpdatedAt), foundBy(b))
}

// foundBy is what a query for a business looks at: databases fold letters each in its own way.
func foundBy(b *handoff.Business) string { return b.Slug + "\n" + handoff.Folded(b.Name) }

// Business reads one business; [handoff.CodeBusinessNotFound] when there is none.
func (tx *Tx) Business(slug string) (handoff.Business, error) { return tx.business(slug, "") }

// LockBusiness is Business that keeps others from changing it until the end of tx.
func (tx *Tx) LockBusiness(slug string) (handoff.Business, error) {
	return tx.business(slug, tx.d.forUpdate())
}

func (tx *Tx) business(slug, lock string) (handoff.Business, error) {
	if !storable(slug) {
		return handoff.Business{}, noBusiness(slug)
	}
	var s businessScan
	err := tx.row("SELECT "+businessColumns+" FROM businesses WHERE slug = $1"+lock, slug).scan(s.dest()...)
	if IsNoRows(err) {
		return handoff.Business{}, noBusiness(slug)
	}
	return s.value(), err
}

func noBusiness(slug string) *handoff.Error {
	return handoff.Refuse(handoff.CodeBusinessNotFound, "slug: no business is configured as "+handoff.Quote(slug), "find_business lists those that there are.")
}

// Businesses reads, in the order of their slugs, those behind after whose slug or name contains the
// query in any case, at most limit.
func (tx *Tx) Businesses(query, after string, limit int) ([]handoff.Business, error) {
	var list []handoff.Business
	err := tx.each("SELECT "+businessColumns+` FROM businesses WHERE slug > $1 AND search LIKE $2 ESCAPE '!' ORDER BY slug LIMIT $3`,
		[]any{after, "%" + likeEscape(handoff.Folded(query)) + "%", limit}, func(r rows) error {
			var s businessScan
			err := r.Scan(s.dest()...)
			list = append(list, s.value())
			return err
		})
	return list, err
}

func likeEscape(s string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(s)
}

// ErrCapReached says that a reservation would exceed a cap; nothing was reserved.
var ErrCapReached = errors.New("the cap of the day is reached")

// Reserve counts one message, and what it costs, against the caps of a business on one of its days.
// The caller holds the business's lock.
func (tx *Tx) Reserve(b *handoff.Business, day string, cost int64) error {
	var messages, spent int64
	err := tx.row(`SELECT messages, cost FROM spend WHERE slug = $1 AND day = $2`, b.Slug, day).scan(&messages, &spent)
	if err != nil && !IsNoRows(err) {
		return err
	}
	if b.DailyMessages > 0 && messages >= int64(b.DailyMessages) || b.DailyCost > 0 && cost > 0 && spent+cost > b.DailyCost {
		return ErrCapReached
	}
	return tx.exec(`INSERT INTO spend (slug, day, messages, cost) VALUES ($1, $2, 1, $3)
		ON CONFLICT (slug, day) DO UPDATE SET messages = spend.messages + 1, cost = spend.cost + excluded.cost`, b.Slug, day, cost)
}

// Release gives back what a delivery reserved and did not use.
func (tx *Tx) Release(slug, day string, cost int64) error {
	return tx.exec(`UPDATE spend SET messages = messages - 1, cost = cost - $3 WHERE slug = $1 AND day = $2`, slug, day, cost)
}
