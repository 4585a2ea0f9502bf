package mcpserver_test

import (
	"bytes"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/mcpserver"
)

// on is a refused call about a handoff; more are further arguments as JSON.
func on(who, tool, id, more string, code handoff.Code, field string, says ...string) refusal {
	args := `"handoff_id":"$` + id + `$"`
	switch tool {
	case "handoff_extend":
		if !strings.Contains(more, "claim_epoch") {
			args += `,"claim_epoch":1`
		}
	case "handoff_verify":
		if !strings.Contains(more, "verdict") {
			args += `,"verdict":"pass"`
		}
	}
	if more != "" {
		args += "," + more
	}
	return refusal{who, tool, args, code, field, says}
}

const (
	stale    = handoff.CodeStaleClaimEpoch
	notOwner = handoff.CodeNotOwner
	over     = handoff.CodeThreadTerminal
	early    = handoff.CodeInvalidTransition
	noJudge  = handoff.CodeVerifierNotEligible
	unseen   = handoff.CodeNotFound
)

func TestAClaimEpochThatIsNotTheCurrentOneIsRefused(t *testing.T) {
	t.Parallel()
	var list []refusal
	for _, tool := range []string{"handoff_extend", "handoff_release", "handoff_complete", "handoff_reject"} {
		for _, epoch := range []string{"0", "2", "99", "2147483648", "9007199254740993"} {
			list = append(list, on("frank", tool, "held", `"claim_epoch":`+epoch, stale, "claim_epoch", epoch+" came", "current one is 1"))
		}
		for _, epoch := range []string{"-1", "1.5", `"x"`, `[1]`, `{}`, "true", "1e400", "99999999999999999999"} {
			list = append(list, on("frank", tool, "held", `"claim_epoch":`+epoch, wrong, "claim_epoch"))
		}
		// Sent back once: the epoch is 2 and has to be named.
		list = append(list, on("frank", tool, "again", `"claim_epoch":1`, stale, "claim_epoch", "1 came", "current one is 2"))
		if tool != "handoff_extend" {
			list = append(list, on("frank", tool, "again", "", stale, "claim_epoch", "none came", "handoff_get"))
		}
		// The lease is over: not the epoch, the claim is gone.
		list = append(list, on("frank", tool, "lost", `"claim_epoch":1`, handoff.CodeLeaseLost, "", "handoff_claim"), on("frank", tool, "lost", `"claim_epoch":7`, handoff.CodeLeaseLost, ""))
	}
	for _, epoch := range []string{"0", "2", "4294967296"} {
		list = append(list,
			on("anna", "handoff_verify", "by creator", `"claim_epoch":`+epoch, stale, "claim_epoch", epoch+" came"),
			on("vera", "handoff_verify", "by agent", `"verdict":"fail","claim_epoch":`+epoch, stale, "claim_epoch"))
	}
	refuseAll(t, append(list, on("frank", "handoff_extend", "held", `"claim_epoch":null`, wrong, "claim_epoch", "required")))
}

func TestWhoeverMayNotVerifyIsRefusedUnderEveryVerifyBy(t *testing.T) {
	t.Parallel()
	feedback := `"verdict":"fail","feedback":`
	refuseAll(t, []refusal{
		// The one who delivered never judges, although frank offers the capability too.
		on("frank", "handoff_verify", "by creator", "", noJudge, ""),
		on("frank", "handoff_verify", "by agent", "", noJudge, ""),
		on("frank", "handoff_verify", "by capability", "", noJudge, ""),
		on("frank", "handoff_verify", "by capability", feedback+`"no"`, noJudge, ""),
		// Others may see it, and are not the ones who judge.
		on("vera", "handoff_verify", "by creator", "", noJudge, ""),
		on("anna", "handoff_verify", "by agent", "", noJudge, ""),
		on("anna", "handoff_verify", "by capability", "", noJudge, ""),
		on("eve", "handoff_verify", "by creator", "", noJudge, ""),
		on("eve", "handoff_verify", "by capability", `"claim_epoch":1`, noJudge, ""),
		on("eve", "handoff_verify", "held", "", noJudge, ""),
		on("anna", "handoff_verify", "held", "", noJudge, ""), // without a contract there is nobody
		// The right one at the wrong time.
		on("anna", "handoff_verify", "contract", "", early, ""),
		on("anna", "handoff_verify", "again", `"claim_epoch":2`, early, ""),
		// A verdict that contradicts itself.
		on("anna", "handoff_verify", "by creator", `"verdict":"pass","feedback":"good"`, wrong, "feedback", "pass", "fail"),
		on("anna", "handoff_verify", "by creator", `"verdict":"PASS","feedback":"good"`, wrong, "feedback"),
		on("anna", "handoff_verify", "by creator", `"verdict":"maybe"`, wrong, "verdict", "maybe", "pass, fail"),
		on("anna", "handoff_verify", "by creator", `"verdict":"passed"`, wrong, "verdict", "did you mean pass?"),
		on("anna", "handoff_verify", "by creator", `"verdict":null`, wrong, "verdict", "required"),
		on("anna", "handoff_verify", "by creator", `"verdict":true`, wrong, "verdict", "a boolean"),
		on("anna", "handoff_verify", "by creator", feedback+`"`+text(2001)+`"`, large, "feedback", "2001", "2000"),
		on("anna", "handoff_verify", "by creator", feedback+`{"a":1}`, wrong, "feedback", "an object"),
		on("anna", "handoff_verify", "by creator", feedback+`"a\u0000"`, wrong, "feedback", "NUL"),
	})
}

