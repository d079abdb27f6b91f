"""Tools of a user's module for tests: each call writes a line to a file outside the platform."""

import asyncio
from pathlib import Path

from pydantic import BaseModel

from activities.tools.tool import Tool, ToolContext, ToolResult
from bench import look_tool
from domain.agents.handler import HandlerCall, HandlerReply, HandlerTurn, Speaker
from domain.policy.rules import Subject, SubjectKind
from domain.sessions.session import Effect
from tests.support import user_hooks, user_tools


class Input(BaseModel):
    path: str
    seconds: float = 0
    deaf: bool = False  # to a stop


async def write_line(input: Input, context: ToolContext) -> ToolResult:
    """Write one line per real execution; then sleep, so that a test can interrupt the call."""
    await asyncio.to_thread(_write, Path(input.path), f"{context.key} {context.again}\n")
    try:
        await asyncio.sleep(input.seconds)
    except asyncio.CancelledError:
        if not input.deaf:
            raise
        await asyncio.sleep(input.seconds)
    return ToolResult("Done.")


def _write(path: Path, line: str) -> None:
    with path.open("a") as ledger:
        ledger.write(line)


async def wait_for(input: Input, context: ToolContext) -> ToolResult:
    """Wait until the file exists: a test can hold the session this way."""
    while not await asyncio.to_thread(Path(input.path).exists):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.05)
    return ToolResult("It is there.")


async def explode(input: Input, context: ToolContext) -> ToolResult:
    raise RuntimeError(f"secret-of-an-exception {input.path}")


class Copy(BaseModel):
    source: str
    targets: list[str]


async def copy(input: Copy, context: ToolContext) -> ToolResult:
    content = await asyncio.to_thread((context.workspace / input.source).read_bytes)
    for target in input.targets:
        await asyncio.to_thread((context.workspace / target).write_bytes, content)
    return ToolResult(f"Copied {input.source}.")


class Ping(BaseModel):
    host: str


async def ping(input: Ping, context: ToolContext) -> ToolResult:
    return ToolResult(f"Reached {input.host}.")


class Add(BaseModel):
    numbers: list[int]


async def add(input: Add, context: ToolContext) -> ToolResult:
    return ToolResult(f"The sum is {sum(input.numbers)}.")


def _tool(name: str, effect: Effect) -> Tool:
    return Tool(name=name, description="Writes a line into a ledger.", input=Input, run=write_line, effect=effect)


TOOLS = [
    *look_tool.TOOLS,
    _tool("ledger_once", Effect.ONCE),
    _tool("ledger_again", Effect.IDEMPOTENT),
    Tool(name="wait_for", description="Waits for a file.", input=Input, run=wait_for, effect=Effect.READ),
    Tool(
        name="copy_file",
        description="Copies a file.",
        input=Copy,
        run=copy,
        effect=Effect.IDEMPOTENT,
        subject=Subject(kind=SubjectKind.PATH, fields=("source", "targets")),
        touches=(SubjectKind.PATH,),
    ),
    Tool(
        name="ping",
        description="Reaches a host.",
        input=Ping,
        run=ping,
        effect=Effect.READ,
        subject=Subject(kind=SubjectKind.HOST, fields=("host",)),
        touches=(SubjectKind.HOST,),
    ),
    Tool(name="add", description="Adds numbers.", input=Add, run=add, effect=Effect.READ, touches=()),
    Tool(name="explode", description="Fails.", input=Input, run=explode, effect=Effect.READ),
    *user_tools.TOOLS,
]


async def metronome(turn: HandlerTurn) -> HandlerReply:
    """Replies with the number of turns of the other side; each attempt writes a line to the path in LEDGER, if set."""
    said = [message.text for message in turn.messages if message.speaker is Speaker.OTHER]
    if path := turn.variables.get("LEDGER"):
        await asyncio.to_thread(_write, Path(path), f"{turn.key} {turn.step}\n")
    await asyncio.sleep(float(turn.variables.get("SECONDS", "0")))
    if len(said) >= int(turn.variables.get("BEATS", "2")):
        return HandlerReply(text=f"Enough after {len(said)}.", ends="stop", status="done")
    return HandlerReply(text=f"Beat {len(said)}.", status=f"beat {len(said)}")


async def caller(turn: HandlerTurn) -> HandlerReply:
    """Calls list_files, then reports whether the call failed."""
    made = [call for message in turn.messages for call in message.calls]
    if not made:
        return HandlerReply(text="Looking.", calls=[HandlerCall(name="list_files", input={"path": "."})])
    return HandlerReply(text=f"{made[0].name}: {'failed' if made[0].failed else 'ok'}")


async def broken(turn: HandlerTurn) -> HandlerReply:
    raise RuntimeError("secret-of-an-exception")


async def quits(turn: HandlerTurn) -> HandlerReply:
    return HandlerReply(text="I give up.", ends="fail")


async def speechless(turn: HandlerTurn) -> HandlerReply:
    return HandlerReply.model_construct(text="", calls=[])


HANDLERS = {
    "metronome": metronome,
    "caller": caller,
    "broken": broken,
    "quits": quits,
    "speechless": speechless,
}

HOOKS = user_hooks.HOOKS
