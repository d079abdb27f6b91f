"""Handlers and hooks: those that come with the platform, and those of a user's module."""

import sys
from types import ModuleType
from typing import Any

import pytest

from activities.handlers.registry import HANDLERS, hand_in, load_handlers, round_table
from activities.hooks.hook import SessionHook, load_hooks
from activities.tools.registry import load_tools
from domain.agents.handler import AnsweredCall, HandlerMessage, HandlerReply, HandlerTurn, Speaker
from domain.agents.hook import HookPoint

SEATS = ["ann", "ben", "cat"]
RESULT = "Subagent (reference: x) has returned the following result:\n\n"


def turn(*messages: HandlerMessage, rounds: str = "", seats: list[str] = SEATS) -> HandlerTurn:
    task = HandlerMessage(speaker=Speaker.USER, text="Tea or coffee?")
    return HandlerTurn(
        key="k",
        session_id="s",
        agent="table",
        side="a",
        step=1,
        messages=[task, *messages],
        variables={"ROUNDS": rounds},
        subagents=seats,
    )


def spoke(name: str, text: str, failed: bool = False, create: bool = True) -> HandlerMessage:
    given = {"agent": name, "name": name} if create else {"target": name}
    tool = "subagent_create" if create else "subagent_message"
    call = AnsweredCall(name=tool, input=given, result=RESULT + text, failed=failed)
    return HandlerMessage(speaker=Speaker.SELF, calls=[call])


def addressed(reply: HandlerReply) -> str:
    [call] = reply.calls
    return str(call.input.get("target") or call.input["name"])


async def test_participants_speak_in_turn_and_get_the_messages_of_the_others() -> None:
    first = await round_table(turn())
    assert addressed(first) == "ann" and "Tea or coffee?" in first.calls[0].input["message"]
    second = await round_table(turn(spoke("ann", "Tea.")))
    assert addressed(second) == "ben" and "ann: Tea." in second.calls[0].input["message"]
    again = await round_table(turn(spoke("ann", "Tea."), spoke("ben", "Coffee."), spoke("cat", "Water.")))
    assert again.calls[0].name == "subagent_message" and addressed(again) == "ann"
    # her own thread already has the earlier messages
    assert again.calls[0].input["message"] == "ben: Coffee.\n\ncat: Water."


async def test_addressed_participant_speaks_next() -> None:
    assert addressed(await round_table(turn(spoke("ann", "What do you say, @cat?")))) == "cat"
    assert addressed(await round_table(turn(spoke("ann", "I, @ann, say tea.")))) == "ben"
    assert addressed(await round_table(turn(spoke("ann", "Write to @catherine.")))) == "ben"


@pytest.mark.parametrize(("rounds", "most"), [("1", 3), ("", 6), ("many", 6), ("0", 6)])
async def test_round_table_ends_after_all_rounds(rounds: str, most: int) -> None:
    said = [spoke(SEATS[number % 3], f"Word {number}.", create=number < 3) for number in range(most)]
    assert (await round_table(turn(*said[:-1], rounds=rounds))).calls
    last = await round_table(turn(*said, rounds=rounds))
    assert not last.calls and last.ends is None and f"Word {most - 1}." in last.text


async def test_round_table_fails_with_too_few_participants_or_one_that_fails() -> None:
    assert (await round_table(turn(seats=["ann"]))).ends == "fail"
    failed = await round_table(turn(spoke("ann", "no", failed=True)))
    assert failed.ends == "fail" and failed.text.startswith("ann could not speak")


async def test_hand_in_ends_the_session_with_what_the_other_side_said() -> None:
    said = HandlerMessage(speaker=Speaker.OTHER, text="A draft.")
    assert await hand_in(turn(said)) == HandlerReply(text="A draft.", ends="stop")
    assert (await hand_in(turn())).ends == "fail"


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


def test_hooks_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_hooks(hooks_module(monkeypatch, [hook()]))
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
    loaded = load_hooks(hooks_module(monkeypatch, hooks))
    assert loaded.found == {} and len(loaded.problems) == 1 and why in loaded.problems[0]


def test_good_hooks_work_beside_bad_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_hooks(hooks_module(monkeypatch, [hook(name="no name"), hook(), hook(), watches]))
    assert list(loaded.found) == ["watches"] and len(loaded.problems) == 3
    assert "there are two hooks named 'watches'" in loaded.problems[1]
