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
