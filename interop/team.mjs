// A handoff from end to end by the official TypeScript SDK (protocol 2025-11-25), through a
// kill of the hub.
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";
import { check, raw, refused, same, tools } from "./check.mjs";
import { olderHTTP } from "./connect.mjs";
import { after } from "./hub.mjs";

const names = [
  "accept_handoff", "block_teammate", "cancel_handoff", "check_inbox", "complete_handoff", "decline_handoff",
  "draft_proposed_action", "handoff_to_teammate", "list_teammates", "send_message", "unblock_teammate", "view_thread",
];

const diff = `--- a/users/list.kt
+++ b/users/list.kt
@@ -1,1 +1,1 @@
-val users = api.users()
+val users = api.users().items
`;

export async function team(hub, anna, frank) {
  const url = `${hub.url}/mcp/team`;
  const a = await olderHTTP(url, anna.api_key);
  const f = await olderHTTP(url, frank.api_key);
  const asAnna = tools(a);
  const asFrank = tools(f);
  same("the TypeScript SDK connects and knows the server", a.getServerVersion().name, "handclasp");

  await toolsList(a);
  await unauthenticated(url);

  // Hand off, and repeat it.
  const handoff = {
    to: "frank@acme", intent: "propose_action",
    summary: "GET /users is paginated now: {items, next_cursor}. The list screen still expects an array.",
    artifacts: [
      { type: "file_ref", path: "openapi.yaml", lines: [42, 67], git_sha: "9f1c2ab" },
      { type: "link", url: "https://example.com/rfc/7", title: "The decision" },
      { type: "test_command", command: "./gradlew :users:test", owner: "kept as an unknown field" },
    ],
    proposed_action: { description: "Follow next_cursor", target_files: ["users/list.kt"], rationale: "The screen shows nothing otherwise." },
    metadata: { sprint: 12 }, idempotency_key: "users-pagination-1",
  };
  const sent = await asAnna("handoff_to_teammate", handoff);
  same("handoff_to_teammate answers pending, with the recipient as given", [sent.status, sent.recipient], ["pending", "frank@acme"]);
  same("inbox_url is below the hub's own address", sent.inbox_url, `${hub.url}/inbox/${sent.thread_id}`);
  const again = await asAnna("handoff_to_teammate", handoff);
  same("the same key again is a replay of the same thread", [again.thread_id, again.idempotent_replay], [sent.thread_id, true]);
  await refused("the same key with other content is duplicate_idempotency_key", asAnna("handoff_to_teammate", { ...handoff, summary: "Other." }), "duplicate_idempotency_key");
  const unknown = await refused("an unknown recipient is a tool error with its code on the first line", asAnna("handoff_to_teammate", { ...handoff, to: "franc@acme", idempotency_key: "k2" }), "recipient_not_found");
  check("its structured content carries code and hint, and the handle that was meant", unknown.structuredContent.error.code === "recipient_not_found" && unknown.structuredContent.error.retryable === false && unknown.content[0].text.includes("frank@acme"), unknown);

  const thread_id = sent.thread_id;
  const inbox = await asFrank("check_inbox");
  same("check_inbox shows it once, unread", inbox.items.map((i) => [i.thread_id, i.status, i.unread_messages]), [[thread_id, "pending", 1]]);
  check("what Anna wrote stands between markers for Frank", /«untrusted .*»/.test(inbox.items[0].summary_preview) && inbox.items[0].summary_preview.includes("paginated"), inbox.items[0]);

  // Accept, and talk.
  const taken = await asFrank("accept_handoff", { thread_id });
  same("accept_handoff gives the thread with its first claim epoch", [taken.status, taken.claim_epoch], ["accepted", 1]);
  same("artifacts arrive as they were sent, unknown fields too", taken.artifacts.map((x) => [x.type, x.path, x.lines, x.url, x.command]), [
    ["file_ref", "openapi.yaml", [42, 67], undefined, undefined], ["link", undefined, undefined, "https://example.com/rfc/7", undefined],
    ["test_command", undefined, undefined, undefined, "./gradlew :users:test"]]);
  check("metadata arrives", taken.metadata.sprint === 12, taken.metadata);
  const asked = await asFrank("send_message", { thread_id, body: "Is next_cursor null on the last page?", expects_reply: true, idempotency_key: "q1" });
  const told = await asAnna("send_message", { thread_id, body: "Yes, null.", payload: { null_on_last: true } });
  same("messages of both sides are numbered without a gap", [asked.sequence_no, told.sequence_no], [2, 3]);
  await numbers(url, anna, frank, thread_id);

  // The kill: what was acknowledged is there, and work goes on.
  await hub.kill();
  await hub.start();
  check("the hub was killed with SIGKILL and serves the same folder again", hub.url + "/mcp/team" === url, hub.url);
  const after1 = await asFrank("view_thread", { thread_id });
  same("after the kill the claim and every message are there", [after1.status, after1.claim_epoch, after1.messages.map((m) => m.sequence_no)], ["accepted", 1, [1, 2, 3, 4]]);
  const q1 = await asFrank("send_message", { thread_id, body: "Is next_cursor null on the last page?", expects_reply: true, idempotency_key: "q1" });
  same("a key used before the kill is a replay after it", [q1.message_id, q1.idempotent_replay], [asked.message_id, true]);

  // The draft, which a person decides about.
  const drafted = await asFrank("draft_proposed_action", { thread_id, suggested_diff: diff });
  same("draft_proposed_action answers drafted", drafted.status, "drafted");
  const waiting = await hub.operator("handoff", "draft", "list");
  same("handoff draft list shows it to the operator", waiting.drafts.map((d) => [d.draft_id, d.suggested_diff]), [[drafted.draft_id, diff]]);
  const decided = await hub.operator("handoff", "draft", "approve", drafted.draft_id);
  same("handoff draft approve decides it", decided.status, "approved");
  same("and nothing waits any more", (await hub.operator("handoff", "draft", "list")).drafts, []);
  for (const [who, call] of [["Anna", asAnna], ["Frank", asFrank]]) {
    const item = (await call("check_inbox")).items.find((i) => i.thread_id === thread_id);
    check(`${who}'s inbox says that the draft was decided`, item?.news.includes("draft.decided"), item);
    same(`${who} sees the approved draft`, (await call("view_thread", { thread_id })).drafts.map((d) => d.status), ["approved"]);
  }

  // Complete.
  await refused("only the holder may complete", asAnna("complete_handoff", { thread_id, result_summary: "Done." }), "not_owner");
  const done = await asFrank("complete_handoff", { thread_id, result_summary: "The screen follows next_cursor.", artifacts: [{ type: "file_diff", path: "users/list.kt", diff }], claim_epoch: 1 });
  check("complete_handoff answers completed, with the time", done.status === "completed" && Date.parse(done.completed_at) > 0, done);
  const news = (await asAnna("check_inbox")).items.find((i) => i.thread_id === thread_id);
  same("the sender's inbox says so", [news.status, news.news.includes("handoff.completed")], ["completed", true]);
  const result = await asAnna("view_thread", { thread_id });
  check("the sender sees the result and its artifact", result.result_summary.includes("follows next_cursor") && result.completion_artifacts[0].diff === diff, result);
  await refused("a completed thread takes no more messages", asAnna("send_message", { thread_id, body: "Thanks." }), "thread_terminal");

  await parked(asAnna, asFrank);
  await Promise.all([a.close(), f.close()]);
}

