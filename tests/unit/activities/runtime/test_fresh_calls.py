"""The worker runs a call from its memory only if the store would also allow it."""

import pytest

from activities.runtime.fresh_calls import FreshCalls
from domain.content import ToolCallBlock
from domain.messages import ReplyBody
from domain.sessions.step import Effect
from domain.sessions.tool_writes import ToolAttempt
from store.messages import CallFacts

BODY = ReplyBody(content=[ToolCallBlock(id="c", name="look", arguments={"number": 1})])
FACTS = CallFacts(plan="{}", variables='{"a": "1"}', workspace_version=3, counted=False)  # type: ignore[arg-type]


def attempt(**more: object) -> ToolAttempt:
    known = {"tenant": "t", "session_id": "s", "run": "r", "node": "n", "call_index": 0, "tool": "look"}
    return ToolAttempt.model_validate({**known, "effect": Effect.READ, "holder": "r/1", "attempt": 1, **more})


def remembered(facts: CallFacts = FACTS) -> FreshCalls:
    fresh = FreshCalls()
    fresh.remember("t", "n", "r", BODY, facts)
    return fresh


def test_a_read_gets_its_arguments_and_the_session_s_facts_once() -> None:
    fresh = remembered()
    claim = fresh.take(attempt())
    assert claim is not None and claim.go and not claim.emitted and not claim.dry
    assert (claim.body, claim.plan, claim.variables, claim.workspace_version) == (BODY, "{}", {"a": "1"}, 3)
    assert fresh.take(attempt()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"effect": Effect.ONCE},
        {"effect": Effect.IDEMPOTENT},
        {"attempt": 2},
        {"run": "after a reset"},
        {"tenant": "another"},
        {"node": "another"},
    ],
)
def test_the_store_is_asked_for_every_other_call(other: dict[str, object]) -> None:
    assert remembered().take(attempt(**other)) is None


def test_the_store_is_asked_where_calls_are_counted() -> None:
    assert remembered(FACTS.model_copy(update={"counted": True})).take(attempt()) is None
