"""Handlers and hooks: those that come with the platform, and those of a user's module."""

import sys
from types import ModuleType
from typing import Any

import pytest

from activities.handlers.registry import HANDLERS, load_handlers
from activities.hooks.hook import SessionHook, load_hooks
from domain.agents.handler import HandlerReply, HandlerTurn
from domain.agents.hook import HookPoint


async def greet(turn: HandlerTurn) -> HandlerReply:
    return HandlerReply(text="Hello.")


def module(monkeypatch: pytest.MonkeyPatch, **contents: Any) -> str:
    made = ModuleType("own_handlers")
    made.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, "own_handlers", made)
    return "own_handlers"


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([greet], "must be a dictionary"),
        ({"": greet}, "is not a name"),
        ({"hand_in": greet}, "already a handler"),
        ({"greet": print}, "not an async function"),
    ],
)
def test_value_that_is_no_handler_is_refused(monkeypatch: pytest.MonkeyPatch, listed: Any, reason: str) -> None:
    loaded = load_handlers(module(monkeypatch, HANDLERS=listed))
    assert loaded.found == HANDLERS and len(loaded.problems) == 1 and reason in loaded.problems[0]


async def watches(moment: Any, state: Any) -> None:
    """A hook that does nothing."""


def hook(**changes: Any) -> Any:
    given: dict[str, Any] = {"name": "watches", "point": HookPoint.ON_END, "run": watches}
    return SessionHook(**given | changes)


def hooks_module(monkeypatch: pytest.MonkeyPatch, hooks: Any) -> str:
    made = ModuleType("users_hooks")
    made.HOOKS = hooks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_hooks", made)
    return "users_hooks"


@pytest.mark.parametrize(
    ("hooks", "why"),
    [
        ([watches], "is not an activities.hooks.hook.SessionHook"),
        ([hook(name="no name")], "is not a name"),
        ([hook(point="sometimes")], "runs at 'sometimes', not at one of before_model"),
        ([hook(run=print)], "is not an async function"),
        ([hook(timeout_s=61)], "at most 60 seconds"),
    ],
)
def test_hooks_that_cannot_be_used_are_refused(monkeypatch: pytest.MonkeyPatch, hooks: Any, why: str) -> None:
    loaded = load_hooks(hooks_module(monkeypatch, hooks))
    assert loaded.found == {} and len(loaded.problems) == 1 and why in loaded.problems[0]
