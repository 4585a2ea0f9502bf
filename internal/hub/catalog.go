package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The catalog is the operator's vocabulary: what a target may name. Roles are not part of it.

// CatalogWord is a word of the catalog and how many agents bear it, disabled ones too.
type CatalogWord struct {
	Name   string
	Agents int
}

// CatalogTag is a tag key with the values that are known of it.
type CatalogTag struct {
	CatalogWord
	Values []CatalogWord
}

// Catalog is all that a target may name, in the order of the words.
type Catalog struct {
	Capabilities []CatalogWord
	Tags         []CatalogTag
}

// Catalog lists the catalog for the operator.
func (h *Hub) Catalog(ctx context.Context, call Call) (Catalog, error) {
	if err := operatorOnly(call); err != nil {
		return Catalog{}, err
	}
	var out Catalog
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		var err error
		if out.Capabilities, err = words(tx, store.CatalogCapability); err != nil {
			return err
		}
		keys, err := words(tx, store.CatalogTag)
		if err != nil {
			return err
		}
		values, err := words(tx, store.CatalogTagValue)
		if err != nil {
			return err
		}
		of := map[string][]CatalogWord{}
		for _, v := range values {
			key, value, _ := strings.Cut(v.Name, "=")
			of[key] = append(of[key], CatalogWord{value, v.Agents})
		}
		out.Tags = make([]CatalogTag, len(keys))
		for i, k := range keys {
			out.Tags[i] = CatalogTag{k, of[k.Name]}
		}
		return nil
	})
	return out, err
}

func words(tx *store.Tx, kind string) ([]CatalogWord, error) {
	names, err := tx.CatalogNames(kind)
	if err != nil {
		return nil, err
	}
	counts, err := tx.BearerCounts(kind)
	list := make([]CatalogWord, len(names))
	for i, n := range names {
		list[i] = CatalogWord{n, counts[n]}
	}
	return list, err
}

// CatalogInput names words of one kind: "capability", or "tag" for keys and for key=value.
type CatalogInput struct {
	Kind  string   `json:"kind"`
	Names []string `json:"names"`
}

// CatalogChange is what became of one of them.
type CatalogChange struct {
	Kind string
	Name string
	// Changed is false where it was so before.
	Changed bool
	// Values went with a tag key that was removed, each as key=value.
	Values []string
}

// AddToCatalog makes words known. A value of a tag makes its key known too.
func (h *Hub) AddToCatalog(ctx context.Context, call Call, in CatalogInput) ([]CatalogChange, error) {
	return h.changeCatalog(ctx, call, in, "catalog_add", func(c *change, w catalogWord, known bool) (out CatalogChange, err error) {
		out.Changed = !known
		if w.kind == store.CatalogTagValue {
			if err := c.Tx.AddToCatalog(store.CatalogTag, w.key); err != nil {
				return out, err
			}
		}
		return out, c.Tx.AddToCatalog(w.kind, w.name)
	})
}

// RemoveFromCatalog takes words out that no agent bears; all of them, or none. A tag key takes its
// values along. Handoffs that name one stay as they are: whoever is given it later can claim them.
func (h *Hub) RemoveFromCatalog(ctx context.Context, call Call, in CatalogInput) ([]CatalogChange, error) {
	return h.changeCatalog(ctx, call, in, "catalog_remove", func(c *change, w catalogWord, known bool) (out CatalogChange, err error) {
		if !known {
			return out, c.unknownWord(w)
		}
		out.Changed = true
		if w.kind == store.CatalogTag {
			if out.Values, err = c.CatalogValues(w.name); err != nil {
				return out, err
			}
		}
		if err := c.Tx.RemoveFromCatalog(w.kind, w.name); err != nil {
			return out, err
		}
		bearers, err := c.Bearers(w.kind, w.name)
		if err == nil && len(bearers) > 0 {
			err = borne(w, bearers)
		}
		return out, err
	})
}

func (h *Hub) changeCatalog(ctx context.Context, call Call, in CatalogInput, verb string, each func(c *change, w catalogWord, known bool) (CatalogChange, error)) ([]CatalogChange, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	list, err := h.catalogWords(in)
	if err != nil {
		return nil, err
	}
	var out []CatalogChange
	err = h.change(ctx, verb, call, func(c *change) error {
		out = make([]CatalogChange, len(list))
		for i, w := range list {
			known, err := c.CatalogHas(w.kind, w.name)
			if err != nil {
				return err
			}
			if out[i], err = each(c, w, known); err != nil {
				return err
			}
			out[i].Kind, out[i].Name = in.Kind, w.name
		}
		return nil
	})
	return out, err
}

// catalogWord is a word as the catalog keeps it; key is the tag key of a value.
type catalogWord struct{ kind, name, key string }

func (w catalogWord) String() string {
	noun := map[string]string{store.CatalogCapability: "capability", store.CatalogTag: "tag key", store.CatalogTagValue: "tag"}[w.kind]
	return "the " + noun + " " + handoff.Quote(w.name)
}

// catalogWords reads the words of an input, each once.
func (h *Hub) catalogWords(in CatalogInput) ([]catalogWord, error) {
	if in.Kind != store.CatalogCapability && in.Kind != store.CatalogTag {
		return nil, handoff.Invalid("kind", handoff.Quote(in.Kind)+" came; capability and tag are accepted")
	}
	if len(in.Names) == 0 {
		return nil, handoff.Invalid("name", "nothing came; name at least one word")
	}
	var list []catalogWord
	for _, name := range in.Names {
		w := catalogWord{kind: in.Kind, name: name}
		parts := []string{name}
		if key, value, isValue := strings.Cut(name, "="); isValue && in.Kind == store.CatalogTag {
			w.kind, w.key, parts = store.CatalogTagValue, key, []string{key, value}
		}
		for _, part := range parts {
			if strings.TrimSpace(part) == "" {
				return nil, handoff.Invalid("name", handoff.Quote(name)+" came; a word is accepted, and of a tag its key or key=value, such as team=platform; nothing was changed")
			}
			if err := handoff.CheckText("name", part, h.lim.SelectorValue); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(list, w) {
			list = append(list, w)
		}
	}
	return list, nil
}

// unknownWord says that the catalog has no such word, and which may be meant.
func (c *change) unknownWord(w catalogWord) error {
	all, err := c.CatalogNames(w.kind)
	if err != nil {
		return err
	}
	const list = "Nothing was changed. List the words with: handclasp catalog list"
	e := handoff.Refuse(handoff.CodeNotFound, "the catalog does not have "+w.String(), list)
	if near := handoff.NearMatches(w.name, all, 3); len(near) > 0 {
		e.Hint = "Did you mean " + joinOr(near) + "? " + list
		e = e.With("near_matches", near)
	}
	return e
}

// borne refuses to take out a word that agents bear.
func borne(w catalogWord, bearers []string) *handoff.Error {
	const most = 10
	shown := strings.Join(bearers[:min(len(bearers), most)], ", ")
	if more := len(bearers) - most; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return handoff.Refuse(handoff.CodeInvalidTransition, w.String()+" is borne by "+shown,
		"Nothing was changed. Take it from them first: handclasp agent edit HANDLE --capability …, or --tag …, with all those that it is to keep").With("agents", bearers)
}
