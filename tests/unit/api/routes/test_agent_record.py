"""The record of an agent: its definition, and the version that the platform counts."""

from api.routes.agents import AgentRecord
from domain.agents.definition import AgentDefinition
from domain.sessions.session import AgentRef


def test_record_has_the_version_that_the_platform_counts() -> None:
    definition = AgentDefinition(name="a", description="a", prompt="a")
    record = AgentRecord.of(AgentRef(name="a", owner="t", version=3), definition)
    assert (record.version, record.shipped, record.packaging) == (3, False, None)
