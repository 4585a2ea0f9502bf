// A round trip by the second major version of the TypeScript SDK, pinned to protocol
// 2026-07-28.
import { check, same, tools } from "./check.mjs";
import { modernHTTP } from "./connect.mjs";

export async function modern(hub, anna, frank) {
  // All toolsets together, as most people configure it.
  const a = await modernHTTP(`${hub.url}/mcp`, anna.api_key);
  const f = await modernHTTP(`${hub.url}/mcp/team`, frank.api_key);
  same("2026-07-28: the client negotiates that revision", a.getNegotiatedProtocolVersion(), "2026-07-28");
  check("2026-07-28: tools/list has the toolset", (await a.listTools()).tools.some((t) => t.name === "handoff_to_teammate"));
  const { thread_id } = await tools(a)("handoff_to_teammate", { to: "frank@acme", intent: "ask_question", summary: "May I merge?", question: "Now?" });
  same("2026-07-28: the inbox shows the handoff", (await tools(f)("check_inbox")).items.map((i) => i.thread_id), [thread_id]);
  same("2026-07-28: accept", (await tools(f)("accept_handoff", { thread_id })).status, "accepted");
  same("2026-07-28: complete", (await tools(f)("complete_handoff", { thread_id, result_summary: "Yes." })).status, "completed");
  same("2026-07-28: the sender sees it", (await tools(a)("view_thread", { thread_id })).status, "completed");
  await Promise.all([a.close(), f.close()]);
}
