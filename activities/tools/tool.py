"""A tool: its description for the model, its input type, the function that runs it, and what it declares of itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from activities.requests.file_diff import FileChange
from activities.sandbox import NetworkPolicy, Sandbox, SandboxLimits
from domain.events import Event
from domain.model_exchange import ToolDefinition
from domain.plan import Plan
from domain.policy.subjects import subjects_of
from domain.policy.traits import ToolTraits
from domain.redactor import Redactor
from domain.sessions.effects import EffectKind, Source
from domain.sessions.session import SessionRef
from domain.sessions.step import Effect, preview

if TYPE_CHECKING:
    from activities.delegation.subagents import Subagents
    from activities.runtime.thread_state import ThreadState
    from activities.tools.support.egress import Fetcher


BEGIN_DELEGATIONS = "begin_delegations"  # the activity that begins all delegations of a step together
HAND_OVER = "hand_over"  # the activity that lets another agent take over the thread
ASK_PEOPLE = "open_request"  # the activity that opens an input request


@dataclass(frozen=True)
class ArtifactFile:
    """Bytes a session hands to its caller."""

    name: str
    content: bytes
    media_type: str
    type: str = "file"
    description: str = ""
    url: str | None = None  # the artifact is this address; the content is its text


@dataclass(frozen=True)
class ToolResult:
    """What a call returns. Everything here is committed with the call's own record, in one transaction."""

    text: str
    failed: bool = False
    events: list[Event] = field(default_factory=list)
    progress: str | None = None
    plan: Plan | None = None
    artifacts: list[ArtifactFile] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)  # what it read, and in which state
    status_text: str | None = None  # what the session publishes as its status

    def replaced(self, **changes: Any) -> "ToolResult":
        return replace(self, **changes)

    def redacted(self, redactor: Redactor) -> "ToolResult":
        """Without the values that must not be shown; the contents of artifacts are the tool's own affair."""
        if not redactor:
            return self
        return replace(
            self,
            text=redactor.text(self.text),
            events=[redactor.model(event) for event in self.events],
            progress=redactor.json(self.progress),
            status_text=redactor.json(self.status_text),
            plan=redactor.model(self.plan) if self.plan else None,
            sources=[redactor.model(source) for source in self.sources],
            artifacts=[
                replace(one, name=redactor.text(one.name), description=redactor.text(one.description))
                for one in self.artifacts
            ],
        )


async def _allowed(subject: str) -> bool:
    return True


@dataclass(frozen=True)
class ToolContext:
    """What a tool may touch."""

    ref: SessionRef
    workspace: Path  # the only directory it may read or change
    key: str  # the call's idempotency key, for receivers that honour one
    attempt: int
    plan: Plan | None  # the session's plan before this call
    sandbox: Sandbox
    fetcher: "Fetcher"
    network: NetworkPolicy | None  # which hosts a command may reach; None: no network
    subagents: "Subagents"
    state: "ThreadState"  # the variables, secrets too, and the files of its thread, its status, and its parent
    limits: SandboxLimits = SandboxLimits()  # of a command
    permits: Callable[[str], Awaitable[bool]] = _allowed  # whether the rules allow the tool this subject without asking


async def _elsewhere(arguments: Any, context: ToolContext) -> ToolResult:
    raise AssertionError("another activity runs this tool")


@dataclass(frozen=True, kw_only=True)
class Tool(ToolTraits):
    description: str
    input: type[BaseModel]
    effect: Effect
    run: Callable[[Any, ToolContext], Awaitable[ToolResult]] = _elsewhere
    kind: EffectKind | None = EffectKind.CALL  # how the ledger of effects lists it; None: it touches nothing
    activity: str | None = None  # what runs it; None: an activity of its own that calls `run`
    timeout_s: float = 60
    # Only writes to the database: it runs as a local activity, within the workflow task, and may run twice.
    # For built-in tools alone: what touches the world is an activity that the timeline shows while it runs.
    bookkeeping: bool = False
    summary: Callable[[Any], str] = lambda arguments: ""  # one line for the timeline, from a validated input
    change: Callable[[Any], FileChange] | None = None  # of a tool that writes a file: what approvers see as a diff

    def __post_init__(self) -> None:
        if self.bookkeeping and self.effect is Effect.ONCE:
            raise ValueError(f"{self.name}: bookkeeping may run twice, so its effect cannot be ONCE")

    def call_summary(self, arguments: Any) -> str:
        """The timeline's line for raw arguments, which may be wrong."""
        try:
            return preview(self.summary(self.input.model_validate(arguments)), 200)
        except ValidationError:
            return "arguments that do not fit"

    def call_subjects(self, arguments: Any) -> list[str] | None:
        """None: the arguments do not fit, so that nothing of the call will run."""
        try:
            return subjects_of(self.subject, self.input.model_validate(arguments).model_dump())
        except ValidationError:
            return None

    def explain(self, error: ValidationError) -> str:
        """For the model: what does not fit in its arguments."""
        lines = [f"- {'.'.join(map(str, found['loc'])) or 'arguments'}: {found['msg']}" for found in error.errors()]
        return f"The arguments of {self.name} do not fit; nothing was done.\n" + "\n".join(lines[:20])

    @cached_property
    def definition(self) -> ToolDefinition:
        schema = self.input.model_json_schema()
        schema.pop("title", None)
        return ToolDefinition(self.name, self.description, schema)
