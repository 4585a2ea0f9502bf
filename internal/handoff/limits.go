package handoff

import "time"

// Limits are the bounds on what a caller may send (contracts: errors, "Limits"). Sizes are
// bytes of UTF-8 unless their comment says otherwise.
type Limits struct {
	Summary       int // summary, message body, result_summary
	ShortText     int // purpose, question, description, rationale
	Reason        int // reasons, names, titles, feedback without a limit of their own
	Payload       int // payload and result
	Diff          int // one diff
	Artifacts     int // artifacts per message, a count
	Metadata      int
	MetadataDepth int
	Criteria      int // acceptance criteria, a count
	Criterion     int // one criterion, characters
	Dependencies  int // a count
	TargetFiles   int // a count
	TargetFile    int
	TargetRules   int // rules of a mixed target, a count
	TargetDepth   int
	SelectorKeys  int
	SelectorVals  int // values per key
	SelectorValue int // characters of one value
	TraceID       int
	Email         int
	Handle        int
	Key           int // an idempotency key
	Messages      int // messages per thread, a count
	Drafts        int // drafts per thread, a count; ours
	MinExpiry     time.Duration
	MaxExpiry     time.Duration
	MinLease      time.Duration
	MaxLease      time.Duration
	PoolLease     time.Duration // the default lease of a pool claim
}

// DefaultLimits are the limits of a hub whose operator changed nothing.
func DefaultLimits() Limits {
	return Limits{
		Summary:       64 << 10,
		ShortText:     8 << 10,
		Reason:        4 << 10,
		Payload:       64 << 10,
		Diff:          512 << 10,
		Artifacts:     50,
		Metadata:      16 << 10,
		MetadataDepth: 16,
		Criteria:      20,
		Criterion:     500,
		Dependencies:  20,
		TargetFiles:   100,
		TargetFile:    1024,
		TargetRules:   32,
		TargetDepth:   3,
		SelectorKeys:  16,
		SelectorVals:  20,
		SelectorValue: 256,
		TraceID:       128,
		Email:         254,
		Handle:        256,
		Key:           255,
		Messages:      10_000,
		Drafts:        100,
		MinExpiry:     time.Minute,
		MaxExpiry:     31_536_000 * time.Second,
		MinLease:      10 * time.Second,
		MaxLease:      24 * time.Hour,
		PoolLease:     300 * time.Second,
	}
}
