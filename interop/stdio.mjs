// Both major versions of the TypeScript SDK over stdio: each starts `handclasp mcp` as its server.
import { check, same, tools } from "./check.mjs";
import { modernStdio, olderStdio } from "./connect.mjs";

// stdio lets two clients work on the folder at once, whoever owns it.
export async function stdio(hub, how) {
  const a = await olderStdio(hub, "anna@acme", "team");
  const f = await modernStdio(hub, "frank@acme", "team");
  try {
    same(`stdio, ${how}: tools/list`, [(await a.listTools()).tools.length, (await f.listTools()).tools.length], [12, 12]);
    check(`stdio, ${how}: prompts/list and resources/list`, (await a.listPrompts()).prompts.length > 0 && (await f.listResources()).resources.length > 0);
    const { thread_id } = await tools(a)("handoff_to_teammate", { to: "frank@acme", intent: "inform", summary: "By stdio.", metadata: { n: 7 } });
    check(`stdio, ${how}: the other process sees the handoff`, (await tools(f)("check_inbox")).items.some((i) => i.thread_id === thread_id));
    same(`stdio, ${how}: accept`, (await tools(f)("accept_handoff", { thread_id })).status, "accepted");
    // Parked while the other side works.
    const waits = tools(a)("check_inbox", { wait_seconds: 30, since: new Date().toISOString() });
    same(`stdio, ${how}: complete`, (await tools(f)("complete_handoff", { thread_id, result_summary: "Read." })).status, "completed");
    check(`stdio, ${how}: a parked call wakes up`, (await waits).items.some((i) => i.thread_id === thread_id && i.status === "completed"));
    const late = await tools(f)("decline_handoff", { thread_id, reason: "Too late." }).catch((e) => e.result);
    check(`stdio, ${how}: a refusal is a tool error`, late.isError && late.structuredContent.error.code === "thread_terminal", late);
  } finally {
    await Promise.all([a.close(), f.close()]);
  }
}
