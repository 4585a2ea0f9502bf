"""A round trip by the official Python SDK against a hub that serves, over HTTP and over stdio."""

import asyncio
import os

import httpx2
from check import check
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def call(client: Client, name: str, **args: object) -> dict:
    result = await client.call_tool(name, args)
    if result.is_error:
        raise SystemExit(f"NOT ok: Python: {name}: {result.content}")
    return result.structured_content


async def story(how: str, anna: Client, frank: Client) -> None:
    tools = await anna.list_tools()
    check(how + "tools/list names the twelve tools", len(tools.tools) == 12, tools)
    sent = await call(anna, "handoff_to_teammate", to="frank@acme", intent="inform", summary="From Python.")
    thread = sent["thread_id"]
    inbox = await call(frank, "check_inbox")
    check(how + "the inbox shows the handoff", [i["thread_id"] for i in inbox["items"]] == [thread], inbox)
    taken = await call(frank, "accept_handoff", thread_id=thread)
    check(how + "accept", taken["status"] == "accepted", taken)
    message = await call(frank, "send_message", thread_id=thread, body="On it.", payload={"n": 2**53 + 1})
    check(how + "send_message", message["sequence_no"] == 2, message)
    done = await call(frank, "complete_handoff", thread_id=thread, result_summary="Done.")
    check(how + "complete", done["status"] == "completed", done)
    seen = await call(anna, "view_thread", thread_id=thread)
    check(how + "the sender sees it, a 64-bit number intact", seen["messages"][1]["payload"] == {"n": 2**53 + 1}, seen)
    refused = await anna.call_tool("handoff_to_teammate", {"to": "nobody@acme", "intent": "inform", "summary": "x"})
    check(how + "a refusal is a tool error", refused.is_error and refused.content[0].text.startswith("code: recipient_not_found\n"), refused)


async def main() -> None:
    url = os.environ["HUB_URL"] + "/mcp/team"
    anna_http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + os.environ["ANNA_KEY"]}, timeout=30)
    frank_http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + os.environ["FRANK_KEY"]}, timeout=30)
    async with (
        anna_http,
        frank_http,
        Client(streamable_http_client(url, http_client=anna_http)) as anna,
        Client(streamable_http_client(url, http_client=frank_http)) as frank,
    ):
        await story("Python: ", anna, frank)

    def stdio(who: str) -> Client:
        return Client(StdioServerParameters(command=os.environ["HUB_BINARY"], args=["mcp", "--as", who, "--data", os.environ["HUB_DATA"], "--toolset", "team"]))

    async with stdio("anna@acme") as anna, stdio("frank@acme") as frank:
        await story("Python over stdio: ", anna, frank)


asyncio.run(main())
