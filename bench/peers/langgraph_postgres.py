"""LangGraph with its PostgreSQL saver, which keeps a checkpoint before the next node runs (durability "sync")."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.peers.script import Done, prompt, result, wanted


async def model(state: MessagesState) -> dict[str, Any]:
    seen = sum(isinstance(message, ToolMessage) for message in state["messages"])
    if seen < wanted(str(state["messages"][0].content)):
        call = {"name": "look", "args": {"number": seen}, "id": f"call-{seen}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage(str(seen))]}


async def tool(state: MessagesState) -> dict[str, Any]:
    (call,) = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage(result(call["args"]["number"]), tool_call_id=call["id"])]}


def after_model(state: MessagesState) -> str:
    return "tool" if state["messages"][-1].tool_calls else END


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tool", tool)
graph.add_edge(START, "model")
graph.add_conditional_edges("model", after_model, ["tool", END])
graph.add_edge("tool", "model")


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    async with AsyncPostgresSaver.from_conn_string(database) as saver:
        await saver.setup()
        compiled = graph.compile(checkpointer=saver)

        async def run(steps: int) -> Done:
            config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": 2 * steps + 10}
            opening = {"messages": [HumanMessage(prompt(steps))]}
            ended = await compiled.ainvoke(opening, config, durability="sync")
            return Done(int(ended["messages"][-1].content))

        yield run
