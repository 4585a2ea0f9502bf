"""The whole life of an open handoff by the official Python SDK and by fastmcp, over HTTP and over stdio."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack

import fastmcp
import httpx2
from check import check
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

URL = os.environ["HUB_URL"] + "/mcp/pool"
HUB, DATA = os.environ["HUB_BINARY"], os.environ["HUB_DATA"]


class Refused(Exception):
    def __init__(self, result: object) -> None:
        super().__init__(result.content[0].text)
        self.error = result.structured_content["error"]


class Member:
    """One agent in one project, by a client of either library."""

    def __init__(self, client: object, handle: str, root: str, **how: object) -> None:
        self.client, self.handle, self.root, self.how = client, handle, root, how

    async def read_tools(self) -> None:
        listed = await self.client.list_tools()
        self.fits = {t.name: Draft202012Validator(t.output_schema) for t in getattr(listed, "tools", listed)}

    async def __call__(self, verb: str, **args: object) -> dict:
        me = "from_agent_id" if verb == "create" else "agent_id"
        return await self.tool("handoff_" + verb, **{"project_root": self.root, me: self.handle} | args)

    async def tool(self, tool: str, **args: object) -> dict:
        result = await self.client.call_tool(tool, args, **self.how)
        self.fits[tool].validate(result.structured_content)  # refusals too, which the libraries do not look at
        if result.is_error:
            raise Refused(result)
        return result.structured_content


async def kill() -> None:
    """Have the hub killed with SIGKILL and started again by whoever started this program."""
    print("kill the hub", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def story(how: str, join: object, carried: bool) -> None:
    anna, maja, nils, vera = [await join(name) for name in ("anna", "maja", "nils", "vera")]

    def same(what: str, got: object, want: object) -> None:
        check(f"{how}: {what}", got == want, f"got {got!r}\nwant {want!r}")

    async def no(what: str, call: object, code: str) -> dict:
        try:
            seen = await call
        except Refused as e:
            check(f"{how}: {what}: {code}", e.error["code"] == code and str(e).startswith(f"code: {code}\n"), e)
            return e.error
        raise SystemExit(f"NOT ok: {how}: {what}: {code}, and it was not refused\n{seen}")

    tools = ["handoff_" + v for v in "cancel claim complete create extend get list_available reject release verify".split()]
    tools += ["agent_whoami", "capability_list", "event_wait"]
    same("tools/list of the pool", [t for t in tools if t not in anna.fits], [])
    offers = {c["capability"]: c["agents"] for c in (await anna.tool("capability_list"))["capabilities"]}
    same("capability_list says who offers one", sorted(a["handle"] for a in offers["go"]), ["maja@acme", "nils@acme"])

    # Offer. Python writes and reads whole numbers of any size.
    target = {"strategy": "capability", "capability": "go"}
    payload = {"id": 12345678901234567890, "huge": -(2**200), "ratio": 0.1, "text": "é \u2028 «x»", "none": None, "list": [True, {}]}
    offer = {
        "target": target, "visibility": "public", "priority": "high", "payload": payload, "acceptance_criteria": ["The tests pass.", "No new dependency."],
        "verify_by": {"kind": "capability", "capability": "review"}, "idempotency_key": how + " first",
    }
    first = await anna("create", **offer)
    same("handoff_create answers OPEN with who matches now", (first["status"], first["eligible_count"]), ("OPEN", 2))
    again = await anna("create", **offer)
    same("the same key again is a replay", (again["handoff_id"], again["idempotent_replay"]), (first["handoff_id"], True))
    await no("the same key with another payload", anna("create", **offer | {"payload": payload | {"id": 12345678901234567891}}), "duplicate_idempotency_key")
    second = await anna("create", target=target, visibility="eligible", payload="second", depends_on=[first["handoff_id"]])
    same("a dependent is blocked", second["dependencies"], {"total": 1, "satisfied": 0, "pending": 1, "failed": 0})
    await no("an unknown strategy", anna("create", target={"strategy": "anybody"}, visibility="public"), "invalid_params")
    await no("another agent's name", maja("list_available", agent_id="nils@acme"), "permission_denied")

    # List and claim.
    it = {"handoff_id": first["handoff_id"]}
    page = await maja("list_available")
    same("handoff_list_available shows what can be claimed, without payload", [(h["handoff_id"], "payload" in h) for h in page["handoffs"]], [(first["handoff_id"], False)])
    same("and nothing to whom it does not match", (await vera("list_available"))["handoffs"], [])
    await no("whom it does not match", vera("claim", **it), "not_eligible_to_claim")
    await no("what is blocked", nils("claim", handoff_id=second["handoff_id"]), "dependency_not_met")
    claim = await maja("claim", **it, lease_seconds=60)
    same("handoff_claim gives the payload as it was offered", (claim["status"], claim["claim_epoch"], claim["payload"]), ("CLAIMED", 1, payload))
    loser = await no("the loser is told who holds it", nils("claim", **it), "handoff_already_claimed")
    same("by name", loser["details"]["claimed_by"], "maja@acme")
    seen = await anna("get", **it)
    same("the creator sees who holds it and no payload", (seen["claimed_by"], "payload" in seen), ("maja@acme", False))
    longer = await maja("extend", **it, claim_epoch=1, lease_seconds=600)
    check(f"{how}: handoff_extend moves the end of the lease", longer["lease_expires_at"] > claim["lease_expires_at"], longer)
    await no("only the holder delivers", nils("complete", **it, result=1), "not_owner")

    # Deliver, and be sent back.
    same("with criteria, delivering is VERIFYING", (await maja("complete", **it, result=payload, claim_epoch=1))["status"], "VERIFYING")
    await no("nobody judges their own work", maja("verify", **it, verdict="pass"), "verifier_not_eligible")
    waiting = (await vera("list_available", scope="to_verify"))["handoffs"]
    same("the verifier finds it with its result", [(h["handoff_id"], h["result"]) for h in waiting], [(first["handoff_id"], payload)])
    fail = it | {"verdict": "fail", "feedback": "One test fails.", "claim_epoch": 1, "idempotency_key": how + " fail"}
    back = await vera("verify", **fail)
    same("fail gives it back with a new epoch", (back["status"], back["claimed_by"], back["claim_epoch"]), ("CLAIMED", "maja@acme", 2))

    # The kill.
    def park() -> list[asyncio.Task]:
        claims = nils("claim", timeout_seconds=50, lease_seconds=60)
        return [asyncio.create_task(c) for c in (claims, anna("get", **it, known_status="CLAIMED", timeout_seconds=50))]

    parked = park() if carried else []
    await kill()
    replay = await vera("verify", **fail)
    same("after kill -9 of the hub, a key used before is a replay", (replay["idempotent_replay"], replay["claim_epoch"]), (True, 2))
    parked = parked or park()
    maja = await join("maja")
    me = await maja.tool("agent_whoami")
    holds = [(c["handoff_id"], c["claim_epoch"]) for c in me["open_claims"]]
    same("agent_whoami tells a worker that was restarted who it is and what it holds", (me["handle"], me["capabilities"], holds), ("maja@acme", ["go"], [(first["handoff_id"], 2)]))
    told = (await maja("get", **it))["verification"]
    check(f"{how}: the executor sees the feedback, fenced", told["verdict"] == "fail" and "«untrusted " in told["feedback"] and "One test fails." in told["feedback"], told)
    await no("the old epoch is fenced off", maja("complete", **it, result=2, claim_epoch=1), "stale_claim_epoch")
    done, _ = await asyncio.wait(parked, timeout=0.3)
    same("a claim of the next one and a get with known_status are parked", done, set())

    # Deliver again, and pass.
    same("delivered again", (await maja("complete", **it, result=2, claim_epoch=2))["status"], "VERIFYING")
    same("the creator's parked get returns", (await parked[1])["status"], "VERIFYING")
    parked[1] = asyncio.create_task(anna("get", **it, known_status="VERIFYING", timeout_seconds=50))
    passed = await vera("verify", **it, verdict="pass", claim_epoch=2)
    same("pass completes it", (passed["status"], passed["verification"]["verdict"], passed["verification"]["verified_by"]), ("COMPLETED", "pass", "vera@acme"))
    ended = await parked[1]
    same("the creator has the result", (ended["status"], ended["result"]), ("COMPLETED", 2))
    then = await parked[0]
    same("and the parked claim gets what was blocked", (then["handoff_id"], then["status"], then["payload"]), (second["handoff_id"], "CLAIMED", "second"))
    await no("what is done is done", nils("claim", **it), "thread_terminal")
    await log(same, anna, first["handoff_id"])

    # Give back, refuse, take back.
    it = {"handoff_id": second["handoff_id"]}
    same("handoff_release opens it again", (await nils("release", **it, reason="No time."))["status"], "OPEN")
    taken = await maja("claim")
    same("for the next", (taken["handoff_id"], taken["claim_epoch"]), (second["handoff_id"], 2))
    await no("the former holder has lost it", nils("complete", **it, claim_epoch=1), "lease_lost")
    await no("a held one is not taken back", anna("cancel", **it), "invalid_transition")
    same("handoff_reject ends it", (await maja("reject", **it, claim_epoch=2, reason="Not worth it."))["status"], "REJECTED")
    check(f"{how}: and its creator is told why", "Not worth it." in (await anna("get", **it))["ended_reason"])
    third = await anna("create", target=target, visibility="private")
    same("handoff_cancel takes it back", (await anna("cancel", handoff_id=third["handoff_id"]))["status"], "CANCELLED")
    nothing = await nils("claim", timeout_seconds=1)
    same("nothing is left to claim", (nothing["handoff_id"], nothing["timed_out"]), (None, True))


async def log(same: object, anna: Member, handoff: str) -> None:
    """Read the whole story of a handoff, page by page, and then wait for what comes next."""

    async def events(**args: object) -> dict:
        return await anna.tool("event_wait", project_root=anna.root, agent_id=anna.handle, **args)

    told, page = [], {"next_cursor": "0", "has_more": True}
    while page["has_more"]:
        page = await events(stream="handoff", filters={"handoff_id": handoff}, cursor=page["next_cursor"], limit=3)
        told += [(e["event_seq"], e["type"].removeprefix("handoff.")) for e in page["events"]]
    want = "created claimed extended verification_requested verification_failed verification_requested completed"
    same("event_wait tells the whole story without a gap", told, list(enumerate(want.split(), 1)))
    news = asyncio.create_task(events(filters={"type": "handoff.created"}, timeout_seconds=50))
    await asyncio.wait([news], timeout=0.3)
    made = await anna("create", target={"strategy": "direct", "agent_id": "vera@acme"}, visibility="private")
    same("and wakes for the next event of the workspace", [(e["type"], e["handoff_id"]) for e in (await news)["events"]], [("handoff.created", made["handoff_id"])])
    await anna("cancel", handoff_id=made["handoff_id"])


async def main() -> None:
    def key(name: str) -> dict[str, str]:
        return {"Authorization": "Bearer " + os.environ[name.upper() + "_KEY"]}

    def stdio(name: str) -> list[str]:
        return ["mcp", "--as", f"{name}@acme", "--data", DATA, "--toolset", "pool"]

    async def official_http(name: str, stack: AsyncExitStack) -> Client:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=key(name), timeout=60))
        return Client(streamable_http_client(URL, http_client=http))

    async def official_stdio(name: str, _: AsyncExitStack) -> Client:
        return Client(StdioServerParameters(command=HUB, args=stdio(name)))

    async def fast_http(name: str, _: AsyncExitStack) -> fastmcp.Client:
        return fastmcp.Client(StreamableHttpTransport(URL, headers=key(name)))

    async def fast_stdio(name: str, _: AsyncExitStack) -> fastmcp.Client:
        return fastmcp.Client(StdioTransport(HUB, stdio(name), keep_alive=False))

    for how, connect, options, carried in (
        ("Python SDK over HTTP", official_http, {}, False),
        ("Python SDK over stdio", official_stdio, {}, True),
        ("fastmcp over HTTP", fast_http, {"raise_on_error": False}, False),
        ("fastmcp over stdio", fast_stdio, {"raise_on_error": False}, True),
    ):
        async with AsyncExitStack() as stack:

            async def join(name: str, how=how, connect=connect, options=options, stack=stack) -> Member:
                client = await stack.enter_async_context(await connect(name, stack))
                member = Member(client, f"{name}@acme", "/srv/" + how.replace(" ", "-"), **options)
                await member.read_tools()
                return member

            await story(how, join, carried)


asyncio.run(main())
