// Both major versions of the TypeScript SDK over stdio: each starts `handclasp mcp` as its server.
import { Client as Modern } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { check, same, tools } from "./check.mjs";

const me = { name: "handclasp-interop", version: "0.0.0" };

function server(hub, as) {
  return { command: hub.binary, args: ["mcp", "--as", as, "--data", hub.data, "--toolset", "team"], stderr: "inherit" };
}

// overStdio connects an older client, whose revision is 2025-11-25.
export async function overStdio(hub, as) {
  const client = new Client(me);
  await client.connect(new StdioClientTransport(server(hub, as)));
  return client;
}

// stdio lets two clients work on the folder at once, whoever owns it.
export async function stdio(hub, how) {
  const a = await overStdio(hub, "anna@acme");
  const f = new Modern(me, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await f.connect(new ModernStdio(server(hub, "frank@acme")));
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
