"""A hook: its name in definitions, the moment at which it runs, and its function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from activities.thread_state import ThreadState
from domain.agents.hook import HookPoint, HookReply


@dataclass(frozen=True, kw_only=True)
class SessionHook:
    name: str
    point: HookPoint
    # It receives the moment (BeforeModel, AfterModel, … of domain.agents.hook) and the state object. It may run again
    # after a crash, so its effects outside should be safe to repeat; changes through the state object are.
    run: Callable[[Any, ThreadState], Awaitable[HookReply | None]]
    timeout_s: float = 10
