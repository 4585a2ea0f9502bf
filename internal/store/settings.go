package store

// SettingOrNew reads a setting, storing fresh first where there is none. Two nodes that do so
// at once get the same value.
func (tx *Tx) SettingOrNew(name, fresh string) (string, error) {
	if err := tx.exec(`INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, fresh); err != nil {
		return "", err
	}
	var value string
	err := tx.row(`SELECT value FROM settings WHERE name = $1`, name).scan(&value)
	return value, err
}

// Setting reads a setting; empty where there is none.
func (tx *Tx) Setting(name string) (string, error) {
	var value string
	err := tx.row(`SELECT value FROM settings WHERE name = $1`, name).scan(&value)
	if IsNoRows(err) {
		err = nil
	}
	return value, err
}

// SetSetting stores a setting, in place of what it was.
func (tx *Tx) SetSetting(name, value string) error {
	return tx.exec(`INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
}
