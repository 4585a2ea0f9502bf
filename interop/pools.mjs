// The pool by both versions of the TypeScript SDK and by the Python clients, over HTTP and over
// stdio, each time through a kill of the hub.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { same } from "./check.mjs";
import { modernHTTP, modernStdio, olderHTTP, olderStdio } from "./connect.mjs";
import { exact, member, pool } from "./pool.mjs";

// crew registers who works at the pool, and gives their keys by name.
export async function crew(hub, anna) {
  const keys = { anna: anna.api_key };
  for (const [name, capability] of Object.entries({ maja: "go", nils: "go", vera: "review" })) {
    keys[name] = (await hub.operator("agent", "add", `${name}@acme`, "--capability", capability)).api_key;
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
    const team = {};
    for (const [name, connect] of Object.entries(connects)) team[name] = await member(await connect(name), `${name}@acme`, project_root);
    await pool(how, team, () => restart(hub), carried);
    await exact(how, { url: `${hub.url}/mcp/pool`, key: keys.anna, project_root }, team);
    await Promise.all(Object.values(team).map((m) => m.client.close()));
  }
}

// poolsInPython runs the same in Python, which asks for each kill of the hub by a line.
export async function poolsInPython(hub, python, keys) {
  const env = { ...process.env, HUB_URL: hub.url, HUB_BINARY: hub.binary, HUB_DATA: hub.data };
  for (const [name, key] of Object.entries(keys)) env[`${name.toUpperCase()}_KEY`] = key;
  const child = spawn(python, [new URL("pool.py", import.meta.url).pathname], { env, stdio: ["pipe", "pipe", "inherit"] });
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
  if (code !== 0) throw new Error(`the Python clients at the pool ended with ${code}`);
}
