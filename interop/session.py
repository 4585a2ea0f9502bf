"""What session.mjs is, by the official Python SDK."""

import asyncio
import os

import httpx2
from check import check
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HOW = "strict, Python SDK over HTTP: "
ROOT = "/srv/strict-python"


async def main() -> None:
    def http(name: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers={"Authorization": "Bearer " + os.environ[name]}, timeout=60)

    def connect(to: httpx2.AsyncClient) -> Client:
        return Client(streamable_http_client(os.environ["HUB_URL"] + "/mcp/pool", http_client=to))

    async with http("ANNA_KEY") as to_anna, http("MAJA_KEY") as to_maja, connect(to_anna) as anna, connect(to_maja) as maja:

        async def refused(what: str, tool: str, **args: object) -> None:
            result = await maja.call_tool(tool, mine | args)
            check(f"{HOW}{what}: session_required", result.is_error and result.structured_content["error"]["code"] == "session_required", result)

        async def call(client: Client, tool: str, **args: object) -> dict:
            result = await client.call_tool(tool, args)
            check(HOW + tool, not result.is_error, result)
            return result.structured_content

        mine = {"project_root": ROOT, "agent_id": "maja@acme"}
        target = {"strategy": "capability", "capability": "go"}
        made = await call(anna, "handoff_create", project_root=ROOT, from_agent_id="anna@acme", target=target, visibility="public")
        it = {"handoff_id": made["handoff_id"]}
        await refused("a claim without a session", "handoff_claim", **it)
        opened = await call(maja, "session_open", **mine)
        session = {k: opened[k] for k in ("session_id", "session_secret")}
        await refused("a wrong secret", "handoff_claim", **it | session | {"session_secret": "x" + session["session_secret"]})
        claim = await call(maja, "handoff_claim", **mine | session)
        check(HOW + "a claim in a session", claim["handoff_id"] == made["handoff_id"], claim)
        await call(maja, "session_heartbeat", **session)
        await refused("delivering without it", "handoff_complete", **it)
        done = await call(maja, "handoff_complete", **mine | it | session)
        check(HOW + "delivering", done["status"] == "COMPLETED", done)
        await call(maja, "session_close", **session)
        await refused("a closed one", "handoff_claim", **session)


asyncio.run(main())
