"""All handlers by name. Users add theirs as HANDLERS, name -> async function, in the module of their own tools."""

import inspect
import re

from activities.handlers.builtin import hand_in, round_table
from activities.tools.registry import Loaded, users_module
from domain.agents.handler import Handler

HANDLERS: dict[str, Handler] = {"hand_in": hand_in, "round_table": round_table}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def load_handlers(module: str | None) -> Loaded[Handler]:
    """The built-in handlers and those in `HANDLERS` of the named module."""
    loaded = Loaded(dict(HANDLERS))
    listed = getattr(users_module(module, loaded.problems), "HANDLERS", {})
    if not isinstance(listed, dict):
        loaded.problems.append(f"ERRAND_TOOLS_MODULE: {module}: HANDLERS must be a dictionary: name -> async function")
        return loaded
    for name, function in listed.items():
        if problem := _problem(name, function):
            loaded.problems.append(f"ERRAND_TOOLS_MODULE: {module}: {problem}")
        else:
            loaded.found[name] = function
    return loaded


def _problem(name: object, function: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not a name for a handler"
    if name in HANDLERS:
        return f"there is already a handler named {name!r}; rename yours"
    if not inspect.iscoroutinefunction(function):
        return f"the handler {name!r} is not an async function"
    return None
