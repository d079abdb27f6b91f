"""LangGraph with its PostgreSQL saver, which keeps a checkpoint before the next node runs (durability "sync")."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from bench.peers.asking import ask, call_of, text_of, tool_result
from bench.peers.script import Done, counted, prompt, result


async def model(state: MessagesState) -> dict[str, Any]:
    blocks = await ask([as_sent(message) for message in state["messages"]])
    call = call_of(blocks)
    calls = [{"name": call["name"], "args": call["input"], "id": call["id"]}] if call else []
    return {"messages": [AIMessage(blocks, tool_calls=calls)]}


def as_sent(message: AnyMessage) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return tool_result(message.tool_call_id, str(message.content))
    return {"role": "assistant" if isinstance(message, AIMessage) else "user", "content": message.content}


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
            return Done(counted(text_of(ended["messages"][-1].content)))

        yield run