func TestEachVerbOfThePoolRefusesWithItsCode(t *testing.T) {
	t.Parallel()
	list := func(args string, code handoff.Code, field string, says ...string) refusal {
		return refusal{"anna", "handoff_list_available", args, code, field, says}
	}
	refuseAll(t, []refusal{
		on("frank", "handoff_claim", "nowhere", "", unseen, ""),
		on("frank", "handoff_claim", "hidden", "", unseen, ""),
		on("frank", "handoff_claim", "elsewhere", "", unseen, ""),
		on("frank", "handoff_claim", "done", "", over, "", "COMPLETED"),
		on("frank", "handoff_claim", "expired", "", over, "", "EXPIRED"),
		on("frank", "handoff_claim", "blocked", "", handoff.CodeDependencyNotMet, "", "1", "pending"),
		on("vera", "handoff_claim", "open", "", handoff.CodeNotEligibleToClaim, ""),
		on("anna", "handoff_claim", "open", "", handoff.CodeNotEligibleToClaim, ""),
		on("frank", "handoff_claim", "open", `"lease_seconds":9`, wrong, "lease_seconds", "9", "10"),
		on("frank", "handoff_claim", "open", `"lease_seconds":86401`, wrong, "lease_seconds", "86401", "86400"),
		on("frank", "handoff_claim", "open", `"timeout_seconds":51`, wrong, "timeout_seconds", "51", "50"),
		on("frank", "handoff_claim", "open", `"timeout_seconds":-1`, wrong, "timeout_seconds", "-1"),
		on("frank", "handoff_claim", "open", `"idempotency_key":"`+text(256)+`"`, large, "idempotency_key"),
		{"frank", "handoff_claim", `"handoff_id":7`, wrong, "handoff_id", []string{"a number"}},
		{"frank", "handoff_claim", `"handoff_id":"a\u0000"`, wrong, "handoff_id", []string{"NUL"}},
		{"frank", "handoff_claim", `"handoff_id":"` + text(5000) + `"`, unseen, "", nil},
		{"frank", "handoff_claim", `"handoff_id":"' OR 1=1 --"`, unseen, "", nil},
		on("frank", "handoff_extend", "held", `"idempotency_key":"used","lease_seconds":60`, handoff.CodeDuplicateKey, "idempotency_key"),
		on("frank", "handoff_extend", "held", `"lease_seconds":5`, wrong, "lease_seconds"),
		on("frank", "handoff_extend", "by creator", "", early, ""),
		on("frank", "handoff_extend", "open", "", notOwner, ""),
		on("anna", "handoff_extend", "held", "", notOwner, ""),
		on("frank", "handoff_release", "done", "", over, ""),
		on("frank", "handoff_release", "by creator", "", early, ""),
		on("frank", "handoff_release", "named", "", early, "", "handoff_claim"),
		on("anna", "handoff_release", "held", "", notOwner, ""),
		on("frank", "handoff_release", "held", `"reason":"`+text(4097)+`"`, large, "reason", "4097", "4096"),
		on("frank", "handoff_release", "held", `"reason":["a"]`, wrong, "reason", "a list"),
		on("frank", "handoff_complete", "done", `"result":"another"`, over, ""),
		on("frank", "handoff_complete", "by creator", `"result":"another"`, early, ""),
		on("frank", "handoff_complete", "open", "", notOwner, ""),
		on("frank", "handoff_complete", "named", "", early, "", "handoff_claim"),
		on("anna", "handoff_complete", "held", "", notOwner, ""),
		on("frank", "handoff_complete", "held", `"result":"`+text(64<<10)+`"`, large, "result", "65536"),
		on("frank", "handoff_reject", "open", "", notOwner, ""),
		on("frank", "handoff_reject", "by agent", "", early, ""),
		on("frank", "handoff_reject", "done", "", over, ""),
		on("frank", "handoff_reject", "rejected", `"reason":"another"`, over, ""),
		on("anna", "handoff_reject", "held", "", notOwner, "", "handoff_cancel"),
		on("frank", "handoff_reject", "held", `"reason":"`+text(4097)+`"`, large, "reason"),
		on("anna", "handoff_cancel", "held", "", early, "", "handoff_reject"),
		on("anna", "handoff_cancel", "by agent", "", early, ""),
		on("anna", "handoff_cancel", "done", "", over, ""),
		on("anna", "handoff_cancel", "cancelled", `"reason":"another"`, over, ""),
		on("anna", "handoff_cancel", "expired", "", over, ""),
		on("frank", "handoff_cancel", "open", "", notOwner, ""),
		on("eve", "handoff_cancel", "open", `"reason":"`+text(4097)+`"`, large, "reason"),
		on("frank", "handoff_get", "open", `"known_status":"pending"`, wrong, "known_status", "pending", "OPEN, CLAIMED, VERIFYING"),
		on("frank", "handoff_get", "open", `"known_status":7`, wrong, "known_status", "a number"),
		on("frank", "handoff_get", "open", `"timeout_seconds":"soon"`, wrong, "timeout_seconds", "soon"),
		on("frank", "handoff_get", "open", `"handoff_id":"left out"`, wrong, "handoff_id", "required"),
		on("frank", "handoff_get", "open", `"handoff_id":""`, wrong, "handoff_id", "empty"),
		list(`"scope":"mine"`, wrong, "scope", "mine", "mine_created, mine_claimed"),
		list(`"scope":["available"]`, wrong, "scope", "a list"),
		list(`"limit":0`, wrong, "limit", "0", "1..500"),
		list(`"limit":501`, wrong, "limit", "501", "1..500"),
		list(`"limit":"many"`, wrong, "limit", "many"),
		list(`"cursor":"junk"`, wrong, "cursor", "junk", "next_cursor"),
		list(`"cursor":"MC4w"`, wrong, "cursor", "next_cursor"),
		list(`"cursor":"MC4xLiAAAA"`, wrong, "cursor", "next_cursor"),
		list(`"cursor":"`+text(3000)+`"`, wrong, "cursor", "…"),
		list(`"project_root":"shop"`, handoff.CodeWorkspaceUnresolved, "project_root"),
		list(`"agent_id":"frank@acme"`, handoff.CodePermissionDenied, "agent_id", "frank@acme", "anna@acme"),
	})
}

