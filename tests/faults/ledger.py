"""Tools of a user's own, as the tests need them: deeds that a file outside the platform remembers."""

import asyncio
from pathlib import Path

from pydantic import BaseModel

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.step import Effect


class Input(BaseModel):
    path: str
    seconds: float = 0


async def deed(input: Input, context: ToolContext) -> ToolResult:
    """One line per time it really happened; then it takes a while, so that a test can interrupt it."""
    await asyncio.to_thread(_write, Path(input.path), f"{context.key} {context.attempt}\n")
    await asyncio.sleep(input.seconds)
    return ToolResult("Done.")


def _write(path: Path, line: str) -> None:
    with path.open("a") as ledger:
        ledger.write(line)


async def quick_deed(input: Input, context: ToolContext) -> ToolResult:
    """Only the first time takes a while."""
    first = not await asyncio.to_thread(Path(input.path).exists)
    return await deed(input if first else Input(path=input.path), context)


async def wait_for(input: Input, context: ToolContext) -> ToolResult:
    """Until the file is there: so long a test holds the session."""
    while not await asyncio.to_thread(Path(input.path).exists):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.05)
    return ToolResult("It is there.")


async def explode(input: Input, context: ToolContext) -> ToolResult:
    raise RuntimeError(f"secret-of-an-exception {input.path}")


def _tool(name: str, effect: Effect) -> Tool:
    return Tool(name=name, description="Writes a line into a ledger.", input=Input, run=deed, effect=effect)


TOOLS = [
    _tool("ledger_once", Effect.ONCE),
    _tool("ledger_again", Effect.IDEMPOTENT),
    Tool(
        name="ledger_quick",
        description="Writes a line into a ledger, at once.",
        input=Input,
        run=quick_deed,
        effect=Effect.READ,
        quick=True,
    ),
    Tool(name="wait_for", description="Waits for a file.", input=Input, run=wait_for, effect=Effect.READ),
    Tool(name="explode", description="Fails.", input=Input, run=explode, effect=Effect.READ),
]
