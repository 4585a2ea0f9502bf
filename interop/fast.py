"""A handoff by fastmcp, over HTTP and over stdio."""

import asyncio
import os

from check import check
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def story(how: str, anna: Client, frank: Client) -> None:
    async with anna, frank:
        check(f"fastmcp {how}: tools/list names the twelve tools", len(await anna.list_tools()) == 12)
        check(f"fastmcp {how}: prompts and resources are listed", bool(await anna.list_prompts()) and bool(await anna.list_resources()))

        async def call(client: Client, name: str, **args: object) -> dict:
            return (await client.call_tool(name, args)).structured_content

        sent = await call(anna, "handoff_to_teammate", to="frank@acme", intent="inform", summary=f"By fastmcp, {how}.")
        thread = sent["thread_id"]
        inbox = await call(frank, "check_inbox")
        check(f"fastmcp {how}: the inbox shows the handoff", thread in [i["thread_id"] for i in inbox["items"]], inbox)
        check(f"fastmcp {how}: accept", (await call(frank, "accept_handoff", thread_id=thread))["status"] == "accepted")
        done = await call(frank, "complete_handoff", thread_id=thread, result_summary="Done.")
        check(f"fastmcp {how}: complete", done["status"] == "completed", done)
        late = await frank.call_tool("decline_handoff", {"thread_id": thread, "reason": "Too late."}, raise_on_error=False)
        check(f"fastmcp {how}: a refusal is a tool error", late.is_error and late.structured_content["error"]["code"] == "thread_terminal", late)


async def main() -> None:
    url = os.environ["HUB_URL"] + "/mcp/team"

    def http(key: str) -> Client:
        return Client(StreamableHttpTransport(url, headers={"Authorization": "Bearer " + os.environ[key]}))

    def stdio(who: str) -> Client:
        return Client(StdioTransport(os.environ["HUB_BINARY"], ["mcp", "--as", who, "--data", os.environ["HUB_DATA"], "--toolset", "team"], keep_alive=False))

    await story("over HTTP", http("ANNA_KEY"), http("FRANK_KEY"))
    await story("over stdio", stdio("anna@acme"), stdio("frank@acme"))


asyncio.run(main())
