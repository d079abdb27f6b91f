"""The calls of a reply, with what the rules say about each."""

from activities.tools.offered import Offered
from activities.tools.risks import with_risks
from activities.tools.rules import tool_calls, without_standing
from activities.tools.tool import Tool
from domain.content import ToolCallBlock
from domain.policy.rules import Rule
from domain.sessions.session import SessionRef
from domain.sessions.step import ToolCall
from store import input_requests
from store.database import COMMIT_PATIENCE, Pool, patiently


async def judged_calls(
    pool: Pool,
    ref: SessionRef,
    tools: dict[str, Tool],
    offered: Offered,
    layers: list[list[Rule]],
    made: list[ToolCallBlock],
    may_ask: bool,
) -> list[ToolCall]:
    calls = tool_calls(tools, offered, made, layers, may_ask)
    if any(one.ask for one in calls):
        standing = await patiently(
            lambda: input_requests.standing_rules(pool, ref.tenant, ref.conversation_id), seconds=COMMIT_PATIENCE
        )
        calls = without_standing(calls, offered, made, layers, standing)
    asked, given = calls, [one.arguments for one in made]
    return await patiently(lambda: with_risks(pool, ref.tenant, layers, asked, given), seconds=COMMIT_PATIENCE)
