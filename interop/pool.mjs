// The whole life of an open handoff: offered, claimed, judged, sent back, done; what depends on it
// unblocks and goes to a call that was parked for it.
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";
import { check, raw, refused, same, tools } from "./check.mjs";
import { after } from "./hub.mjs";

const names = [
  "handoff_cancel", "handoff_claim", "handoff_complete", "handoff_create", "handoff_extend", "handoff_get",
  "handoff_list_available", "handoff_reject", "handoff_release", "handoff_verify", "agent_whoami", "capability_list", "event_wait",
];

// member calls the pool's tools as one agent in one project: the verbs on handoffs by name, others
// by tool. Refusals must fit the output schema too.
export async function member(client, handle, project_root) {
  const { tools: list } = await client.listTools();
  const validator = new AjvJsonSchemaValidator();
  const fits = Object.fromEntries(list.map((t) => [t.name, validator.getValidator(t.outputSchema)]));
  const call = tools(client);
  const tool = async (name, args = {}) => {
    try {
      return await call(name, args);
    } catch (e) {
      const fit = e.result && fits[name](e.result.structuredContent);
      if (fit && !fit.valid) throw new Error(`NOT ok: a refusal of ${name} fits its output schema\n${fit.errorMessage}`, { cause: e });
      throw e;
    }
  };
  const act = (verb, args = {}) => tool(`handoff_${verb}`, { project_root, [verb === "create" ? "from_agent_id" : "agent_id"]: handle, ...args });
  const events = (args) => tool("event_wait", { project_root, agent_id: handle, ...args });
  return Object.assign(act, { handle, tool, events, tools: list.map((t) => t.name), client });
}

