"""Variable requests: a subagent whose variables lack values waits, and begins once somebody sets them."""

import json
from datetime import datetime
from enum import StrEnum

from domain.agents.variables import NeededVariable
from domain.conversations.requests import SpawnRequest
from domain.frozen import Frozen
from domain.json_object import Stored

ENV_REQUIRED = "subagent_env_required"


class VariableRequestStatus(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"  # all values are set, and the subagent is about to begin
    STARTED = "started"


class VariableRequest(Frozen):
    id: str
    tenant: str
    conversation_id: str
    thread_id: str  # of the parent
    session_id: str  # of the parent, which made the call
    agent: str
    name: str
    instance: bool = False  # it is resumable, so no other child may have its name
    needs: Stored[list[NeededVariable]]
    spawn: Stored[SpawnRequest]  # the original call; the values are added to it
    status: VariableRequestStatus = VariableRequestStatus.OPEN
    attempts: int = 0  # how often values were set: the conversation may have refused to start the child
    created_at: datetime | None = None

    @property
    def path(self) -> str:
        return f"/threads/{self.thread_id}/variables/{self.id}"

    @property
    def missing(self) -> list[NeededVariable]:
        return [one for one in self.needs if one.missing]

    @property
    def missing_names(self) -> list[str]:
        return list(dict.fromkeys(one.name for one in self.missing))

    @property
    def child_session_id(self) -> str:
        return self.spawn.children[0].session_id

    @property
    def reference(self) -> str:
        """The thread of the child: a new one, or that of the instance if it exists."""
        return self.spawn.children[0].thread or self.child_session_id

    def for_model(self) -> str:
        """The result of a call that could not start its subagent yet."""
        text = (
            f"'{self.name}' was not started: it needs values that only people can give. It begins with this "
            "very task as soon as they are given; do not start it again."
        )
        missing = [one.model_dump(mode="json", include={"name", "description", "kind"}) for one in self.missing]
        found = {"error": ENV_REQUIRED, "request_id": self.id, "agent": self.agent, "name": self.name}
        return json.dumps({**found, "missing": missing, "endpoint": self.path, "message": text}, ensure_ascii=False)
