// The pool by both versions of the TypeScript SDK and by the Python clients, over HTTP and over
// stdio, each time through a kill of the hub.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { same } from "./check.mjs";
import { modernHTTP, modernStdio, olderHTTP, olderStdio } from "./connect.mjs";
import { exact, member, pool } from "./pool.mjs";
import { session } from "./session.mjs";

// crew registers who works at the pool, but for those whose keys are given, and gives all keys by name.
export async function crew(hub, keys = {}) {
  for (const [name, capability] of Object.entries({ anna: "plan", maja: "go", nils: "go", vera: "review" })) {
    keys[name] ??= (await hub.operator("agent", "add", `${name}@acme`, "--capability", capability)).api_key;
  }
  same("agent add registers an agent with its capability", (await hub.operator("agent", "show", "maja@acme")).capabilities, ["go"]);
  return keys;
}

async function restart(hub) {
  await hub.kill();
  await hub.start();
}

export async function pools(hub, keys) {
  const older = (name) => olderHTTP(`${hub.url}/mcp/pool`, keys[name]);
  const modern = (name) => modernHTTP(`${hub.url}/mcp/pool`, keys[name]);
  const all = (name) => modernHTTP(`${hub.url}/mcp`, keys[name]); // the pool among all toolsets
  const stdio = (connect) => (name) => connect(hub, `${name}@acme`, "pool");
  for (const [how, connects, carried] of [
    ["TypeScript SDK over HTTP", { anna: older, maja: older, nils: older, vera: older }, false],
    ["TypeScript SDK over HTTP, 2026-07-28", { anna: all, maja: modern, nils: modern, vera: modern }, false],
    ["TypeScript SDKs over stdio", { anna: stdio(olderStdio), maja: stdio(modernStdio), nils: stdio(olderStdio), vera: stdio(modernStdio) }, true],
  ]) {
    const project_root = `/srv/${how.replaceAll(" ", "-")}`;
    const join = async (name) => member(await connects[name](name), `${name}@acme`, project_root);
    const team = await pool(how, join, () => restart(hub), carried);
    await exact(how, { url: `${hub.url}/mcp/pool`, key: keys.anna, project_root }, team);
    await Promise.all(Object.values(team).map((m) => m.client.close()));
  }
}

// sessions lets the two work on a hub that wants a session with each verb.
export async function sessions(hub, keys) {
  const http = (connect) => (name) => connect(`${hub.url}/mcp/pool`, keys[name]);
  await session("strict, TypeScript SDK over HTTP", http(olderHTTP));
  await session("strict, TypeScript SDK over HTTP, 2026-07-28", http(modernHTTP));
  await session("strict, TypeScript SDK over stdio", (name) => modernStdio(hub, `${name}@acme`, "pool"));
}

// inPython runs one of our programs, which asks for each kill of the hub by a line.
export async function inPython(hub, python, keys, program) {
  const env = { ...process.env, HUB_URL: hub.url, HUB_BINARY: hub.binary, HUB_DATA: hub.data };
  for (const [name, key] of Object.entries(keys)) env[`${name.toUpperCase()}_KEY`] = key;
  const child = spawn(python, [new URL(program, import.meta.url).pathname], { env, stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "close");
  for await (const line of createInterface({ input: child.stdout })) {
    if (line !== "kill the hub") {
      console.log(line);
      continue;
    }
    await restart(hub);
    child.stdin.write("\n");
  }
  const [code] = await ended;
  if (code !== 0) throw new Error(`${program} ended with ${code}`);
}
