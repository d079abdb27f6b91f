"""A child's limits: its own, and never more than its parent has left."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.delegation.plan import ChildRefused, reduce_limits
from domain.agents.definition import AgentDefinition, AgentLimits
from domain.sessions.new_session import NewSession
from domain.sessions.session import Limits, SessionRef, Usage
from store.sessions import SessionRow

HAS = {"tokens": 1_000, "cost_usd": 1.0, "tool_calls": 10}
USED = Usage(input_tokens=300, output_tokens=100, cost_usd=0.25, tool_invocations=4)
LEFT = {"tokens": 600, "cost_usd": 0.75, "tool_calls": 6}


def parent(limits: dict[str, Any], usage: Usage = USED) -> SessionRow:
    new = NewSession(agent_owner="*", agent="lead", agent_version=1, models=["m"], title="", limits=Limits(**limits))
    placed = new.place(SessionRef(tenant="default", session_id="s", conversation_id="s"))
    now = datetime.now(UTC)
    return SessionRow(**{**dict(placed), "created_at": now, "updated_at": now, "live": True, "usage": usage})


def child(**limits: Any) -> AgentDefinition:
    return AgentDefinition(name="helper", description="Helps.", prompt="Help.", limits=AgentLimits(**limits))


@pytest.mark.parametrize("name", HAS)
def test_limits_of_a_child_are_cut_to_the_rest_of_its_parents(name: str) -> None:
    for own, allowed in ((LEFT[name] * 2, LEFT[name]), (LEFT[name] / 2, LEFT[name] / 2), (None, LEFT[name])):
        given = {name: type(LEFT[name])(own)} if own is not None else {}
        assert getattr(reduce_limits(parent(HAS), child(**given)), name) == type(LEFT[name])(allowed)


@pytest.mark.parametrize(
    "spent", [Usage(input_tokens=1_000), Usage(cost_usd=1.0), Usage(tool_invocations=10)], ids=list(HAS)
)
def test_nothing_is_started_for_a_parent_that_has_nothing_left(spent: Usage) -> None:
    with pytest.raises(ChildRefused):
        reduce_limits(parent(HAS, spent), child(**HAS))
