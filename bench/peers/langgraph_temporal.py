"""LangGraph on Temporal with its plugin: each node an activity, which gets the whole state."""

import operator
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from temporalio import workflow
from temporalio.client import Client
from temporalio.langgraph import LangGraphPlugin
from temporalio.langgraph import graph as graph_of
from temporalio.worker import Worker
from typing_extensions import TypedDict

with workflow.unsafe.imports_passed_through():
    from bench.peers.asking import ask, call_of, text_of, tool_result
    from bench.peers.script import Done, counted, prompt, result

QUEUE = "peer-langgraph"
ACTIVITY = {"execute_in": "activity", "start_to_close_timeout": timedelta(seconds=60)}


class State(TypedDict):
    """Messages as plain text: a node would get LangChain's message objects as a dump."""

    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": await ask(state["messages"])}]}


async def tool(state: State) -> dict[str, Any]:
    call = call_of(state["messages"][-1]["content"])
    assert call is not None
    return {"messages": [tool_result(call["id"], result(call["input"]["number"]))]}


async def after_model(state: State) -> str:
    return "tool" if call_of(state["messages"][-1]["content"]) else END


def build() -> StateGraph:
    graph = StateGraph(State)
    graph.add_node("model", model, metadata=ACTIVITY)
    graph.add_node("tool", tool, metadata=ACTIVITY)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tool", END])
    graph.add_edge("tool", "model")
    return graph


@workflow.defn
class LangGraphLoop:
    @workflow.run
    async def run(self, steps: int) -> int:
        opening = {"messages": [{"role": "user", "content": prompt(steps)}]}
        ended = await graph_of("loop").compile().ainvoke(opening, {"recursion_limit": 2 * steps + 10})
        return counted(text_of(ended["messages"][-1]["content"]))


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    plugin = LangGraphPlugin(graphs={"loop": build()})
    client = await Client.connect(temporal, plugins=[plugin])

    async def run(steps: int) -> Done:
        name = f"{QUEUE}/{uuid.uuid4()}"
        return Done(await client.execute_workflow(LangGraphLoop.run, steps, id=name, task_queue=QUEUE), name)

    async with Worker(client, task_queue=QUEUE, workflows=[LangGraphLoop]):
        yield run
