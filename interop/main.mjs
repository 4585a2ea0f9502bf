// Starts a hub, registers two agents while it serves, and lets every client go its round.
//
//   node main.mjs BINARY WORKDIR GO_CLIENT [PYTHON]
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { check } from "./check.mjs";
import { desk } from "./desk.mjs";
import { Hub } from "./hub.mjs";
import { inspector } from "./inspector.mjs";
import { modern } from "./modern.mjs";
import { patience } from "./patience.mjs";
import { crew, inPython, pools, sessions } from "./pools.mjs";
import { stdio } from "./stdio.mjs";
import { team } from "./team.mjs";

const [binary, work, goClient, python] = process.argv.slice(2);
const running = new Set();

// client runs a program that checks by itself.
async function client(env, program, ...args) {
  const child = spawn(program, args, { env, stdio: ["ignore", "inherit", "inherit"] });
  running.add(child);
  const [code] = await once(child, "exit");
  running.delete(child);
  if (code !== 0) throw new Error(`${[program, ...args].join(" ")} ended with ${code}`);
}

let hub = new Hub(binary, join(work, "data"), join(work, "hub.pid"));
try {
  await hub.start();
  const anna = await hub.operator("agent", "add", "anna@acme", "--role", "backend");
  const frank = await hub.operator("agent", "add", "frank@acme", "--role", "android");
  check("agent add gives keys through owner.sock while the hub serves", [anna, frank].every((k) => k.api_key.startsWith("hc_live_")));
  await team(hub, anna, frank);
  await modern(hub, anna, frank);
  await stdio(hub, "beside a hub that serves");
  await patience(hub, frank);
  await inspector(hub, work, anna, frank);
  const env = { ...process.env, HUB_URL: hub.url, HUB_BINARY: binary, HUB_DATA: hub.data, ANNA_KEY: anna.api_key, FRANK_KEY: frank.api_key };
  await client(env, goClient);
  if (python) {
    await client(env, python, new URL("team.py", import.meta.url).pathname);
    await client(env, python, new URL("fast.py", import.meta.url).pathname);
  }
  const keys = await crew(hub, { anna: anna.api_key });
  await pools(hub, keys);
  if (python) await inPython(hub, python, keys, "pool.py");
  // Workers of other processes empty a pool, each on a hub of its own.
  const drain = { ...process.env, HUB_BINARY: binary, WORK: work, CLIENTS: new URL(".", import.meta.url).pathname, NODE: process.execPath, PYTHON: python ?? "" };
  await Promise.all(["sqlite", "postgres"].map((database) => client(drain, goClient, "drain", database)));
  const end = await hub.stop();
  check("SIGTERM ends the hub with exit 0 within 10 s", end.code === 0 && end.ms < 10_000, end);
  await stdio(hub, "without a hub");

  hub = new Hub(binary, join(work, "strict"), join(work, "hub.pid"), "--trust-mode", "strict");
  await hub.start();
  const strict = await crew(hub);
  await sessions(hub, strict);
  if (python) await inPython(hub, python, strict, "session.py");
  await hub.stop();
  await desk(binary, work);
} catch (e) {
  console.error(e.message);
  if (!e.message.startsWith("NOT ok")) console.error(e.stack);
  console.error(`the hub's log:\n${hub.log.slice(-20).join("\n")}`);
  hub.child?.kill("SIGKILL");
  await Promise.all([...running].map((child) => (child.kill(), once(child, "exit")))); // they tidy up
  process.exit(1);
}
