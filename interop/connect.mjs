// Clients by both major versions of the TypeScript SDK: the older speaks 2025-11-25, the modern is
// pinned to 2026-07-28. Over stdio each starts `handclasp mcp` as its server.
import { Client as Modern, StreamableHTTPClientTransport as ModernHTTP } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client as Older } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OlderStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OlderHTTP } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const me = { name: "handclasp-interop", version: "0.0.0" };
const older = () => new Older(me);
const modern = () => new Modern(me, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
const keyed = (key) => ({ requestInit: { headers: { Authorization: `Bearer ${key}` } } });
const server = (hub, as, toolset) => ({ command: hub.binary, args: ["mcp", "--as", as, "--data", hub.data, "--toolset", toolset], stderr: "inherit" });

async function connected(client, transport) {
  await client.connect(transport);
  return client;
}

export const olderHTTP = (url, key) => connected(older(), new OlderHTTP(new URL(url), keyed(key)));
export const modernHTTP = (url, key) => connected(modern(), new ModernHTTP(new URL(url), keyed(key)));
export const olderStdio = (hub, as, toolset) => connected(older(), new OlderStdio(server(hub, as, toolset)));
export const modernStdio = (hub, as, toolset) => connected(modern(), new ModernStdio(server(hub, as, toolset)));
