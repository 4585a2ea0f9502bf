// Package poolmodel is the pool's contract a second time, small and slow: a hub in memory that
// answers each call as the documents say (domain: the words and the rules; contract: open handoffs).
// It shares no rule with package handoff. Random programs run on it and on the real hub, and every
// reply has to be the same.
//
// The model has no sweeper and needs none: before each call it lets happen what the clock has
// brought, in the order of time, whether or not the real hub has written that down.
package poolmodel
