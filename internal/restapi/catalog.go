package restapi

import (
	"context"
	"net/http"

	"handclasp/internal/hub"
)

// Catalog is what a target may name.
type Catalog struct {
	Capabilities []CatalogWord `json:"capabilities"`
	Tags         []CatalogTag  `json:"tags"`
}

// CatalogWord is a word and how many agents bear it, disabled ones too.
type CatalogWord struct {
	Name   string `json:"name"`
	Agents int    `json:"agents"`
}

// CatalogTag is a tag key with its values.
type CatalogTag struct {
	CatalogWord
	Values []CatalogWord `json:"values"`
}

// CatalogChanges answers an addition or a removal, word by word.
type CatalogChanges struct {
	Changes []CatalogChange `json:"changes"`
}

// CatalogChange is what became of one word.
type CatalogChange struct {
	Kind    string   `json:"kind"` // capability or tag
	Name    string   `json:"name"` // of a tag its key, or key=value
	Changed bool     `json:"changed"`
	Values  []string `json:"values,omitempty"` // that went with a tag key
}

func (o *operator) listCatalog(w http.ResponseWriter, r *http.Request) {
	c, err := o.hub.Catalog(r.Context(), asOperator)
	out := Catalog{catalogWords(c.Capabilities), make([]CatalogTag, len(c.Tags))}
	for i, t := range c.Tags {
		out.Tags[i] = CatalogTag{CatalogWord(t.CatalogWord), catalogWords(t.Values)}
	}
	o.answer(w, r, err, out)
}

func catalogWords(list []hub.CatalogWord) []CatalogWord {
	out := make([]CatalogWord, len(list))
	for i, w := range list {
		out[i] = CatalogWord(w)
	}
	return out
}

func (o *operator) changeCatalog(change func(context.Context, hub.Call, hub.CatalogInput) ([]hub.CatalogChange, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in hub.CatalogInput
		if !o.decode(w, r, &in) {
			return
		}
		list, err := change(r.Context(), asOperator, in)
		out := CatalogChanges{make([]CatalogChange, len(list))}
		for i, c := range list {
			out.Changes[i] = CatalogChange(c)
		}
		o.answer(w, r, err, out)
	}
}
