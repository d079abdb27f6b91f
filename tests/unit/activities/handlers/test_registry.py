"""The handlers of a user's module: which are loaded, and which are refused."""

import sys
from types import ModuleType
from typing import Any

import pytest

from activities.handlers.registry import HANDLERS, load_handlers
from activities.tools.registry import load_tools
from domain.agents.handler import HandlerReply, HandlerTurn


async def greet(turn: HandlerTurn) -> HandlerReply:
    return HandlerReply(text="Hello.")


def module(monkeypatch: pytest.MonkeyPatch, **contents: Any) -> str:
    made = ModuleType("own_handlers")
    made.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, "own_handlers", made)
    return "own_handlers"


def test_handlers_of_a_module_are_added_to_the_built_in_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(monkeypatch, HANDLERS={"greet": greet})
    loaded = load_handlers(name)
    assert (loaded.found, loaded.problems) == ({**HANDLERS, "greet": greet}, [])
    assert load_tools(name) == load_tools(None)  # a module of handlers needs no tools
    assert load_handlers(None).found == HANDLERS == load_handlers(module(monkeypatch, TOOLS=[])).found


@pytest.mark.parametrize(
    ("listed", "reason"),
    [
        ([greet], "must be a dictionary"),
        ({"": greet}, "is not a name"),
        ({7: greet}, "is not a name"),
        ({"hand_in": greet}, "already a handler"),
        ({"greet": print}, "not an async function"),
    ],
)
def test_value_that_is_no_handler_is_refused(monkeypatch: pytest.MonkeyPatch, listed: Any, reason: str) -> None:
    loaded = load_handlers(module(monkeypatch, HANDLERS=listed))
    assert loaded.found == HANDLERS and len(loaded.problems) == 1 and reason in loaded.problems[0]
