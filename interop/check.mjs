// check prints one line for each thing that holds, and throws on the first that does not.
import { deepStrictEqual } from "node:assert";

export function check(what, holds, ...seen) {
  if (!holds) throw new Error(`NOT ok: ${what}\n${seen.map((s) => JSON.stringify(s, null, 1)).join("\n")}`);
  console.log(`ok  ${what}`);
}

export function same(what, got, want) {
  try {
    deepStrictEqual(got, want);
  } catch (e) {
    throw new Error(`NOT ok: ${what}\n${e.message}`);
  }
  console.log(`ok  ${what}`);
}

// tools calls tools as one agent: the structured content of a success, an error for a refusal.
export function tools(client) {
  return async (name, args = {}) => {
    const result = await client.callTool({ name, arguments: args });
    if (result.isError) throw Object.assign(new Error(result.content[0].text), { result });
    return result.structuredContent;
  };
}

// raw posts one JSON-RPC request as it stands and gives the response.
export function raw(url, key, body) {
  const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25" };
  if (key) headers.Authorization = `Bearer ${key}`;
  return fetch(url, { method: "POST", headers, body });
}

// refused wants the refusal of a call, and gives its result.
export async function refused(what, call, code) {
  const e = await call.then(() => undefined, (e) => e);
  check(what, e?.result?.isError === true && e.message.startsWith(`code: ${code}\n`), e?.message ?? "it was not refused");
  return e.result;
}
