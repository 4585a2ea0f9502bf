package mcpserver_test

import (
	"context"
	"slices"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// deskCanaryCalls are [canaryCalls] of the desk. They run in the order of the tool table: what anna
// hands on frank redeems, and what he answers she reads.
var deskCanaryCalls = map[string]func(n *nest) []reading{
	"initiate_handoff": func(n *nest) []reading {
		name, channel, form := n.egg("O_business"), "form", "https://shop.example/contact"
		if _, err := n.Hub.AddBusiness(context.Background(), hubtest.Operator(), hub.BusinessInput{Slug: "shop", Name: &name, Channel: &channel, FormURL: &form}); err != nil {
			panic(err)
		}
		return n.reads(n.anna, "initiate_handoff",
			n.onward("on", "agent"), n.onward("on", "agent"), n.onward("told", "human"), n.onward("told", "agent"), map[string]any{"slug": "none", "mode": "human", "idempotency_key": "k"})
	},
	"get_handoff_status": func(n *nest) []reading {
		told, _ := n.anna.ok("initiate_handoff", n.onward("told", "human"))["handoff_id"].(string)
		return slices.Concat(
			n.reads(n.anna, "get_handoff_status", map[string]any{"handoff_id": told}, map[string]any{"handoff_id": n.full}),
			n.reads(n.frank, "get_handoff_status", map[string]any{"handoff_id": told}))
	},
	"reply_to_person": func(n *nest) []reading {
		told, _ := n.anna.ok("initiate_handoff", n.onward("told", "human"))["handoff_id"].(string)
		return slices.Concat(
			n.reads(n.anna, "reply_to_person", map[string]any{"handoff_id": told, "body": n.egg("A_reply")}, map[string]any{"handoff_id": n.full, "body": "b"}),
			n.reads(n.anna, "view_thread", n.thread(told)), n.reads(n.frank, "reply_to_person", map[string]any{"handoff_id": told, "body": "b"}))
	},
	"redeem_continuation": func(n *nest) []reading {
		made := n.anna.ok("initiate_handoff", n.onward("on", "agent"))
		id, _ := made["handoff_id"].(string)
		token := map[string]any{"handshake_token": made["handshake_token"], "idempotency_key": "take"}
		out := n.reads(n.frank, "redeem_continuation", token, token, map[string]any{"continuation_url": made["continuation_url"]}, map[string]any{"handshake_token": "a.b.c"})
		n.frank.ok("send_message", map[string]any{"thread_id": id, "body": n.egg("F_deskbody")})
		out = append(out, n.reads(n.anna, "get_handoff_status", map[string]any{"handoff_id": id})...)
		n.frank.ok("complete_handoff", map[string]any{"thread_id": id, "result_summary": n.egg("F_deskresult")})
		for _, who := range []*caller{n.anna, n.frank} {
			out = append(out, n.reads(who, "view_thread", n.thread(id))...)
			out = append(out, n.reads(who, "get_handoff_status", map[string]any{"handoff_id": id})...)
		}
		return out
	},
	"find_business": func(n *nest) []reading {
		return n.reads(n.frank, "find_business", map[string]any{}, map[string]any{"query": "SHOP", "limit": 1}, map[string]any{"query": "none"})
	},
}

// onward hands a user on, with a canary in every free field.
func (n *nest) onward(key, mode string) map[string]any {
	return map[string]any{
		"slug": "shop", "mode": mode, "idempotency_key": key, "purpose": n.egg("A_purpose"), "reason": n.egg("A_deskreason"), "contact_name": n.egg("A_cname"),
		"contact_email": "CANARY_A_cmail@example.com", "contact_phone": word("A_cphone"), "reservation_id": n.egg("A_reservation"), "agent_id": n.egg("A_label"),
	}
}
