"""The OpenAI Agents SDK on Temporal with its plugin: each model call an activity, the tool another."""

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.openai_agents import OpenAIAgentsPlugin
from temporalio.openai_agents.testing import ResponseBuilders, TestModelProvider
from temporalio.openai_agents.workflow import activity_as_tool
from temporalio.worker import Worker

from agents import Agent, Model, ModelResponse, RunConfig, Runner

with workflow.unsafe.imports_passed_through():
    from bench.peers.asking import ask, call_of, text_of, tool_result
from bench.peers.script import Done, counted, prompt, result

QUEUE = "peer-openai-agents"
PATIENCE = timedelta(seconds=60)


class Asked(Model):
    """The SDK has no client for this API, so its users write the model call."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        items = input if isinstance(input, list) else [{"role": "user", "content": input}]
        blocks = await ask([as_sent(item) for item in items])
        if call := call_of(blocks):
            return ResponseBuilders.tool_call(json.dumps(call["input"]), call["name"], call_id=call["id"])
        return ResponseBuilders.output_message(text_of(blocks))

    def stream_response(self, *args: Any, **more: Any) -> Any:
        raise RuntimeError("the loop requests whole answers")  # required by the interface; the runner never calls it


def as_sent(item: Any) -> dict[str, Any]:
    if item.get("type") == "function_call_output":
        return tool_result(item["call_id"], item["output"])
    if item.get("type") == "function_call":
        arguments = json.loads(item["arguments"])
        call = {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": arguments}
        return {"role": "assistant", "content": [call]}
    return {"role": item["role"], "content": item["content"]}


@activity.defn
async def look(number: int) -> str:
    return result(number)


@workflow.defn
class OpenAIAgentsLoop:
    @workflow.run
    async def run(self, steps: int) -> int:
        agent = Agent(name="loop", tools=[activity_as_tool(look, start_to_close_timeout=PATIENCE)])
        config = RunConfig(tracing_disabled=True)
        answer = await Runner.run(agent, prompt(steps), max_turns=steps + 2, run_config=config)
        return counted(answer.final_output)


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    plugin = OpenAIAgentsPlugin(model_provider=TestModelProvider(Asked()))
    client = await Client.connect(temporal, plugins=[plugin])

    async def run(steps: int) -> Done:
        name = f"{QUEUE}/{uuid.uuid4()}"
        return Done(await client.execute_workflow(OpenAIAgentsLoop.run, steps, id=name, task_queue=QUEUE), name)

    async with Worker(client, task_queue=QUEUE, workflows=[OpenAIAgentsLoop], activities=[look]):
        yield run
