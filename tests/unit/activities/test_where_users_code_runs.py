"""A user's tools and handlers run outside the worker's event loop; their calls to the platform run inside it."""

import asyncio
import threading
from typing import Any, cast

from pydantic import BaseModel

from activities.handlers.call_handler import _reply
from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.agents.handler import HandlerReply, HandlerTurn
from domain.sessions.session import Effect

TURN = HandlerTurn(key="k", session_id="s", agent="a", side="b", step=1, messages=[])


class Input(BaseModel):
    pass


class Service:
    """An object that belongs to the worker's loop, as database connections do."""

    async def loop(self, *_: object) -> Any:
        return asyncio.get_running_loop()


async def test_tool_of_a_user_runs_in_its_own_loop_and_the_platform_in_the_workers() -> None:
    service, seen = Service(), dict[str, Any]()

    async def run(input: Input, context: ToolContext) -> ToolResult:
        used = cast(Any, context)
        seen["called"] = [await used.state.loop(), await used.subagents.loop(), await used.sandbox.loop()]
        seen["called"] += [await used.permits("x"), await used.hold(None)]
        seen["own"], seen["thread"] = asyncio.get_running_loop(), threading.current_thread()
        return ToolResult("done")

    tool = Tool(name="mine", description="x", input=Input, run=run, effect=Effect.READ).apart()
    given: Any = dict.fromkeys(("ref", "agent", "workspace", "key", "again", "plan", "fetcher", "network"))
    given |= {"sandbox": service, "subagents": service, "state": service}
    context = ToolContext(**given, permits=service.loop, hold=service.loop)
    assert (await tool.run(Input(), context)).text == "done"
    home = asyncio.get_running_loop()
    assert seen["called"] == [home] * 5
    assert seen["own"] is not home and seen["thread"] is not threading.current_thread()


async def test_handler_runs_in_its_own_loop() -> None:
    seen: list[Any] = []

    async def handler(turn: HandlerTurn) -> HandlerReply:
        seen.append(asyncio.get_running_loop())
        return HandlerReply(text="Mine.")

    assert (await _reply("mine", handler, TURN)).text == "Mine."
    assert seen[0] is not asyncio.get_running_loop()