async function toolsList(client) {
  const { tools: list } = await client.listTools();
  same("tools/list names the twelve tools", list.map((t) => t.name).sort(), names);
  const validator = new AjvJsonSchemaValidator();
  for (const t of list) {
    validator.getValidator(t.inputSchema);
    validator.getValidator(t.outputSchema);
  }
  check("every tool has schemas that the SDK compiles, and validates each result below against", list.every((t) => t.outputSchema?.type === "object" && client.getToolOutputValidator(t.name)), list);
  check("every tool states all four hints", list.every((t) => ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"].every((h) => typeof t.annotations?.[h] === "boolean")), list);
}

async function unauthenticated(url) {
  const ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
  for (const [what, key] of [["no key", ""], ["an unknown key", `hc_live_${"x".repeat(43)}`]]) {
    const r = await raw(url, key, ping);
    const challenge = r.headers.get("WWW-Authenticate") ?? "";
    check(`${what} is 401 with a challenge`, r.status === 401 && challenge.startsWith("Bearer ") && challenge.includes("error=") === (key !== ""), r.status, challenge);
    await r.text();
  }
}

// numbers proves that a number larger than a double holds passes unchanged, on the raw wire.
async function numbers(url, from, to, thread) {
  const payload = '{"id":12345678901234567890,"odd":9007199254740993,"price":1.10,"tiny":1E-7}';
  const call = (name, args) => `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`;
  const sent = await raw(url, from.api_key, call("send_message", `{"thread_id":"${thread}","body":"Exact numbers.","payload":${payload}}`));
  check("a raw tools/call is answered with 200 and JSON", sent.status === 200 && (sent.headers.get("Content-Type") ?? "").startsWith("application/json"), sent.status);
  await sent.text();
  const text = await (await raw(url, to.api_key, call("view_thread", `{"thread_id":"${thread}"}`))).text();
  const at = text.indexOf('"structuredContent":');
  check("64-bit and decimal numbers of a payload come back digit by digit", at > 0 && text.slice(at).includes(`"payload":${payload}`), text);
}

// parked proves that a waiting check_inbox returns as soon as something is committed.
async function parked(asAnna, asFrank) {
  for (const item of (await asFrank("check_inbox")).items) await asFrank("view_thread", { thread_id: item.thread_id });
  same("Frank has read everything", (await asFrank("check_inbox")).unread_total, 0);
  let back = 0;
  const waiting = asFrank("check_inbox", { wait_seconds: 20 }).then((page) => { back = Date.now(); return page; });
  await after(500);
  check("check_inbox with wait_seconds waits while nothing is unread", back === 0);
  const sent = await asAnna("handoff_to_teammate", { to: "frank@acme", intent: "inform", summary: "Wake up." });
  const committed = Date.now();
  const page = await waiting;
  check("and returns with the new handoff within a second of its commit", page.items[0].thread_id === sent.thread_id && back - committed < 1000, back - committed);
  await asAnna("cancel_handoff", { thread_id: sent.thread_id });
  same("a handoff that was taken back is news to its recipient", (await asFrank("check_inbox")).items.map((i) => [i.status, i.news]), [["cancelled", ["handoff.created", "handoff.cancelled"]]]);
  await asFrank("view_thread", { thread_id: sent.thread_id });
}
