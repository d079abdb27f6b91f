"""Hooks of a user's module are loaded, or refused with a text that says what to change."""

import sys
from types import ModuleType
from typing import Any

import pytest

from activities.hooks.hook import SessionHook
from activities.hooks.registry import load_hooks
from domain.agents.hook import HookPoint


async def watches(moment: Any, state: Any) -> None:
    """A hook that does nothing."""


def hook(**changes: Any) -> Any:
    given: dict[str, Any] = {"name": "watches", "point": HookPoint.ON_END, "run": watches}
    return SessionHook(**given | changes)


def module(monkeypatch: pytest.MonkeyPatch, hooks: Any) -> str:
    made = ModuleType("users_hooks")
    made.HOOKS = hooks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "users_hooks", made)
    return "users_hooks"


def test_hooks_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_hooks(module(monkeypatch, [hook()]))
    assert (list(loaded.found), loaded.problems) == (["watches"], []) and load_hooks(None).found == {}


@pytest.mark.parametrize(
    ("hooks", "why"),
    [
        ({"watches": watches}, "must be a list"),
        ([watches], "is not an activities.hooks.hook.SessionHook"),
        ([hook(name="no name")], "is not a name"),
        ([hook(point="sometimes")], "runs at 'sometimes', not at one of before_model"),
        ([hook(run=print)], "is not an async function"),
        ([hook(timeout_s=61)], "at most 60 seconds"),
        ([hook(timeout_s=0)], "at most 60 seconds"),
    ],
)
def test_hooks_that_cannot_be_used_are_refused(monkeypatch: pytest.MonkeyPatch, hooks: Any, why: str) -> None:
    loaded = load_hooks(module(monkeypatch, hooks))
    assert loaded.found == {} and len(loaded.problems) == 1 and why in loaded.problems[0]


def test_good_hooks_work_beside_bad_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_hooks(module(monkeypatch, [hook(name="no name"), hook(), hook(), watches]))
    assert list(loaded.found) == ["watches"] and len(loaded.problems) == 3
    assert "there are two hooks named 'watches'" in loaded.problems[1]
