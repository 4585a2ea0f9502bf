"""What worker.mjs is, in Python."""

import asyncio
import json
import os
import sys
import threading

ME = json.loads(os.environ["WORKER"])
HEADERS = {"Authorization": "Bearer " + ME["key"]}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(3)  # whoever started it is gone


async def work(client: object, **how: object) -> None:
    async def call(tool: str, **args: object) -> tuple[dict, bool]:
        result = await client.call_tool(tool, {"project_root": ME["root"], "agent_id": ME["handle"]} | args, **how)
        return result.structured_content, result.is_error

    await client.list_tools()
    say(ready=True)
    taken = held = 0
    while True:
        claim, refused = await call("handoff_claim", lease_seconds=10, timeout_seconds=50)
        if refused:
            raise SystemExit(f"{ME['handle']}: {claim}")
        it, epoch = claim["handoff_id"], claim.get("claim_epoch")
        if it is None:
            continue
        say(claimed=it, epoch=epoch)
        taken += 1
        # One that is to be killed does its share first, and then keeps what it claims.
        if ME["hold"] and taken > 5:
            held += 1
            if held < ME["hold"]:
                continue
            say(holding=held)
            await asyncio.Event().wait()
        done, refused = await call("handoff_complete", handoff_id=it, claim_epoch=epoch, result={"by": ME["handle"], "n": claim["payload"].get("n")})
        if not refused:
            say(completed=it, epoch=epoch)
        elif done["error"]["code"] == "lease_lost":  # this machine stood still for ten seconds
            say(lost=it, epoch=epoch)
        else:
            raise SystemExit(f"{ME['handle']}: {done}")
        if claim["payload"].get("stop"):
            return


async def main() -> None:
    # Each library takes its time to load, so only the one that is used is.
    if ME["client"] == "fastmcp":
        import fastmcp
        from fastmcp.client.transports import StreamableHttpTransport

        async with fastmcp.Client(StreamableHttpTransport(ME["url"], headers=HEADERS)) as client:
            await work(client, raise_on_error=False)
    else:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        async with httpx2.AsyncClient(headers=HEADERS, timeout=60) as http, Client(streamable_http_client(ME["url"], http_client=http)) as client:
            await work(client)


threading.Thread(target=end_with_stdin, daemon=True).start()
asyncio.run(main())
