// Gives each client the configuration that handclasp prints for it, over HTTP and over stdio.
//
//   node main.mjs BINARY WORKDIR
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, raw, same } from "../check.mjs";
import { Hub } from "../hub.mjs";
import { Home } from "./programs.mjs";
import { schemas } from "./schemas.mjs";

const [binary, work] = process.argv.slice(2);
const home = new Home(join(work, "home"));
const hub = new Hub(binary, join(work, "data"), join(work, "hub.pid"));

// The worst that a folder may be called: a shell, JSON and TOML must each leave it as it is.
const folder = new Hub(binary, join(work, `o'neil\n"hub" $HOME \\ é\x7f`), "");

try {
  await hub.start();
  await overHTTP();
  await theServingHubByItself();
  await overStdio();
  await hub.stop();
} catch (e) {
  console.error(e.message);
  if (!e.message.startsWith("NOT ok")) console.error(e.stack);
  console.error(`the hub's log:\n${hub.log.slice(-20).join("\n")}`);
  hub.child?.kill("SIGKILL");
  process.exit(1);
}

async function overHTTP() {
  const add = (handle, client) => hub.operator("agent", "add", handle, "--client", client, "--url", hub.url);
  const url = `${hub.url}/mcp`;
  const headers = (key) => ({ Authorization: `Bearer ${key.api_key}` });

  const claude = await add("claude@acme", "claude");
  await home.shell(claude.client.command);
  same("HTTP: claude mcp add stores what was meant", claudeStored(), { type: "http", url, headers: headers(claude) });
  await claudeConnects("HTTP: Claude Code connects by the command line", true);
  await home.run("claude", "mcp", "remove", "--scope", "user", "handclasp");
  home.write("project/.mcp.json", claude.client.config);
  // The approval that a person gives when claude first sees the file.
  home.write(".claude/settings.json", JSON.stringify({ enabledMcpjsonServers: ["handclasp"] }));
  await claudeConnects("HTTP: Claude Code connects by .mcp.json", true);
  await hub.operator("agent", "key", "revoke", claude.key_id);
  await claudeConnects("HTTP: Claude Code does not connect once the key is revoked", false);

  const codex = await add("codex@acme", "codex");
  home.useCodex(codex.client.config);
  const stored = await codexStored();
  same("HTTP: Codex reads the URL and the header", [stored.type, stored.url, stored.http_headers], ["streamable_http", url, headers(codex)]);
  await codexConnects("HTTP: Codex connects and lists the tools");

  for (const [client, root] of [["vscode", "servers"], ["cursor", "mcpServers"]]) {
    const key = await add(`${client}@acme`, client);
    const server = documented(client, root, "HTTP", key);
    same(`HTTP: ${client} is given the URL and the key`, [server.url, server.headers], [url, headers(key)]);
    const answer = await raw(server.url, server.headers.Authorization.slice("Bearer ".length), JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }));
    check(`HTTP: what ${client} is given opens the hub`, answer.ok && (await answer.text()).includes("handoff_to_teammate"), answer.status);
  }
  check("the schema refuses another client's form", !schemas.vscode(JSON.parse(claude.client.config)) && !schemas.cursor({ servers: {} }));
}

// theServingHubByItself adds an agent without --url beside the hub that serves the folder.
async function theServingHubByItself() {
  const key = await hub.operator("agent", "add", "local@acme", "--client", "cursor");
  same("without --url the hub that serves the folder is named", JSON.parse(key.client.config).mcpServers.handclasp.url, `${hub.url}/mcp`);
}

async function overStdio() {
  const add = (handle, client) => folder.operator("agent", "add", handle, "--client", client);
  const args = (handle) => ["mcp", "--as", handle, "--data", folder.data];

  const claude = await add("claude@acme", "claude");
  home.write("project/.mcp.json", claude.client.config);
  await claudeConnects("stdio: Claude Code connects by .mcp.json", true);
  home.write("project/.mcp.json", "{}");
  await home.shell(claude.client.command);
  const stored = claudeStored();
  same("stdio: claude mcp add stores what was meant", [stored.type, stored.command, stored.args], ["stdio", binary, args("claude@acme")]);
  await claudeConnects("stdio: Claude Code connects by the command line", true);

  const codex = await add("codex@acme", "codex");
  home.useCodex(codex.client.config);
  const transport = await codexStored();
  same("stdio: Codex reads the command", [transport.type, transport.command, transport.args], ["stdio", binary, args("codex@acme")]);
  await codexConnects("stdio: Codex connects and lists the tools");

  for (const [client, root] of [["vscode", "servers"], ["cursor", "mcpServers"]]) {
    const server = documented(client, root, "stdio", await add(`${client}@acme`, client));
    same(`stdio: ${client} is given the command`, [server.command, server.args], [binary, args(`${client}@acme`)]);
  }
}

// documented checks a file against the client's schema and gives the server in it.
function documented(client, root, way, key) {
  const file = JSON.parse(key.client.config);
  check(`${way}: ${key.client.file} of ${client} is as its schema says`, schemas[client](file), schemas[client].errors, file);
  return file[root].handclasp;
}

function claudeStored() {
  const { env, ...stored } = JSON.parse(readFileSync(join(home.dir, ".claude.json"), "utf8")).mcpServers.handclasp;
  return stored;
}

async function claudeConnects(what, should) {
  const list = await home.run("claude", "mcp", "list");
  const line = list.split("\n").find((l) => l.startsWith("handclasp:")) ?? "";
  check(what, line !== "" && line.includes("✔ Connected") === should, list);
}

async function codexStored() {
  const list = JSON.parse(await home.run("codex", "mcp", "list", "--json"));
  return list.find((s) => s.name === "handclasp").transport;
}

async function codexConnects(what) {
  const server = (await home.codexServers()).find((s) => s.name === "handclasp");
  check(what, server?.serverInfo?.name === "handclasp" && "handoff_to_teammate" in server.tools, server);
}
