"""All handlers by name. Users add theirs as HANDLERS, name -> async function, in the module of their own tools."""

import inspect
import re

from activities.handlers.builtin.hand_in import hand_in
from activities.handlers.builtin.round_table import round_table
from activities.tools.registry import ToolsError, users_module
from domain.agents.handler import Handler

HANDLERS: dict[str, Handler] = {"hand_in": hand_in, "round_table": round_table}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def load_handlers(module: str | None) -> dict[str, Handler]:
    """The built-in handlers and those in `HANDLERS` of the named module."""
    listed = getattr(users_module(module), "HANDLERS", {}) if module is not None else {}
    where = f"ERRAND_TOOLS_MODULE: {module}"
    if not isinstance(listed, dict):
        raise ToolsError(f"{where}: HANDLERS must be a dictionary: name -> async function")
    for name, function in listed.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ToolsError(f"{where}: {name!r} is not a name for a handler")
        if name in HANDLERS:
            raise ToolsError(f"{where}: there is already a handler named {name!r}; rename yours")
        if not inspect.iscoroutinefunction(function):
            raise ToolsError(f"{where}: the handler {name!r} is not an async function")
    return {**HANDLERS, **listed}
