//go:build mutant_payload_to_past_holders

package handoff

// This mutant shows the payload to whoever held the handoff once.
const payloadToPastHolders = true
