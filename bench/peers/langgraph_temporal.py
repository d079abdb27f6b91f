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

from bench.peers.script import Done, prompt, result, wanted

QUEUE = "peer-langgraph"
ACTIVITY = {"execute_in": "activity", "start_to_close_timeout": timedelta(seconds=60)}


class State(TypedDict):
    """Plain words: of LangChain's own messages a node would get the dump, not the objects."""

    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    seen = sum(message["role"] == "tool" for message in state["messages"])
    if seen < wanted(state["messages"][0]["content"]):
        call = {"name": "look", "args": {"number": seen}, "id": f"call-{seen}"}
        return {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    return {"messages": [{"role": "assistant", "content": str(seen)}]}


async def tool(state: State) -> dict[str, Any]:
    (call,) = state["messages"][-1]["tool_calls"]
    content = result(call["args"]["number"])
    return {"messages": [{"role": "tool", "content": content, "tool_call_id": call["id"]}]}


async def after_model(state: State) -> str:
    return "tool" if "tool_calls" in state["messages"][-1] else END


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
        return int(ended["messages"][-1]["content"])


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    plugin = LangGraphPlugin(graphs={"loop": build()})
    client = await Client.connect(temporal, plugins=[plugin])

    async def run(steps: int) -> Done:
        name = f"{QUEUE}/{uuid.uuid4()}"
        return Done(await client.execute_workflow(LangGraphLoop.run, steps, id=name, task_queue=QUEUE), name)

    async with Worker(client, task_queue=QUEUE, workflows=[LangGraphLoop]):
        yield run
