"""Tools of a user's module that use the state object, so that tests can see variables, files, status and the parent."""

import logging

from pydantic import BaseModel

from activities.tools.tool import ArtifactFile, Tool, ToolContext, ToolResult
from domain.events import Progress
from domain.sessions.session import Effect

log = logging.getLogger("errand.user")


class Reveal(BaseModel):
    names: list[str]
    how: str = "text"


async def reveal(input: Reveal, context: ToolContext) -> ToolResult:
    """Reveal the values in every way in which a careless tool could."""
    values = [context.state.variables.get(name, "(none)") for name in input.names]
    text = f"Values: {' '.join(values)}; lengths: {' '.join(str(len(value)) for value in values)}"
    if input.how == "raise":
        raise RuntimeError(text)
    log.warning("a careless line: %s", text)
    if input.how == "status":
        await context.state.set_status(text)
    if input.how == "parent":
        await context.state.notify_parent(text)
    artifact = ArtifactFile("values.txt", b"none", "text/plain", description=text)
    long = "\n".join([text] * 2_000) if input.how == "long" else text
    return ToolResult(long, events=[Progress(message=text)], progress=text, artifacts=[artifact])


class Assign(BaseModel):
    values: dict[str, str]


async def assign(input: Assign, context: ToolContext) -> ToolResult:
    """Set variables, and repeat them."""
    await context.state.set_variables(**input.values)
    return ToolResult(" ".join(context.state.variables[name] for name in input.values))


class Defer(BaseModel):
    tool: str
    path: str = "."


async def defer(input: Defer, context: ToolContext) -> ToolResult:
    return ToolResult(f"Queued: {await context.state.queue_tool(input.tool, path=input.path)}")


class Nothing(BaseModel):
    pass


async def whoami(input: Nothing, context: ToolContext) -> ToolResult:
    """Return the session for which the tool runs, and write a file to its directory."""
    (context.workspace / "whoami").touch()
    return ToolResult(f"I act for {context.agent} in {context.ref.session_id} of {context.ref.conversation_id}.")


TOOLS = [
    Tool(name="whoami", description="Says for whom it acts.", input=Nothing, run=whoami, effect=Effect.IDEMPOTENT),
    Tool(name="defer", description="Queues a tool.", input=Defer, run=defer, effect=Effect.IDEMPOTENT),
    Tool(name="assign", description="Sets variables.", input=Assign, run=assign, effect=Effect.IDEMPOTENT),
    Tool(name="reveal", description="Uses variables.", input=Reveal, run=reveal, effect=Effect.IDEMPOTENT),
]