// poolTools are the tools of the set with what a call about a handoff needs besides.
func poolTools(t *testing.T) map[string]string {
	more := map[string]string{"handoff_extend": `"claim_epoch":1`, "handoff_verify": `"verdict":"pass"`, "handoff_complete": `"result":1`}
	tools := map[string]string{}
	for _, d := range mcpserver.Definitions("pool") {
		if strings.HasPrefix(d.Name, "handoff_") && d.Name != "handoff_create" && d.Name != "handoff_list_available" {
			tools[d.Name] = more[d.Name]
		}
	}
	if len(tools) < 8 {
		t.Fatalf("only %d tools", len(tools))
	}
	return tools
}

func TestWhoNamesAnotherAgentIsRefusedBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	var list []refusal
	for tool, more := range poolTools(t) {
		for _, id := range []string{"held", "hidden", "nowhere"} {
			for _, name := range []string{"frank@acme", "anna@globex", "operator"} {
				args := `"agent_id":"` + name + `","handoff_id":"$` + id + `$"`
				if more != "" {
					args += "," + more
				}
				list = append(list, refusal{"anna", tool, args, handoff.CodePermissionDenied, "agent_id", []string{name, "you are anna@acme"}})
			}
		}
	}
	refuseAll(t, list)
}

func TestAPoolHandoffThatIsHiddenIsNotFoundLikeOneThatNeverWas(t *testing.T) {
	t.Parallel()
	b := newBadWorld(t, "sqlite")
	ask := func(tool, id, more string) reply {
		args := `"handoff_id":"` + id + `"`
		if more != "" {
			args += "," + more
		}
		r := b.eve.call(tool, b.arguments(t, b.eve, tool, args))
		r.mustRefuse(t, tool, unseen)
		return r
	}
	for tool, more := range poolTools(t) {
		never := ask(tool, b.ids["nowhere"], more)
		for _, name := range []string{"hidden", "elsewhere", "thread"} {
			hidden := ask(tool, b.ids[name], more)
			if !bytes.Equal(bytes.ReplaceAll(hidden.raw, []byte(b.ids[name]), []byte(b.ids["nowhere"])), never.raw) {
				t.Errorf("%s tells what is %s from what never was:\n%s\n%s", tool, name, hidden.raw, never.raw)
			}
		}
	}
	depend := func(id string) reply {
		r := b.eve.call("handoff_create", b.arguments(t, b.eve, "handoff_create", `"depends_on":["`+id+`"]`))
		r.mustRefuse(t, "handoff_create", handoff.CodeDependencyNotFound)
		return r
	}
	never := depend(b.ids["nowhere"])
	for _, name := range []string{"hidden", "elsewhere", "thread"} {
		if hidden := depend(b.ids[name]); !bytes.Equal(bytes.ReplaceAll(hidden.raw, []byte(b.ids[name]), []byte(b.ids["nowhere"])), never.raw) {
			t.Errorf("a dependency tells what is %s from what never was:\n%s\n%s", name, hidden.raw, never.raw)
		}
	}
}
