"""The worker of the bare loop (`python -m bench.bare_worker`), with the options of our own worker."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import anthropic
from temporalio import activity
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.handlers.registry import HANDLERS
from activities.tools.registry import load_tools
from activities.tools.tool import Tool
from agents.loader import check_agents
from agents.problems import Catalogue
from bench import look_tool
from bench.bare import (
    LOOKING_CALL,
    MODEL,
    MODEL_CALL,
    QUEUE,
    SPEAKING_CALL,
    TOOL,
    BareIdle,
    BareLoop,
    BareLoopUnsandboxed,
)
from bench.ours import AGENT, LOOKER, LOOKS, counting, speaking
from bench.peers.script import prompt, result
from domain.agents.definition import AgentDefinition
from domain.agents.system_prompt import system_prompt
from settings import Settings
from workflows.client import connect


@activity.defn(name=MODEL)
async def model(word: str) -> str:
    return word


@activity.defn(name=TOOL)
async def tool(word: str) -> str:
    return word


class BareModelCall:
    """The model request of our step: same SDK, system prompt, tools and growing chat, which only this process keeps."""

    def __init__(
        self,
        settings: Settings,
        agent: AgentDefinition,
        tools: dict[str, Tool],
        opening: Callable[[int], str],
        result: Callable[[int], str],
    ) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=settings.anthropic_api_key, base_url=settings.anthropic_base_url, max_retries=0
        )
        self._request: dict[str, Any] = {
            "model": settings.default_model,
            "max_tokens": agent.max_tokens,
            "system": [{"type": "text", "text": system_prompt(agent), "cache_control": {"type": "ephemeral"}}],
            "tools": [asdict(tools[name].definition) for name in agent.tools],
        }
        self._opening, self._result = opening, result
        self._chats: dict[str, list[dict[str, Any]]] = {}

    async def call(self, word: str) -> str:
        steps, name = int(word.rpartition(" ")[2]), str(activity.info().workflow_id)
        opening = {"role": "user", "content": [{"type": "text", "text": self._opening(steps)}]}
        chat = self._chats.setdefault(name, [opening])
        sent: list[Any] = [{**message, "content": [dict(block) for block in message["content"]]} for message in chat]
        for message in [one for one in sent if one["role"] == "user"][-2:]:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
        async with self._client.messages.stream(**self._request, messages=sent) as stream:
            reply = await stream.get_final_message()
        content = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in reply.content]
        chat.append({"role": "assistant", "content": content})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": self._result(len(chat))}
            for block in content
            if block["type"] == "tool_use"
        ]
        if results:
            chat.append({"role": "user", "content": results})
        else:
            del self._chats[name]
        return word


def model_calls(settings: Settings) -> list[Callable[[str], Awaitable[str]]]:
    """Three model calls: one for the steps of `bench`, with short results, one for the loop of `bench.peers`, and one
    with a long reply."""
    tools = load_tools(settings.tools_module).found
    assistant = check_agents(settings.agents_dir, Catalogue(tools, HANDLERS)).agents[AGENT]
    looker = AgentDefinition.model_validate({"name": LOOKER, **LOOKS})
    short = BareModelCall(settings, assistant, tools, counting, lambda _: "The workspace is empty.")
    looking = BareModelCall(settings, looker, {tool.name: tool for tool in look_tool.TOOLS}, prompt, result)

    long = BareModelCall(settings, assistant, tools, speaking, str)

    @activity.defn(name=MODEL_CALL)
    async def call(word: str) -> str:
        return await short.call(word)

    @activity.defn(name=LOOKING_CALL)
    async def call_looking(word: str) -> str:
        return await looking.call(word)

    @activity.defn(name=SPEAKING_CALL)
    async def call_speaking(word: str) -> str:
        return await long.call(word)

    return [call, call_looking, call_speaking]


async def run(settings: Settings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = await connect()
    beat = timedelta(seconds=settings.cancel_heartbeat_seconds)
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[BareLoop, BareLoopUnsandboxed, BareIdle],
        activities=[model, tool, *await asyncio.to_thread(model_calls, settings)],
        # The SDK's usual runner. Our own worker has no sandbox; neither has the workflow `BareLoopUnsandboxed`.
        workflow_runner=SandboxedWorkflowRunner(),
        max_concurrent_activities=settings.max_model_calls + settings.max_tool_calls,
        max_concurrent_workflow_tasks=16,
        max_heartbeat_throttle_interval=beat,
        default_heartbeat_throttle_interval=beat,
    ):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(run(Settings.from_env()))
