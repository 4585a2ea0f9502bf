// Work on a hub with trust_mode strict: each verb on an open handoff names a session and its secret.
import { check, refused, same } from "./check.mjs";
import { member } from "./pool.mjs";

export async function session(how, connect) {
  const is = (what, ...rest) => same(`${how}: ${what}`, ...rest);
  const project_root = `/srv/${how.replaceAll(" ", "-")}`;
  const [anna, maja, nils] = await Promise.all(["anna", "maja", "nils"].map(async (name) => member(await connect(name), `${name}@acme`, project_root)));
  const none = (what, call) => refused(`${how}: ${what}: session_required`, call, "session_required");
  const open = (who) => who.tool("session_open", { project_root, agent_id: who.handle }).then(({ session_id, session_secret }) => ({ session_id, session_secret }));

  is("/mcp/pool has the tools of sessions", maja.tools.length, 16);
  const { handoff_id } = await anna("create", { target: { strategy: "capability", capability: "go" }, visibility: "public", acceptance_criteria: ["It is done."], payload: 7 });
  await none("a claim without a session", maja("claim", { handoff_id }));
  const [anns, majas, nilses] = await Promise.all([anna, maja, nils].map(open));
  await none("another's session", maja("claim", { handoff_id, ...nilses }));
  const wrong = await none("a wrong secret", maja("claim", { handoff_id, ...majas, session_secret: nilses.session_secret }));
  check(`${how}: the secret is not repeated`, !JSON.stringify(wrong).includes(nilses.session_secret), wrong);
  is("a claim in a session", await maja("claim", { handoff_id, ...majas }).then((h) => [h.status, h.payload]), ["CLAIMED", 7]);
  await none("extending without it", maja("extend", { handoff_id, claim_epoch: 1 }));
  is("extending with it", (await maja("extend", { handoff_id, claim_epoch: 1, ...majas })).claim_epoch, 1);
  is("session_heartbeat", (await maja.tool("session_heartbeat", majas)).status, "open");
  is("delivering", (await maja("complete", { handoff_id, ...majas })).status, "VERIFYING");
  await none("judging without one", anna("verify", { handoff_id, verdict: "pass" }));
  is("judging", (await anna("verify", { handoff_id, verdict: "pass", ...anns })).status, "COMPLETED");
  is("session_close", (await maja.tool("session_close", majas)).status, "closed");
  await none("a closed one", maja("claim", { timeout_seconds: 1, ...majas }));
  is("reading needs none", (await maja("get", { handoff_id })).status, "COMPLETED");
  await Promise.all([anna, maja, nils].map((m) => m.client.close()));
}
