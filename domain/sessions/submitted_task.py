"""The task of a session as the code reads it. `NewSession.spec` keeps all of the submitted task; these are the fields
that anything reads later. The SQL types of the same names have the same fields."""

from pydantic import BaseModel, ConfigDict, Field

from domain.json_object import JsonObject
from domain.sessions.acceptance import Criterion
from domain.sessions.input_request import OnExpiry
from domain.sessions.session import SandboxMode

TRANSPORT = "stream"  # unless the caller wants the events as the response itself


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class NotificationConfig(_Part):
    """Who is notified of what happens in a whole tree, and when."""

    notify: list[str] = Field(default_factory=list)
    routes: dict[str, str] = Field(default_factory=dict)
    reminder_after: int | None = None
    escalate_after: int | None = None
    escalate_to: str | dict[str, str] | None = None

    def escalates_to(self, kind: str) -> str | None:
        """The subscription that an unanswered request of this kind escalates to."""
        return self.escalate_to.get(kind) if isinstance(self.escalate_to, dict) else self.escalate_to


class SubmittedConfig(NotificationConfig):
    """Settings that subagents inherit."""

    sandbox: SandboxMode | None = None
    input_timeout: int | None = None
    on_input_timeout: OnExpiry | None = None


class SubmittedContext(_Part):
    files: list[str] = Field(default_factory=list)


class SubmittedChannel(_Part):
    """The place on another service at which a person wrote."""

    message_id: str | None = None
    thread: str | None = None


class SubmittedSchedule(_Part):
    id: str
    silent_reply: str | None = None  # an answer that is exactly this is not sent


class SubmittedTask(_Part):
    input: str | JsonObject | None = None
    tags: list[str] = Field(default_factory=list)
    user_id: str | None = None
    arguments: JsonObject | None = None  # with which a subagent was created
    acceptance_criteria: list[Criterion] = Field(default_factory=list)
    constraints: list[str] = Field(default_factory=list)
    context: SubmittedContext = SubmittedContext()
    config: SubmittedConfig = SubmittedConfig()
    channel: SubmittedChannel | None = None
    schedule: SubmittedSchedule | None = None
    transport: str = TRANSPORT
    visible: bool = True