// pool lets anna offer, maja and nils work, and vera judge; join connects one of them. kill ends the
// hub with SIGKILL and starts it again; carried says that a parked call outlives that, as it does
// over stdio.
export async function pool(how, join, kill, carried) {
  const [anna, first_maja, nils, vera] = await Promise.all(["anna", "maja", "nils", "vera"].map(join));
  let maja = first_maja;
  const is = (what, ...rest) => same(`${how}: ${what}`, ...rest);
  const no = (what, call, code) => refused(`${how}: ${what}: ${code}`, call, code);
  const target = { strategy: "capability", capability: "go" };

  is("tools/list of the pool", names.filter((n) => !maja.tools.includes(n)), []);
  const offers = (await anna.tool("capability_list")).capabilities.find((c) => c.capability === "go");
  is("capability_list says who offers one", offers.agents.map((a) => a.handle).sort(), ["maja@acme", "nils@acme"]);

  // Offer.
  const offer = {
    target, visibility: "public", priority: "high", payload: { issue: 7, ratio: 0.25, text: "é \u2028 «x»", none: null, list: [true, {}] },
    acceptance_criteria: ["The tests pass.", "No new dependency."], verify_by: { kind: "capability", capability: "review" }, idempotency_key: `${how} first`,
  };
  const first = await anna("create", offer);
  is("handoff_create answers OPEN with who matches now", [first.status, first.eligible_count, first.warning], ["OPEN", 2, undefined]);
  const again = await anna("create", offer);
  is("the same key again is a replay", [again.handoff_id, again.idempotent_replay], [first.handoff_id, true]);
  await no("the same key with another payload", anna("create", { ...offer, payload: 1 }), "duplicate_idempotency_key");
  const second = await anna("create", { target, visibility: "eligible", payload: "second", depends_on: [first.handoff_id] });
  is("a dependent is blocked", second.dependencies, { total: 1, satisfied: 0, pending: 1, failed: 0 });
  await no("an unknown capability", anna("create", { ...offer, target: { strategy: "capability", capability: "gno" }, idempotency_key: `${how} gno` }), "invalid_params");
  await no("another agent's name", maja("list_available", { agent_id: "nils@acme" }), "permission_denied");

  // List and claim.
  const handoff_id = first.handoff_id;
  const page = await maja("list_available");
  is("handoff_list_available shows what can be claimed, without payload", page.handoffs.map((h) => [h.handoff_id, h.payload, h.priority]), [[handoff_id, undefined, "high"]]);
  is("and nothing to whom it does not match", (await vera("list_available")).handoffs, []);
  await no("whom it does not match", vera("claim", { handoff_id }), "not_eligible_to_claim");
  await no("what is blocked", nils("claim", { handoff_id: second.handoff_id }), "dependency_not_met");
  const claim = await maja("claim", { handoff_id, lease_seconds: 60, idempotency_key: `${how} claim` });
  is("handoff_claim gives the payload as it was offered", [claim.status, claim.claim_epoch, claim.payload], ["CLAIMED", 1, offer.payload]);
  is("the criteria arrive fenced", claim.acceptance_criteria.map((c, i) => c.includes(offer.acceptance_criteria[i]) && c.includes("«untrusted ")), [true, true]);
  const late = await no("the loser is told who holds it", nils("claim", { handoff_id }), "handoff_already_claimed");
  is("by name", late.structuredContent.error.details.claimed_by, "maja@acme");
  is("the creator sees who holds it and no payload", await anna("get", { handoff_id }).then((h) => [h.claimed_by, h.payload]), ["maja@acme", undefined]);
  const longer = await maja("extend", { handoff_id, claim_epoch: 1, lease_seconds: 600 });
  check(`${how}: handoff_extend moves the end of the lease`, Date.parse(longer.lease_expires_at) > Date.parse(claim.lease_expires_at) + 500_000, longer, claim);
  await no("only the holder delivers", nils("complete", { handoff_id, result: 1 }), "not_owner");

  // Deliver, and be sent back.
  is("with criteria, delivering is VERIFYING", (await maja("complete", { handoff_id, result: { pull: 1 }, claim_epoch: 1 })).status, "VERIFYING");
  await no("nobody judges their own work", maja("verify", { handoff_id, verdict: "pass" }), "verifier_not_eligible");
  const judged = (await vera("list_available", { scope: "to_verify" })).handoffs;
  is("the verifier finds it with its result", judged.map((h) => [h.handoff_id, h.result]), [[handoff_id, { pull: 1 }]]);
  const fail = { handoff_id, verdict: "fail", feedback: "One test fails.", claim_epoch: 1, idempotency_key: `${how} fail` };
  is("fail gives it back with a new epoch", await vera("verify", fail).then((h) => [h.status, h.claimed_by, h.claim_epoch]), ["CLAIMED", "maja@acme", 2]);

  // The kill.
  const park = () => {
    const waits = { claimed: nils("claim", { timeout_seconds: 50, lease_seconds: 60 }), ended: anna("get", { handoff_id, known_status: "CLAIMED", timeout_seconds: 50 }), back: 0 };
    for (const w of [waits.claimed, waits.ended]) w.finally(() => waits.back++).catch(() => {});
    return waits;
  };
  let waits = carried && park();
  await kill();
  const replay = await vera("verify", fail);
  is("after kill -9 of the hub, a key used before is a replay", [replay.idempotent_replay, replay.claim_epoch], [true, 2]);
  await no("the claim of a key used before the verdict stands no more", maja("claim", { handoff_id, lease_seconds: 60, idempotency_key: `${how} claim` }), "lease_lost");
  waits ||= park();
  await maja.client.close();
  maja = await join("maja");
  const self = await maja.tool("agent_whoami");
  is("agent_whoami tells a worker that was restarted who it is and what it holds",
    [self.handle, self.capabilities, self.open_claims.map((c) => [c.handoff_id, c.claim_epoch])], ["maja@acme", ["go"], [[handoff_id, 2]]]);
  const told = await maja("get", { handoff_id });
  check(`${how}: the executor sees the feedback, fenced`, told.verification.verdict === "fail" && /«untrusted [^]*One test fails\./.test(told.verification.feedback), told);
  await no("the old epoch is fenced off", maja("complete", { handoff_id, result: { pull: 2 }, claim_epoch: 1 }), "stale_claim_epoch");
  await after(300);
  is("a claim of the next one and a get with known_status are parked", waits.back, 0);

  // Deliver again, and pass.
  is("delivered again", (await maja("complete", { handoff_id, result: { pull: 2 }, claim_epoch: 2 })).status, "VERIFYING");
  is("the creator's parked get returns", (await waits.ended).status, "VERIFYING");
  waits.ended = anna("get", { handoff_id, known_status: "VERIFYING", timeout_seconds: 50 });
  is("pass completes it", await vera("verify", { handoff_id, verdict: "pass", claim_epoch: 2 }).then((h) => [h.status, h.verification.verdict, h.verification.verified_by]), ["COMPLETED", "pass", "vera@acme"]);
  is("the creator has the result", await waits.ended.then((h) => [h.status, h.result]), ["COMPLETED", { pull: 2 }]);
  const next = await waits.claimed;
  is("and the parked claim gets what was blocked", [next.handoff_id, next.status, next.payload, next.dependencies.satisfied], [second.handoff_id, "CLAIMED", "second", 1]);
  await no("what is done is done", nils("claim", { handoff_id }), "thread_terminal");
  await log(is, anna, handoff_id);

  // Give back, refuse, take back.
  is("handoff_release opens it again", (await nils("release", { handoff_id: next.handoff_id, reason: "No time." })).status, "OPEN");
  is("for the next", await maja("claim").then((h) => [h.handoff_id, h.claim_epoch]), [next.handoff_id, 2]);
  await no("the former holder has lost it", nils("complete", { handoff_id: next.handoff_id, claim_epoch: 1 }), "lease_lost");
  await no("a held one is not taken back", anna("cancel", { handoff_id: next.handoff_id }), "invalid_transition");
  is("handoff_reject ends it", (await maja("reject", { handoff_id: next.handoff_id, claim_epoch: 2, reason: "Not worth it." })).status, "REJECTED");
  check(`${how}: and its creator is told why`, (await anna("get", { handoff_id: next.handoff_id })).ended_reason.includes("Not worth it."));
  const third = await anna("create", { target, visibility: "private" });
  is("handoff_cancel takes it back", (await anna("cancel", { handoff_id: third.handoff_id, reason: "A mistake." })).status, "CANCELLED");
  is("nothing is left to claim", await nils("claim", { timeout_seconds: 1 }).then((h) => [h.handoff_id, h.timed_out]), [null, true]);
  return { anna, maja, nils, vera };
}

