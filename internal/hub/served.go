package hub

import (
	"context"

	"handclasp/internal/store"
)

// Nodes that share a database are configured alike, but for the processes that come and go beside them:
// commands, and `handclasp mcp`. These know the address, and whether mail goes out, from the database.

// Served is what the nodes that listen told of themselves, the last that started before the others.
type Served struct {
	PublicURL string
	Mail      bool
}

const (
	settingServedURL  = "served_url"
	settingServedMail = "served_mail"
)

// TellServed writes down how the nodes of a shared database are reached; on another there is one process
// at a time, and nobody to tell.
func TellServed(ctx context.Context, st *store.Store, s Served) error {
	if !st.Shared() {
		return nil
	}
	mail := "no"
	if s.Mail {
		mail = "yes"
	}
	return st.Write(ctx, func(tx *store.Tx) error {
		return first(
			func() error { return tx.SetSetting(settingServedURL, s.PublicURL) },
			func() error { return tx.SetSetting(settingServedMail, mail) })
	})
}

// ReadServed is what [TellServed] wrote down; nothing where the database is not shared.
func ReadServed(ctx context.Context, st *store.Store) (s Served, err error) {
	if !st.Shared() {
		return s, nil
	}
	err = st.Read(ctx, func(tx *store.Tx) error {
		mail, err := tx.Setting(settingServedMail)
		if err != nil {
			return err
		}
		s.Mail = mail == "yes"
		s.PublicURL, err = tx.Setting(settingServedURL)
		return err
	})
	return s, err
}
