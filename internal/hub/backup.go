package hub

import (
	"context"
	"io"
)

// Backup writes what the hub holds at one moment to w, for the operator, while others go on; see
// [store.Store.Backup]. It holds the hashes of keys and the secret that signs sessions.
func (h *Hub) Backup(ctx context.Context, call Call, w io.Writer) error {
	if err := operatorOnly(call); err != nil {
		return err
	}
	return h.st.Backup(ctx, w)
}
