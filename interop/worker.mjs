// A worker of internal/interop: takes whatever the pool has for it, and does it, until it is told to
// stop by a handoff like the others. Each line it prints is one JSON document. WORKER says who it is.
import { tools } from "./check.mjs";
import { modernHTTP, olderHTTP } from "./connect.mjs";

const { url, key, handle, root, client, hold } = JSON.parse(process.env.WORKER);
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
process.stdin.on("end", () => process.exit(3)).resume(); // whoever started it is gone

const session = await (client === "modern" ? modernHTTP : olderHTTP)(url, key);
await session.listTools(); // from now on the SDK validates each result
const call = (tool, args) => tools(session)(tool, { project_root: root, agent_id: handle, ...args });

say({ ready: true });
for (let taken = 1, held = 0; ;) {
  const { handoff_id, claim_epoch, payload } = await call("handoff_claim", { lease_seconds: 10, timeout_seconds: 50 });
  if (handoff_id === null) continue;
  say({ claimed: handoff_id, epoch: claim_epoch });
  // One that is to be killed does its share first, and then keeps what it claims.
  if (hold > 0 && taken++ > 5) {
    if (++held < hold) continue;
    say({ holding: held });
    await new Promise(() => {});
  }
  try {
    await call("handoff_complete", { handoff_id, claim_epoch, result: { by: handle, n: payload.n } });
    say({ completed: handoff_id, epoch: claim_epoch });
  } catch (e) {
    if (e.result?.structuredContent.error.code !== "lease_lost") throw e;
    say({ lost: handoff_id, epoch: claim_epoch }); // this machine stood still for ten seconds
  }
  if (payload.stop) break;
}
await session.close();
process.exit(0);
