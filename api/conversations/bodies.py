"""Bodies of the requests that run turns of a conversation, and the handle that they get."""

from typing import Annotated, Any, Literal

from errand import models
from pydantic import Field, StringConstraints

from api.http.body import check_input_length
from api.http.problems import refuse
from domain.json_object import JsonObject
from domain.sessions.session import DeliveryMode
from domain.task import Id, Strict, TaskSpec, Text, Work
from settings import Settings

TRANSPORTS = ("sse", "stream")
Transport = Literal["sse", "stream"]
AgentName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Metadata = Annotated[JsonObject, Field(max_length=100, description="your own keys; lists can be filtered by them")]
HowDelivered = Annotated[
    DeliveryMode | None,
    Field(
        strict=False, description="how outcomes of subagents are delivered; default: as each delegation tool does it"
    ),
]


class MessageBody(Work):
    """The body of POST /conversations/{id}/messages: a further turn."""

    agent: AgentName | None = Field(default=None, description="default: the agent of the latest turn")
    input: Text | JsonObject | None = Field(default=None, description="required unless there are `answers`")
    answers: dict[Id, Any] | None = Field(
        default=None,
        max_length=200,
        description="answers to what the running session waits for, by request; omitted approvals are denied, "
        "omitted calls of external tools count as failed",
    )
    title: Title | None = None
    transport: Transport = Field(default="stream", description="sse: the response is the event stream itself")
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="queue", description="while a session is running: 409, wait until it ends, or pass the message to it"
    )
    delivery: HowDelivered = None
    metadata: Metadata | None = None

    def task(self, agent: str) -> TaskSpec:
        shared = {name: getattr(self, name) for name in TaskSpec.model_fields if name != "agent"}
        return TaskSpec.model_construct(agent=agent, **shared)


class RunBody(MessageBody):
    """The body of POST /conversations/run: a new conversation, a further turn of one, or a fork of a session."""

    conversation_id: Id | None = Field(default=None, description="continue this conversation")
    fork_from: Id | None = Field(default=None, description="start a new conversation where this session ended")
    transport: Transport = Field(
        default="sse", description="stream: 202 and a handle; attach to the events at any time"
    )
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="reject", description="while a session is running: 409, wait until it ends, or pass the message to it"
    )


class FireBody(Strict):
    """The body of POST /conversations/{id}/fire."""

    input: Text | JsonObject | None = Field(default=None, description="a message of yours, after the outcomes")
    agent: AgentName | None = None
    transport: Transport = "stream"
    if_busy: Literal["reject", "queue"] = "reject"


class ForkBody(Strict):
    """The body of POST /conversations/{id}/fork."""

    from_session: Id | None = Field(default=None, description="default: the latest session with a committed step")
    title: Title | None = None
    metadata: Metadata | None = None


class ConversationChange(Strict):
    """The body of PATCH /conversations/{id}; fields left out stay unchanged."""

    title: Title | None = None
    delivery: HowDelivered = None
    metadata: Metadata | None = Field(default=None, description="null removes a key")


def check_value(value: Any, settings: Settings) -> None:
    """Check parts of a raw body whose refusals have their own problem type: the input's length, the transport."""
    check_input_length(value, settings)
    transport = value.get("transport", "sse") if isinstance(value, dict) else "sse"
    if transport not in TRANSPORTS:
        raise refuse("/transport", "unknown_transport", "there is none", TRANSPORTS, type="unknown-transport")


def check_message(body: MessageBody) -> None:
    """Check that a message has an input or answers; only an existing conversation can wait for answers."""
    if body.input is None and body.answers is None:
        raise refuse("/input", "missing", "this field is required")
    if isinstance(body, RunBody) and body.answers is not None and (body.conversation_id is None or body.fork_from):
        raise refuse("/answers", "excluded", "only an existing conversation can wait for answers")


def stream_key(session_id: str) -> str:
    """The path of a session's event stream."""
    return f"/tasks/{session_id}/events"


def handle(session_id: str, conversation_id: str, **more: bool) -> models.SessionHandle:
    return models.SessionHandle(
        session_id=session_id, conversation_id=conversation_id, stream_key=stream_key(session_id), **more
    )
