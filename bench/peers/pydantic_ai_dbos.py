"""pydantic-ai on DBOS with PostgreSQL: the capability DBOSDurability, each model request and tool call a step."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.anthropic import AnthropicModel

from bench.peers.script import Done, counted, prompt, result

agent = Agent(AnthropicModel("offline"), name="loop", capabilities=[DBOSDurability()])


@agent.tool_plain
@DBOS.step()
async def look(number: int) -> str:
    return result(number)


@DBOS.workflow()
async def loop(steps: int) -> int:
    answer = await agent.run(prompt(steps), usage_limits=UsageLimits(request_limit=None))
    return counted(answer.output)


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    DBOS(config=DBOSConfig(name="pydantic-ai-loop", system_database_url=database))
    DBOS.launch()

    async def run(steps: int) -> Done:
        return Done(await loop(steps))

    try:
        yield run
    finally:
        DBOS.destroy()
