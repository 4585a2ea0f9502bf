package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"handclasp/internal/hubtest"
	"handclasp/internal/secrecy"
)

// The command line shows no payload, result or feedback of an open handoff: its user is the operator,
// or an agent that holds nothing. Which commands there are is asked of the command line itself.

// shownBy are the arguments with which each command is tried; $id is a handoff, and $as an agent that
// does not hold it. A command without an entry fails the test.
var shownBy = map[string][]string{
	"business add":        {"$n-shop --name n --channel email --email a@b.example"},
	"agent notify":        {"spare@acme --off"},
	"business list":       {""},
	"business show":       {"anna-shop", "none"},
	"business edit":       {"anna-shop --email b@b.example"},
	"business import":     {"/nowhere/businesses.json"},
	"delivery list":       {"", "--state dead"},
	"delivery resend":     {"$id"},
	"continuation revoke": {"$id"},
	"key rotate-signing":  {"", "--at-once"},
	"notify test":         {"--email a@b.example"},
	"agent add":           {"new$n@acme"}, "agent list": {""}, "agent show": {"frank@acme", "anna@acme"}, "agent edit": {"stan@acme --role r"},
	"agent disable": {"spare@acme"}, "agent enable": {"spare@acme"}, "agent block": {"anna@acme spare@acme"}, "agent unblock": {"anna@acme spare@acme"},
	"agent key list": {"frank@acme"}, "agent key rotate": {"spare@acme"}, "agent key revoke": {"$id"},
	"invite create": {""}, "invite list": {""}, "invite revoke": {"$id"},
	"handoff list": {"", "--all", "--agent frank@acme", "--door pool --workspace /srv/shop"}, "handoff show": {"$id", "$id --limit 1"}, "handoff draft list": {""}, "handoff draft show": {"$id"},
	"handoff draft approve": {"$id"}, "handoff draft decline": {"$id --reason r"},
	"handoff reassign": {"$id spare@acme --reason r"}, "handoff cancel": {"$id --reason r"}, "handoff erase": {"$id --yes"},
	"catalog list": {""}, "catalog add": {"capability paint$n"}, "catalog remove": {"capability paint$n code"},
	"workspace list": {""}, "workspace alias": {"/srv/$n --of /srv/shop"}, "workspace members": {"/srv/shop"},
	"inbox": {"--as $as", "$id --as $as", "$id --as $as --status completed"}, "send": {"spare@acme s --as $as", "nobody@acme s --as $as"},
	"tail": {"--after 0 --no-follow", "--after 0 --no-follow --as $as"}, "export": {""}, "doctor": {""},
	"completion": {"bash"}, "complete": {"handoff show"}, "version": {""},
}

// notShown are the commands that are tried elsewhere.
var notShown = map[string]string{
	"serve": "its routes and its log: internal/secrecy", "mcp": "the agents of this test call through it", "demo": "a hub of its own",
	"backup": "it is the database", "restore": "it fills a database",
}

// leaves are the commands of the command line that can be run.
func leaves(t *testing.T) map[string]*kong.Node {
	t.Helper()
	var c cli
	parser, err := newParser(&c, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]*kong.Node{}
	for _, n := range parser.Model.Leaves(false) {
		list[strings.TrimPrefix(n.Path(), "handclasp ")] = n
	}
	if len(list) < 30 {
		t.Fatalf("only %d commands", len(list))
	}
	return list
}

// tell calls a tool over stdio and gives what came back.
func (c *client) tell(tool, arguments string) string {
	c.t.Helper()
	if _, err := io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+"}}\n"); err != nil {
		c.t.Fatalf("%s: %v %s", tool, err, c.stderr.String())
	}
	select {
	case line := <-c.lines:
		return line
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%s is not answered: %s", tool, c.stderr.String())
		return ""
	}
}

