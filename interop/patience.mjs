// A client that gives up after 16 seconds of silence, and a call that waits for 20: the hub says
// every 15 seconds that it still waits.
import { check } from "./check.mjs";
import { olderHTTP, olderStdio } from "./connect.mjs";

export async function patience(hub, frank) {
  const clients = { "over HTTP": await olderHTTP(`${hub.url}/mcp/team`, frank.api_key), "over stdio": await olderStdio(hub, "frank@acme", "team") };
  await Promise.all(Object.entries(clients).map(async ([how, client]) => {
    const told = [];
    const began = Date.now();
    const result = await client.callTool({ name: "check_inbox", arguments: { wait_seconds: 20, since: new Date().toISOString() } }, undefined,
      { timeout: 16_000, resetTimeoutOnProgress: true, onprogress: (p) => told.push(p) });
    check(`a parked call outlives the client's timeout by its progress, ${how}`, !result.isError && told.length === 1 && Date.now() - began >= 19_000, result, told);
    await client.close();
  }));
}
