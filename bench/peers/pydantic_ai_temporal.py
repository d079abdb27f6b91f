"""pydantic-ai on Temporal: the capability TemporalDurability, each model request and tool call an activity."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
from pydantic_ai.models.anthropic import AnthropicModel
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from bench.peers.script import Done, counted, prompt, result

QUEUE = "peer-pydantic-ai"


agent = Agent(AnthropicModel("offline"), name="loop", capabilities=[TemporalDurability()])


@agent.tool_plain
async def look(number: int) -> str:
    return result(number)


@workflow.defn
class PydanticAILoop(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [agent]

    @workflow.run
    async def run(self, steps: int) -> int:
        answer = await agent.run(prompt(steps), usage_limits=UsageLimits(request_limit=None))
        return counted(answer.output)


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    client = await Client.connect(temporal, plugins=[PydanticAIPlugin()])

    async def run(steps: int) -> Done:
        name = f"{QUEUE}/{uuid.uuid4()}"
        return Done(await client.execute_workflow(PydanticAILoop.run, steps, id=name, task_queue=QUEUE), name)

    async with Worker(client, task_queue=QUEUE, workflows=[PydanticAILoop]):
        yield run