func TestNoCommandShowsThePayloadOfAnOpenHandoff(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			place := where(t, kind)
			aHub(t, place, "anna@acme", "frank@acme", "stan@acme", "spare@acme")
			payloads, results := secrecy.NewVault(), secrecy.NewVault()
			as := map[string]*client{}
			for _, who := range []string{"anna@acme", "frank@acme", "stan@acme"} {
				as[who] = startMCP(t, append([]string{"--as", who}, place...)...)
			}
			ids := fillPool(t, as, payloads, results)
			keeps := func(vault *secrecy.Vault, what, output string) {
				t.Helper()
				if traces := vault.Search([]byte(output)); len(traces) > 0 {
					t.Errorf("%s shows %v: %.600s", what, traces, output)
				}
			}
			silent := func(what, output string) {
				t.Helper()
				keeps(payloads, what, output)
				keeps(results, what, output)
			}
			for _, who := range []string{"anna@acme", "stan@acme"} {
				for _, id := range ids {
					got := as[who].tell("handoff_get", `{"project_root":"/srv/shop","agent_id":"`+who+`","handoff_id":"`+id+`"}`)
					keeps(payloads, "mcp as "+who, got)
					if who != "anna@acme" { // its creator may read a result
						silent("mcp as "+who, got)
					}
					silent("mcp as "+who, as[who].tell("view_thread", `{"thread_id":"`+id+`"}`)+as[who].tell("check_inbox", `{}`))
				}
			}
			// What ends handoffs comes last.
			commands := leaves(t)
			for _, last := range []bool{false, true} {
				for path, node := range commands {
					if ends := strings.HasPrefix(path, "handoff re") || path == "handoff cancel" || path == "handoff erase"; ends == last && notShown[path] == "" {
						tryAll(t, path, node, place, ids, silent)
					}
				}
			}
			for who, c := range as {
				silent("the log of mcp as "+who, c.stderr.String())
			}
		})
	}
}

// fillPool makes handoffs that frank has claimed, delivered, completed, given back and refused, and
// gives their ids.
func fillPool(t *testing.T, as map[string]*client, payloads, results *secrecy.Vault) (ids []string) {
	t.Helper()
	anna, frank := as["anna@acme"], as["frank@acme"]
	for i, after := range [][]string{{}, {"handoff_complete"}, {"handoff_complete"}, {"handoff_release"}, {"handoff_reject"}} {
		payload := payloads.JSON(fmt.Sprint("payload ", i))
		offer := `{"project_root":"/srv/shop","from_agent_id":"anna@acme","target":{"strategy":"direct","agent_id":"frank@acme"},"visibility":"public","payload":` + payload
		if i == 1 {
			offer += `,"acceptance_criteria":["it is green"]`
		}
		var made struct {
			Result struct {
				StructuredContent struct {
					HandoffID string `json:"handoff_id"`
				}
			}
		}
		line := anna.tell("handoff_create", offer+"}")
		if err := json.Unmarshal([]byte(line), &made); err != nil || made.Result.StructuredContent.HandoffID == "" {
			t.Fatalf("%v: %s", err, line)
		}
		id := made.Result.StructuredContent.HandoffID
		ids = append(ids, id)
		at := `{"project_root":"/srv/shop","agent_id":"frank@acme","handoff_id":"` + id + `"}`
		if got := frank.tell("handoff_claim", at); len(payloads.Search([]byte(got))) == 0 {
			t.Fatalf("the claimant is not given the payload: %s", got)
		}
		for _, tool := range after {
			args := at
			if tool == "handoff_complete" {
				args = strings.TrimSuffix(at, "}") + `,"result":` + results.JSON(fmt.Sprint("result ", i)) + "}"
			}
			if got := frank.tell(tool, args); strings.Contains(got, `"isError":true`) {
				t.Fatalf("%s: %s", tool, got)
			}
		}
	}
	return ids
}

// tryAll runs a command in every way, on every handoff.
func tryAll(t *testing.T, path string, node *kong.Node, place, ids []string, silent func(what, output string)) {
	t.Helper()
	ways, ok := shownBy[path]
	if !ok {
		t.Errorf("the command %s has no entry in shownBy: whether it keeps secrets is not known", path)
		return
	}
	for _, way := range ways {
		on := ids
		if !strings.Contains(way, "$id") {
			on = ids[:1]
		}
		for _, id := range on {
			for _, who := range []string{"anna@acme", "stan@acme"} {
				args := append(strings.Fields(path), strings.Fields(strings.NewReplacer("$id", id, "$as", who, "$n", who[:4]).Replace(way))...)
				if flagNamed(node, "--data") != nil {
					args = append(args, place...)
				}
				if flagNamed(node, "--json") != nil && who == "stan@acme" && path != "export" { // which then needs a file
					args = append(args, "--json")
				}
				p := runProgram(context.Background(), args...)
				silent(strings.Join(args, " "), p.stdout.String()+p.stderr.String())
				if p.code != 0 && (strings.HasSuffix(path, " list") || strings.HasSuffix(path, " show") && path != "handoff draft show" && path != "business show" || path == "tail" || path == "export") {
					t.Errorf("%v: exit %d, %s", args, p.code, p.stderr.String())
				}
				if strings.Contains(p.stderr.String(), "unknown flag") || strings.Contains(p.stderr.String(), "unexpected argument") {
					t.Errorf("%v: %s", args, p.stderr.String())
				}
			}
		}
	}
}
