"""A tool: its description for the model, its input type, the function that runs it, and its traits."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from errand.models import Source
from pydantic import BaseModel, ValidationError

from activities.sandbox import NetworkPolicy, Sandbox, SandboxLimits
from activities.user_code import at_home, call_at_home, run_apart
from domain.errors import ForModel
from domain.events import Event
from domain.json_object import JsonObject
from domain.messages import ToolDefinition
from domain.pictures import FileBlock
from domain.plan import Plan
from domain.policy.rules import ToolTraits, subjects_of
from domain.redaction import Redactor
from domain.sessions.session import Effect, EffectKind, RemoteCall, SessionRef, Usage, preview
from domain.skills import Skill

if TYPE_CHECKING:
    from activities.delegation.messages import Subagents
    from activities.egress import Fetcher
    from activities.pull_requests import Repository
    from activities.thread_state import ThreadState

BEGIN_DELEGATIONS = "begin_delegations"  # the activity that begins all delegations of a step together
HAND_OVER = "hand_over"  # the activity that lets another agent take over the thread
ASK_PEOPLE = "open_request"  # the activity that opens an input request


SHOWN = "shown"  # the type of a file that only the model is shown


@dataclass(frozen=True)
class ArtifactFile:
    """Bytes that a session hands to its caller, or shows to the model."""

    name: str
    content: bytes
    media_type: str
    type: str = "file"
    description: str = ""
    url: str | None = None  # set if the artifact is this address; the content is its text
    path: str | None = None  # the file's path in the workspace, if it is one
    shown: bool = False  # to the model too: a picture or a PDF


@dataclass(frozen=True)
class ToolResult:
    """The result of a call. It is committed with the call's own record, in one transaction; bytes of files before."""

    text: str
    failed: bool = False
    unknown: bool = False  # it failed, and what it was to do may have happened
    events: list[Event] = field(default_factory=list)
    progress: str | None = None
    plan: Plan | None = None
    artifacts: list[ArtifactFile] = field(default_factory=list)
    files: list[FileBlock] = field(default_factory=list)  # stored before, and shown to the model again
    sources: list[Source] = field(default_factory=list)  # what it read, and its state then
    status_text: str | None = None  # the status that the session publishes
    remote: RemoteCall | None = None  # there is no result yet: the handle of a call that continues elsewhere
    wait_ms: int = 0  # how long to wait before asking there again
    used: Usage | None = None  # of a model that the tool asked

    def redact(self, redactor: Redactor) -> "ToolResult":
        """The result without values that must not be shown; the tool itself is responsible for contents of
        artifacts that are files."""
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
            artifacts=[_redact_artifact(one, redactor) for one in self.artifacts],
            remote=_redact_forms(self.remote, redactor) if self.remote else None,
        )


def _redact_artifact(one: ArtifactFile, redactor: Redactor) -> ArtifactFile:
    path = redactor.text(one.path) if one.path else None
    one = replace(one, name=redactor.text(one.name), description=redactor.text(one.description), path=path)
    if one.url is None:
        return one
    return replace(one, url=redactor.text(one.url), content=redactor.text(one.content.decode()).encode())


def _redact_forms(remote: RemoteCall, redactor: Redactor) -> RemoteCall:
    """The keys, the id and the state stay as they are, because they are sent back."""
    forms = [
        form.model_copy(
            update={"message": redactor.text(form.message), "answer_schema": redactor.json(form.answer_schema)}
        )
        for form in remote.forms
    ]
    return remote.model_copy(update={"forms": forms})


@dataclass(frozen=True)
class FileChange:
    """The change that a call would make to one file of the workspace, for the people who approve it."""

    path: str
    after: Callable[[str | None], str | None]  # takes the present text (None: no file); None if the call would fail


class ToolInput(BaseModel, extra="forbid"):
    """The arguments of one of the platform's tools; others are refused."""


def list_problems(error: ValidationError) -> list[str]:
    """What does not fit in arguments, a line for each field."""
    return [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()][:20]


async def _allow(subject: str) -> bool:
    return True


async def _forget(remote: RemoteCall) -> None:
    return None


@dataclass(frozen=True)
class ToolContext:
    """What a tool may use."""

    ref: SessionRef
    agent: str  # the name of the agent that calls it
    workspace: Path  # the only directory it may read or change
    key: str  # the call's idempotency key, so that receivers can drop repeats
    again: bool  # an earlier attempt may have begun the call
    plan: Plan | None  # the session's plan before this call
    sandbox: Sandbox
    fetcher: "Fetcher"
    network: NetworkPolicy | None  # the hosts that a command may reach; None: no network
    subagents: "Subagents"
    state: "ThreadState"  # the thread's variables (with secrets), files, status and parent
    limits: SandboxLimits = SandboxLimits()  # for a command
    variables: Mapping[str, str] = field(default_factory=dict)  # for a command: those of the environment
    repository: "Repository | None" = None  # of the task, if its environment names one
    permits: Callable[[str], Awaitable[bool]] = _allow  # whether the rules allow the tool this subject without asking
    remote: RemoteCall | None = None  # the call was made before, and continues elsewhere
    hold: Callable[[RemoteCall], Awaitable[None]] = _forget  # commits a handle
    skills: Mapping[str, Skill] = field(default_factory=dict)  # the agent's own
    # what people answered to the forms of the handle, by key; None: they did not
    answers: Mapping[str, JsonObject | None] = field(default_factory=dict)

    def for_users(self) -> "ToolContext":
        """The context for a user's tool, which runs in its own event loop."""
        return replace(
            self,
            sandbox=at_home(self.sandbox),
            subagents=at_home(self.subagents),
            state=at_home(self.state),
            permits=call_at_home(self.permits),
            hold=call_at_home(self.hold),
        )


