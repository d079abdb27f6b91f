"""A long output of a tool: the model is shown both ends, and a file of the workspace has all of it."""

import asyncio
from pathlib import Path

from activities.tools.support.output import bounded, clean
from activities.tools.support.paths import Workspace
from domain.sessions.step import ToolRequest


async def spilled(request: ToolRequest, folder: Path, text: str) -> str:
    """The text for the model. A text that is too long is first written to the workspace."""
    text = clean(text)
    short, cut = bounded(text)
    if cut:
        path = f".outputs/{request.name}-{request.node[-8:]}-{request.index}.txt"
        await asyncio.to_thread(Workspace(folder).write, path, text.encode())
        short += f"\n[The whole output is in the file {path} of the workspace.]"
    return short
