package hub

// Latecomers is how many calls wait because another tries for the handoff.
func (h *Hub) Latecomers(id string) int {
	h.claiming.mu.Lock()
	defer h.claiming.mu.Unlock()
	return len(h.claiming.late[id])
}

// ScanMost bounds what a single call looks at.
func (h *Hub) ScanMost(n int) { h.scanMost = n }

// RetainChunk is how many rows one transaction of [Hub.Retain] removes.
func (h *Hub) RetainChunk(n int) { h.chunk = n }
