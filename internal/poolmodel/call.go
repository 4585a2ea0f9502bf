package poolmodel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// Call is one use of a verb. What a verb does not take is empty.
type Call struct {
	Verb  string
	Actor string
	As    string // the agent_id it gives
	// Root names the workspace; "" is none, which is no path.
	Root    string
	Handoff string // by name; one that was never made names nothing
	Key     string
	Epoch   *int

	Open *Open // create

	Lease    int64  // claim, accept, extend: seconds
	Result   string // complete: JSON
	Text     string // reason, summary, body, feedback
	Pass     bool   // verify
	Asks     bool   // send: expects a reply
	Scope    string // list
	Limit    int    // list: of one page; all pages are read
	To       string // reassign: a handle; block, disable, edit, admit: of whom
	Disabled bool   // disable, block: it is so from now on; admit, restrict: it is not
	Edit     *Agent // edit: what the agent is from now on
}

// Open is what handoff_create takes besides.
type Open struct {
	Target     *Target
	Visibility string
	Payload    string
	Criteria   bool
	VerifyBy   *VerifyBy
	DependsOn  []string // by name
	ExpiresIn  int64
	Priority   string
}

// Reply is what a caller learns. What a verb does not tell is empty.
type Reply struct {
	Code handoff.Code // of the refusal; empty for a success
	// Or are refusals that are as good, where a call has several faults and the documents do not say
	// which one wins.
	Or []handoff.Code
	// HeldBy is who was faster, for whoever may see it.
	HeldBy string
	// Seen are the handoffs that came: one, or those of a list in their order.
	Seen   []Seen
	Status string // the word of the team door, where a verb answers with that only
	// Verifying: the work waits for its verdict.
	Verifying  bool
	Eligible   int
	Notified   []string
	Warned     bool
	Epoch      int
	LeaseEnds  time.Time
	SequenceNo int
	Replay     bool
}

// Seen is a handoff as its reader sees it.
type Seen struct {
	Name        string
	State       handoff.State
	Creator     string
	Holder      string
	Epoch       int
	LeaseEnds   time.Time
	Priority    int
	CreatedAt   time.Time
	Payload     string
	Result      string
	Summary     string
	Verdict     string // pass, fail
	VerifiedBy  string
	Feedback    string
	EndedBy     string
	EndedReason string
	DependsOn   []string // those that the reader may see, sorted
	// Dependencies counts them all: satisfied, pending, failed of a total.
	Dependencies string
	Messages     int // of a thread
}

func (c Call) String() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: %s", c.Actor, c.Verb)
	put := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, " %s=%s", name, value)
		}
	}
	put("handoff", c.Handoff)
	if c.As != c.Actor {
		put("as", c.As)
	}
	put("root", c.Root)
	put("key", c.Key)
	if c.Epoch != nil {
		put("epoch", strconv.Itoa(*c.Epoch))
	}
	if c.Open != nil {
		o := *c.Open
		put("target", string(o.Target.JSON()))
		put("visibility", o.Visibility)
		put("payload", o.Payload)
		if o.Criteria {
			put("criteria", "yes")
		}
		if o.VerifyBy != nil {
			put("verify_by", fmt.Sprintf("%+v", *o.VerifyBy))
		}
		put("depends_on", strings.Join(o.DependsOn, ","))
		put("priority", o.Priority)
		if o.ExpiresIn != 0 {
			put("expires_in", strconv.FormatInt(o.ExpiresIn, 10))
		}
	}
	if c.Lease != 0 {
		put("lease", strconv.FormatInt(c.Lease, 10))
	}
	put("result", c.Result)
	put("text", c.Text)
	if c.Verb == Verify {
		put("pass", strconv.FormatBool(c.Pass))
	}
	if c.Asks {
		put("asks", "yes")
	}
	put("scope", c.Scope)
	if c.Limit != 0 {
		put("limit", strconv.Itoa(c.Limit))
	}
	put("to", c.To)
	if c.Verb == Disable || c.Verb == Block || c.Verb == Admit || c.Verb == Restrict {
		put("disabled", strconv.FormatBool(c.Disabled))
	}
	if c.Edit != nil {
		put("edit", fmt.Sprintf("%+v", *c.Edit))
	}
	return b.String()
}

// The verbs. Those of the team door stand behind their siblings of the pool.
const (
	Create    = "create"
	List      = "list"
	Claim     = "claim" // without a handoff: the next one
	Accept    = "accept"
	Extend    = "extend"
	Release   = "release"
	Deliver   = "complete"
	Complete  = "complete_handoff"
	Verify    = "verify"
	Reject    = "reject"
	Decline   = "decline"
	TakeBack  = "cancel"
	Cancel    = "cancel_handoff"
	Get       = "get"
	View      = "view"
	Send      = "send"
	CancelAny = "operator cancel"
	Reassign  = "operator reassign"
	Disable   = "operator disable"
	Edit      = "operator edit"
	Register  = "operator add"      // an agent that was not there before
	Admit     = "operator admit"    // to a workspace, or with Disabled out of it
	Restrict  = "operator restrict" // a workspace to its members, or with Disabled not any more
	Alias     = "operator alias"    // To is from now on another name of Root
	Block     = "block"
	Inspect   = "operator inspect"
)

// operation is what an idempotency key belongs to: verbs of two doors that mean the same share it.
type operation struct{ actor, verb, key string }

// effect is what was done under a key.
type effect struct {
	print    string
	handoff  *Handoff
	epoch    int
	sequence int
}

func (c Call) operation() operation {
	verb := map[string]string{Accept: Claim, Complete: Deliver, Decline: Reject, Cancel: TakeBack}[c.Verb]
	if verb == "" {
		verb = c.Verb
	}
	return operation{c.Actor, verb, c.Key}
}

// print is the input without key and identity. A handoff that is named stands for its workspace.
func (c Call) print() string {
	c.Key, c.As = "", ""
	summary := ""
	if c.Verb == Complete {
		summary, c.Text = c.Text, ""
	}
	if c.Verb != Create && c.Handoff != "" {
		c.Root = ""
	}
	c.Verb = c.operation().verb
	return c.String() + " summary=" + summary
}

// before looks up what was done under the key of the call. dup: it was something else.
func (m *Model) before(c Call) (e effect, found, dup bool) {
	if c.Key == "" {
		return e, false, false
	}
	e, found = m.keys[c.operation()]
	if found && e.print != c.print() {
		return e, false, true
	}
	return e, found, false
}

func (m *Model) keep(c Call, h *Handoff, sequence int) {
	if c.Key != "" {
		m.keys[c.operation()] = effect{c.print(), h, h.Epoch, sequence}
	}
}
