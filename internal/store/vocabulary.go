package store

// The operator's side of the catalog: how many agents bear each word, who they are, and taking a
// word out. Agents bear words through their labels.

// bearing selects the labels that stand for a word of each kind, $1 being the word.
var bearing = map[string]struct{ word, is string }{
	CatalogCapability: {"name", "kind = 'capability' AND name = $1"},
	CatalogTag:        {"name", "kind = 'tag' AND name = $1"},
	CatalogTagValue:   {"name || '=' || value", "kind = 'tag' AND name || '=' || value = $1"},
}

// labelKind is the kind of label that bears words of a kind.
func labelKind(kind string) string {
	if kind == CatalogCapability {
		return CatalogCapability
	}
	return CatalogTag
}

// BearerCounts counts the agents, disabled ones too, that bear each word of a kind. Words that nobody
// bears are left out.
func (tx *Tx) BearerCounts(kind string) (map[string]int, error) {
	counts := map[string]int{}
	word := bearing[kind].word
	err := tx.each(`SELECT `+word+`, count(DISTINCT agent_id) FROM agent_labels WHERE kind = $1 GROUP BY `+word, []any{labelKind(kind)}, func(r rows) error {
		var name string
		var n int
		err := r.Scan(&name, &n)
		counts[name] = n
		return err
	})
	return counts, err
}

// Bearers names the agents, disabled ones too, that bear a word, in the order of their handles.
func (tx *Tx) Bearers(kind, name string) ([]string, error) {
	return tx.ids(`SELECT handle FROM agents WHERE id IN (SELECT agent_id FROM agent_labels WHERE `+bearing[kind].is+`) ORDER BY handle_key`, name)
}

// RemoveFromCatalog makes a word unknown, and of a tag key its values too. Ask for the bearers
// afterwards: an agent that is given the word meanwhile is seen then, and one that is given it later
// makes it known again.
func (tx *Tx) RemoveFromCatalog(kind, name string) error {
	if err := tx.exec(`DELETE FROM catalog WHERE kind = $1 AND name = $2`, kind, name); err != nil || kind != CatalogTag {
		return err
	}
	return tx.exec(`DELETE FROM catalog WHERE kind = $1 AND name >= $2 AND name < $3`, CatalogTagValue, name+"=", name+">") // ">" follows "="
}

// CatalogValues reads the values that the catalog knows of a tag key, each as key=value.
func (tx *Tx) CatalogValues(key string) ([]string, error) {
	return tx.ids(`SELECT name FROM catalog WHERE kind = $1 AND name >= $2 AND name < $3 ORDER BY name`, CatalogTagValue, key+"=", key+">")
}
