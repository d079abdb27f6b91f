"""A hook: its name in definitions, the moment at which it runs, and its function. Then all hooks by name: those in
HOOKS of the user's module, a list of SessionHook."""

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from activities.thread_state import ThreadState
from activities.tools.registry import Loaded, users_module
from domain.agents.hook import HookPoint, HookReply

MOST_SECONDS = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


@dataclass(frozen=True, kw_only=True)
class SessionHook:
    name: str
    point: HookPoint
    # It receives the moment (BeforeModel, AfterModel, … of domain.agents.hook) and the state object. It may run again
    # after a crash, so its effects outside should be safe to repeat; changes through the state object are.
    run: Callable[[Any, ThreadState], Awaitable[HookReply | None]]
    timeout_s: float = 10


def load_hooks(module: str | None) -> Loaded[SessionHook]:
    loaded: Loaded[SessionHook] = Loaded({})
    listed = getattr(users_module(module, loaded.problems), "HOOKS", [])
    if not isinstance(listed, list | tuple):
        return loaded.note(module, "HOOKS must be a list of activities.hooks.hook.SessionHook")
    for hook in listed:
        if wrong := _problem(hook, loaded.found):
            loaded.note(module, wrong)
        else:
            loaded.found[hook.name] = hook
    return loaded


def _problem(hook: object, taken: dict[str, SessionHook]) -> str | None:
    if not isinstance(hook, SessionHook):
        return f"HOOKS holds {hook!r}, which is not an activities.hooks.hook.SessionHook"
    if not isinstance(hook.name, str) or not _NAME.fullmatch(hook.name):
        return f"{hook.name!r} is not a name for a hook"
    if hook.name in taken:
        return f"there are two hooks named {hook.name!r}"
    if hook.point not in set(HookPoint):
        return f"the hook {hook.name!r} runs at {hook.point!r}, not at one of {', '.join(HookPoint)}"
    if not inspect.iscoroutinefunction(hook.run):
        return f"the hook {hook.name!r} is not an async function"
    if not 0 < hook.timeout_s <= MOST_SECONDS:
        return f"the hook {hook.name!r} may take at most {MOST_SECONDS:g} seconds"
    return None
