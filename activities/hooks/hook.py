"""A hook: its name in definitions, the moment at which it runs, and its function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from activities.runtime.thread_state import ThreadState
from domain.agents.hook import HookPoint, HookReply


@dataclass(frozen=True, kw_only=True)
class SessionHook:
    name: str
    point: HookPoint
    # given the moment (BeforeModel, AfterModel, … of domain.agents.hook) and the state object. It may run again after a
    # crash, so what it does outside should be safe to repeat; what it does with the state object is.
    run: Callable[[Any, ThreadState], Awaitable[HookReply | None]]
    timeout_s: float = 10
