package poolmodel_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/poolmodel"
)

// tally counts what the programs reached: a rule that no program ever meets is not tested.
type tally struct {
	mu      sync.Mutex
	calls   map[string]int // by verb
	codes   map[handoff.Code]int
	pairs   map[string]int // verb and code
	replays int
}

func (t *tally) count(c poolmodel.Call, r poolmodel.Reply) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls, t.codes, t.pairs = map[string]int{}, map[handoff.Code]int{}, map[string]int{}
	}
	t.calls[c.Verb]++
	t.codes[r.Code]++
	t.pairs[c.Verb+" "+string(r.Code)]++
	if r.Replay {
		t.replays++
	}
}

// reached are the refusals that programs can meet.
var reached = []handoff.Code{
	handoff.CodeInvalidParams, handoff.CodePermissionDenied, handoff.CodeRecipientNotFound, handoff.CodeNotAParticipant, handoff.CodeNotFound,
	handoff.CodeThreadTerminal, handoff.CodeInvalidTransition, handoff.CodeNotOwner, handoff.CodeLeaseLost, handoff.CodeStaleClaimEpoch,
	handoff.CodeAlreadyClaimed, handoff.CodeDuplicateKey, handoff.CodeTeammateBlocked, handoff.CodeNotEligibleToClaim, handoff.CodeVerifierNotEligible,
	handoff.CodeDependencyNotFound, handoff.CodeDependencyNotMet, handoff.CodeWorkspaceUnresolved,
}

// report prints the counts. Enough programs must have reached every refusal, and every verb a success.
func (t *tally) report(tb testing.TB, programs int) {
	if tb.Failed() {
		return
	}
	total := 0
	for _, n := range t.calls {
		total += n
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d programs, %d calls, %d successes (%d of them replays)", programs, total, t.codes[""], t.replays)
	most := func(a, b handoff.Code) int { return cmp.Compare(t.codes[b], t.codes[a]) }
	for _, code := range slices.SortedFunc(maps.Keys(t.codes), most) {
		if code != "" {
			fmt.Fprintf(b, ", %d %s", t.codes[code], code)
		}
	}
	tb.Log(b)
	if programs < 100 {
		return
	}
	for _, code := range reached {
		if t.codes[code] == 0 {
			tb.Errorf("no call was refused with %s", code)
		}
	}
	for verb := range t.calls {
		if t.pairs[verb+" "] == 0 {
			tb.Errorf("no %s succeeded", verb)
		}
	}
}
