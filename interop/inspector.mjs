// The command line of the MCP Inspector, over HTTP and over stdio.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { check, same } from "./check.mjs";

const program = new URL("inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", import.meta.url).pathname;

// inspect runs one method and gives what the Inspector printed and how it ended.
function inspect(home, ...args) {
  return new Promise((resolve) => {
    const child = execFile(process.execPath, [program, "--cli", ...args], { env: { ...process.env, HOME: home }, timeout: 60_000 }, (e, stdout, stderr) => {
      resolve({ code: e ? e.code : 0, stdout, stderr });
    });
    child.stdin.end();
  });
}

export async function inspector(hub, work, anna, frank) {
  const as = (who) => ["--transport", "http", "--header", `Authorization: Bearer ${who.api_key}`];
  await round("Inspector over HTTP", join(work, "home"), [`${hub.url}/mcp/team`, ...as(anna)], [`${hub.url}/mcp/team`, ...as(frank)]);
  await pool("Inspector over HTTP, pool", join(work, "home"), [`${hub.url}/mcp/pool`, ...as(anna)], [`${hub.url}/mcp/pool`, ...as(frank)]);
  const stdio = (who) => [hub.binary, "mcp", "--as", who, "--data", hub.data, "--toolset", "team"];
  await round("Inspector over stdio", join(work, "home"), stdio("anna@acme"), stdio("frank@acme"));
  const refused = await inspect(join(work, "home"), `${hub.url}/mcp/team`, "--transport", "http", "--header", "Authorization: Bearer hc_live_nobody", "--method", "tools/list");
  check("Inspector: an unknown key is no way in", refused.code !== 0 && refused.stdout === "", refused);
}

// by gives run, for any method, and call, for a tool.
function by(home) {
  const run = async (who, method, ...args) => {
    const { code, stdout, stderr } = await inspect(home, ...who, "--method", method, ...args);
    return { code, stderr, out: stdout ? JSON.parse(stdout) : {} };
  };
  const call = (who, tool, args) => run(who, "tools/call", "--tool-name", tool, ...Object.entries(args).flatMap(([k, v]) => ["--tool-arg", `${k}=${v}`]));
  return { run, call };
}

async function pool(how, home, anna, frank) {
  const { run, call } = by(home);
  const listed = await run(anna, "tools/list", "--strict");
  check(`${how}: tools/list --strict finds no error in the schemas`, listed.code === 0 && /^0 errors/m.test(listed.stderr) && listed.out.tools.some((t) => t.name === "handoff_create"), listed);
  const project_root = "/srv/inspector";
  const made = await call(anna, "handoff_create", { project_root, from_agent_id: "anna@acme", target: '{"strategy":"broadcast"}', visibility: "public", payload: '{"n":7}' });
  same(`${how}: handoff_create`, [made.code, made.out.structuredContent?.status], [0, "OPEN"]);
  const mine = { project_root, agent_id: "frank@acme" };
  const claim = await call(frank, "handoff_claim", mine);
  same(`${how}: handoff_claim gives the payload`, [claim.out.structuredContent?.handoff_id, claim.out.structuredContent?.payload], [made.out.structuredContent.handoff_id, { n: 7 }]);
  const held = { ...mine, handoff_id: made.out.structuredContent.handoff_id };
  same(`${how}: handoff_complete`, (await call(frank, "handoff_complete", { ...held, result: "done" })).out.structuredContent?.status, "COMPLETED");
  const again = await call(frank, "handoff_reject", held);
  check(`${how}: a refusal is a tool error`, again.code !== 0 && again.out.structuredContent.error.code === "thread_terminal", again);
}

async function round(how, home, anna, frank) {
  const { run, call } = by(home);
  const listed = await run(anna, "tools/list", "--strict");
  check(`${how}: tools/list --strict finds no error in the schemas`, listed.code === 0 && /^0 errors/m.test(listed.stderr), listed);
  same(`${how}: tools/list names the twelve tools`, listed.out.tools.length, 12);
  check(`${how}: prompts/list`, (await run(anna, "prompts/list")).out.prompts.length > 0);
  check(`${how}: resources/list`, (await run(anna, "resources/list")).out.resources.length > 0);
  const sent = await call(anna, "handoff_to_teammate", { to: "frank@acme", intent: "inform", summary: `By the ${how}.` });
  same(`${how}: tools/call hands off`, [sent.code, sent.out.structuredContent?.status], [0, "pending"]);
  const thread_id = sent.out.structuredContent.thread_id;
  const seen = await call(frank, "check_inbox", { limit: 5 });
  check(`${how}: the other side sees it`, seen.out.structuredContent.items.some((i) => i.thread_id === thread_id), seen);
  same(`${how}: accept`, (await call(frank, "accept_handoff", { thread_id })).out.structuredContent.status, "accepted");
  same(`${how}: complete`, (await call(frank, "complete_handoff", { thread_id, result_summary: "Read." })).out.structuredContent.status, "completed");
  const again = await call(frank, "decline_handoff", { thread_id, reason: "Too late." });
  check(`${how}: a refusal is a tool error`, again.code !== 0 && again.out.isError && again.out.structuredContent.error.code === "thread_terminal", again);
}
