package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// known refuses words that the operator's catalog does not have.
func (c *change) known(row *handoff.Handoff) error {
	names := row.Target.Names()
	if row.VerifyBy != nil && row.VerifyBy.Kind == handoff.VerifyByCapability {
		if err := c.inCatalog("verify_by.capability", store.CatalogCapability, []string{row.VerifyBy.Capability}); err != nil {
			return err
		}
	}
	if err := c.inCatalog("target", store.CatalogCapability, names.Capabilities); err != nil {
		return err
	}
	if err := c.inCatalog("target", store.CatalogTag, names.TagKeys); err != nil {
		return err
	}
	for _, key := range names.TagKeys {
		values := make([]string, len(names.TagValues[key]))
		for i, v := range names.TagValues[key] {
			values[i] = key + "=" + v
		}
		if err := c.inCatalog("target", store.CatalogTagValue, values); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) inCatalog(field, kind string, words []string) error {
	if len(words) == 0 {
		return nil
	}
	known, err := c.InCatalog(kind, words)
	if err != nil {
		return err
	}
	unknown := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return known[w] })
	if len(unknown) == 0 {
		return nil
	}
	const most = 20 // as many as one key may have values
	named := unknown[:min(most, len(unknown))]
	quoted := make([]string, len(named))
	for i, w := range named {
		quoted[i] = handoff.Quote(w)
	}
	what := "the catalog has no " + catalogNouns[kind] + " " + strings.Join(quoted, ", ")
	if more := len(unknown) - len(named); more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	e := handoff.Invalid(field, what).With("unknown", named).With("catalog", kind)
	e.Hint = "Nothing was written. "
	if kind == store.CatalogCapability {
		e.Hint += "capability_list shows the capabilities. "
	}
	e.Hint += "The operator lists and adds words with: handclasp catalog."
	return e
}

var catalogNouns = map[string]string{store.CatalogCapability: "capability", store.CatalogTag: "tag key", store.CatalogTagValue: "tag value"}

// nearWords adds the words of the catalog that may be meant, for the first unknown ones: comparing
// with a whole catalog takes time, which no other write may have to wait for, and nobody may order
// much of it with one call.
func (h *Hub) nearWords(ctx context.Context, err error) error {
	const most = 4
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok {
		return err
	}
	kind, isWord := e.Details["catalog"].(string)
	unknown, _ := e.Details["unknown"].([]string)
	if !isWord {
		return err
	}
	delete(e.Details, "catalog")
	var all []string
	if readErr := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		all, err = tx.CatalogNames(kind)
		return err
	}); readErr != nil {
		return e
	}
	var near []string
	for _, w := range unknown[:min(most, len(unknown))] {
		near = append(near, handoff.NearMatches(w, all, 3)...)
	}
	if len(near) == 0 {
		return e
	}
	slices.Sort(near)
	near = slices.Compact(near)
	e.Message += "; did you mean " + joinOr(near) + "?"
	return e.With("near_matches", near)
}
