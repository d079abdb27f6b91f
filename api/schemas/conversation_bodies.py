"""What callers send to the doors of conversations."""

from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field, StringConstraints

from api.http.body import M, check, read_json
from api.http.problems import finding
from api.services import ServicesDep
from api.submission import rules as submission_rules
from domain.conversations.mailbox import DeliveryMode
from domain.errors import Invalid
from domain.policy.rules import Rule
from domain.sessions.acceptance import Criterion
from domain.task import Boundary, Id, Line, Strict, TaskConfig, TaskContext, TaskSpec, Text

TRANSPORTS = ("sse", "stream")
Transport = Literal["sse", "stream"]
AgentName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Metadata = Annotated[dict[str, Any], Field(max_length=100, description="your own keys; found again by containment")]
HowDelivered = Annotated[
    DeliveryMode | None,
    Field(strict=False, description="of subagents' outcomes, instead of each door's own default"),
]


class MessageBody(Strict):
    """The body of POST /conversations/{id}/messages: a further turn."""

    agent: AgentName | None = Field(default=None, description="without one, the conversation goes on with its latest")
    input: Text | dict[str, Any] | None = Field(default=None, description="needed, except together with `answers`")
    answers: dict[Id, Any] | None = Field(
        default=None,
        max_length=200,
        description="to what the session at work waits for, by request; approvals that are left out are denied, "
        "calls of external tools that are left out have failed",
    )
    title: Title | None = None
    transport: Transport = Field(default="stream", description="sse: the answer is the event stream itself")
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="queue", description="when a session is at work: 409, wait for its end, or hand it the words"
    )
    acceptance_criteria: list[Criterion] = Field(default_factory=list, max_length=50)
    constraints: list[Line] = Field(default_factory=list, max_length=50)
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="ordered; the last match decides")
    boundary: Boundary | None = None
    context: TaskContext = TaskContext()
    config: TaskConfig = TaskConfig()
    delivery: HowDelivered = None
    metadata: Metadata | None = None

    def task(self, agent: str) -> TaskSpec:
        shared = {name: getattr(self, name) for name in TaskSpec.model_fields if name != "agent"}
        return TaskSpec.model_construct(agent=agent, **shared)


class Run(MessageBody):
    """The body of POST /conversations/run: a new conversation, a further turn of one, or a fork of a session."""

    conversation_id: Id | None = Field(default=None, description="go on with this conversation")
    fork_from: Id | None = Field(default=None, description="begin a new conversation where this session ended")
    transport: Transport = Field(default="sse", description="stream: 202 and a handle; attach whenever you like")
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="reject", description="when a session is at work: 409, wait for its end, or hand it the words"
    )


class FireBody(Strict):
    """The body of POST /conversations/{id}/fire."""

    input: Text | dict[str, Any] | None = Field(default=None, description="your own words, after the outcomes")
    agent: AgentName | None = None
    transport: Transport = "stream"
    if_busy: Literal["reject", "queue"] = "reject"


class ForkBody(Strict):
    """The body of POST /conversations/{id}/fork."""

    from_session: Id | None = Field(default=None, description="without one, the latest that committed something")
    execute: bool = Field(default=False, description="false: only copy the state; a later message goes on from it")
    agent: AgentName | None = None
    input: Text | dict[str, Any] | None = Field(default=None, description="needed to execute")
    title: Title | None = None
    transport: Transport = "stream"
    metadata: Metadata | None = None


class ConversationChange(Strict):
    """The body of PATCH /conversations/{id}; what is left out stays."""

    title: Title | None = None
    delivery: HowDelivered = None
    metadata: Metadata | None = Field(default=None, description="a null removes a key")


async def run_body(request: Request, services: ServicesDep) -> Run:
    return await _read(Run, request, services)


async def message_body(request: Request, services: ServicesDep) -> MessageBody:
    return await _read(MessageBody, request, services)


async def fire_body(request: Request, services: ServicesDep) -> FireBody:
    return await _read(FireBody, request, services, optional=True)


async def fork_body(request: Request, services: ServicesDep) -> ForkBody:
    return await _read(ForkBody, request, services, optional=True)


async def change_body(request: Request, services: ServicesDep) -> ConversationChange:
    return await _read(ConversationChange, request, services)


async def _read(model: type[M], request: Request, services: ServicesDep, *, optional: bool = False) -> M:
    value, raw = await read_json(request, services.settings.max_body_bytes, optional=optional)
    submission_rules.check_length(value, services.settings.max_input_chars)
    transport = value.get("transport", "sse") if isinstance(value, dict) else "sse"
    if "transport" in model.model_fields and transport not in TRANSPORTS:
        problem = finding("/transport", "unknown_transport", "there is no such transport", TRANSPORTS)
        raise Invalid("There is no such transport.", type="unknown-transport", errors=[problem])
    body = check(model, value, raw)
    if isinstance(body, MessageBody):
        _check_message(body)
    return body


def _check_message(body: MessageBody) -> None:
    if body.input is None and body.answers is None:
        raise Invalid(errors=[finding("/input", "missing", "this field is required")])
    if isinstance(body, Run) and body.answers is not None and (body.conversation_id is None or body.fork_from):
        problem = finding("/answers", "excluded", "only a conversation that goes on can wait for answers")
        raise Invalid("Nothing can wait for answers there.", errors=[problem])