def _apart(function: Callable[..., Awaitable[ToolResult]]) -> Callable[..., Awaitable[ToolResult]]:
    async def run(*args: Any) -> ToolResult:
        *arguments, context = args
        return await run_apart(function, *arguments, context.for_users())

    return run


async def _elsewhere(arguments: Any, context: ToolContext) -> ToolResult:
    raise AssertionError("another activity runs this tool")


@dataclass(frozen=True, kw_only=True)
class Tool(ToolTraits):
    description: str
    input: type[BaseModel]
    effect: Effect
    run: Callable[[Any, ToolContext], Awaitable[ToolResult]] = _elsewhere
    stop: Callable[[ToolContext], Awaitable[ToolResult]] | None = None  # stops a call that continues elsewhere
    kind: EffectKind | None = EffectKind.CALL  # its kind in the ledger of effects; None: it changes nothing
    activity: str | None = None  # the activity that runs it; None: its own, which calls `run`
    timeout_s: float = 60
    could_write: bool = False  # it is a program in the workspace: it takes its turn there even if it says that it reads
    # It only writes to the database: it runs as a local activity within the workflow task, and may run twice. For
    # built-in tools only: what touches the world must be an activity that the timeline shows while it runs.
    bookkeeping: bool = False
    summary: Callable[[Any], str] = lambda arguments: ""  # one line for the timeline, from a validated input
    change: Callable[[Any], FileChange] | None = None  # for a tool that writes a file: the diff for approvers

    def __post_init__(self) -> None:
        if self.bookkeeping and self.effect is Effect.ONCE:
            raise ValueError(f"{self.name}: bookkeeping may run twice, so its effect cannot be ONCE")

    async def answer(self, arguments: Any, context: ToolContext) -> ToolResult:
        """Run it. What it raises for the model is its result."""
        try:
            return await self.run(arguments, context)
        except ForModel as error:
            return ToolResult(str(error), failed=True)

    def apart(self) -> Self:
        """The tool for a user's code: it runs where it can stall nobody else."""
        return replace(self, run=_apart(self.run), stop=_apart(self.stop) if self.stop is not None else None)

    def call_summary(self, arguments: Any) -> str:
        """The timeline's line for raw arguments, which may be invalid."""
        try:
            return preview(self.summary(self.input.model_validate(arguments)), 200)
        except ValidationError:
            return "arguments that do not fit"

    def call_subjects(self, arguments: Any) -> list[str] | None:
        """The subjects of a call; None if the arguments are invalid, so that the call will not run."""
        try:
            return subjects_of(self.subject, self.input.model_validate(arguments).model_dump())
        except ValidationError:
            return None

    def explain(self, error: ValidationError) -> str:
        """A message for the model about arguments that do not fit."""
        lines = [f"- {one}" for one in list_problems(error)]
        return f"The arguments of {self.name} do not fit; nothing was done.\n" + "\n".join(lines)

    @cached_property
    def definition(self) -> ToolDefinition:
        schema = self.input.model_json_schema()
        schema.pop("title", None)
        return ToolDefinition(self.name, self.description, schema)


# Makes text safe for the model and the store: no hidden characters, and limited in length.


# NUL and other controls (but tab, newline, return), lone surrogates, and the invisible tag characters that can
# carry instructions nobody sees.
_HIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\U000e0000-\U000e007f]")


def clean(text: str) -> str:
    return _HIDDEN.sub("", text)


def bound_text(text: str, limit: int = 16_000) -> tuple[str, bool]:
    """At most about `limit` characters: the beginning and the end, with the number of characters left out between."""
    if len(text) <= limit:
        return text, False
    tail = limit // 4
    head = limit - tail
    left_out = len(text) - head - tail
    mark = f"\n… {left_out:,} of {len(text):,} characters left out …\n"
    return text[:head] + mark + text[len(text) - tail :], True


# Texts of strangers, such as MCP servers, cleaned before they are stored or shown: no NUL, which PostgreSQL refuses,
# and nothing that people do not see but a model reads.

_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # they change the order in which text is shown


def clean_text(text: str) -> str:
    return _BIDI.sub("", clean(text))


def clean_json(value: Any) -> Any:
    """The value with all its keys and texts cleaned."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(name)): clean_json(one) for name, one in value.items()}
    return [clean_json(one) for one in value] if isinstance(value, list) else value


def quote_text(text: str, longest: int) -> str:
    """A text of a server in one line and in quotation marks, so that it does not pass for ours."""
    line = " ".join(clean_text(text).replace('"', "'").split())
    return f'"{line if len(line) <= longest else line[: longest - 1] + "…"}"'
