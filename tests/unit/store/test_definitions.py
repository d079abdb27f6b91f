"""A worker keeps the definitions that it used last, and does not keep those of a single session."""

from typing import Any

import pytest

from domain.agents.definition import AgentDefinition
from domain.sessions.session import AgentRef
from store import agents
from store.database import PatientPool


async def test_kept_definitions_are_bounded_and_private_ones_are_read_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[AgentRef] = []

    async def load(pool: Any, ref: AgentRef) -> AgentDefinition:
        read.append(ref)
        return AgentDefinition.model_validate({"name": ref.name})

    monkeypatch.setattr(agents, "load", load)
    monkeypatch.setattr(agents, "MOST_VERSIONS", 2)
    private = AgentRef(owner=agents.private_owner("s1"), name="p", version=1)
    a, b, c = (AgentRef(owner="t", name=name, version=1) for name in "abc")
    pool: Any = PatientPool.__new__(PatientPool)
    for ref in (private, a, b, private, a, c, a, b):
        assert (await agents.load_view(pool, ref)).name == ref.name
    assert read == [private, a, b, private, c, b]
