"""All hooks by name: those in HOOKS of the user's module, a list of SessionHook."""

import inspect
import re

from activities.hooks.hook import SessionHook
from activities.tools.registry import ToolsError, users_module
from domain.agents.hook import HookPoint

MOST_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


def load_hooks(module: str | None) -> dict[str, SessionHook]:
    listed = getattr(users_module(module), "HOOKS", []) if module is not None else []
    where = f"ERRAND_TOOLS_MODULE: {module}"
    if not isinstance(listed, list | tuple):
        raise ToolsError(f"{where}: HOOKS must be a list of activities.hooks.hook.SessionHook")
    hooks: dict[str, SessionHook] = {}
    for hook in listed:
        if not isinstance(hook, SessionHook):
            raise ToolsError(f"{where}: HOOKS holds {hook!r}, which is not an activities.hooks.hook.SessionHook")
        if not isinstance(hook.name, str) or not _NAME.fullmatch(hook.name):
            raise ToolsError(f"{where}: {hook.name!r} is not a name for a hook")
        if hook.name in hooks:
            raise ToolsError(f"{where}: there are two hooks named {hook.name!r}")
        if hook.point not in set(HookPoint):
            points = ", ".join(HookPoint)
            raise ToolsError(f"{where}: the hook {hook.name!r} runs at {hook.point!r}, not at one of {points}")
        if not inspect.iscoroutinefunction(hook.run):
            raise ToolsError(f"{where}: the hook {hook.name!r} is not an async function")
        if not 0 < hook.timeout_s <= MOST_SECONDS:
            raise ToolsError(f"{where}: the hook {hook.name!r} may take at most {MOST_SECONDS:g} seconds")
        hooks[hook.name] = hook
    return hooks