// log reads the whole story of a handoff, page by page, and then waits for what comes next.
async function log(is, anna, handoff_id) {
  const story = [];
  let cursor = "0";
  for (let more = true; more;) {
    const page = await anna.events({ stream: "handoff", filters: { handoff_id }, cursor, limit: 3 });
    story.push(...page.events);
    [cursor, more] = [page.next_cursor, page.has_more];
  }
  is("event_wait tells the whole story", story.map((e) => e.type.replace("handoff.", "")),
    ["created", "claimed", "extended", "verification_requested", "verification_failed", "verification_requested", "completed"]);
  is("without a gap", story.map((e) => e.event_seq), [1, 2, 3, 4, 5, 6, 7]);
  const news = anna.events({ filters: { type: "handoff.created" }, timeout_seconds: 50 });
  await after(300);
  const { handoff_id: next } = await anna("create", { target: { strategy: "direct", agent_id: "vera@acme" }, visibility: "private" });
  is("and wakes for the next event of the workspace", (await news).events.map((e) => [e.type, e.handoff_id]), [["handoff.created", next]]);
  await anna("cancel", { handoff_id: next });
}

// exact offers a payload as text, for no JavaScript program can write these numbers, and finds its
// text in what the claimant gets.
export async function exact(how, { url, key, project_root }, { maja }) {
  const payload = '{"id":12345678901234567890,"odd":9007199254740993,"price":1.10,"tiny":1E-7,"escaped":"\\u00e9\\/"}';
  const body = (name, args) => `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`;
  const sent = await raw(url, key, body("handoff_create",
    `{"project_root":"${project_root}","from_agent_id":"anna@acme","target":{"strategy":"direct","agent_id":"maja@acme"},"visibility":"private","payload":${payload}}`));
  const { handoff_id } = (await sent.json()).result.structuredContent;
  const result = await maja.client.callTool({ name: "handoff_claim", arguments: { project_root, agent_id: "maja@acme", handoff_id } });
  same(`${how}: the payload's value`, result.structuredContent.payload, JSON.parse(payload));
  check(`${how}: the payload's text, number by number`, result.content[0].text.includes(payload), result.content[0].text);
  await maja("complete", { handoff_id });
}
