"""A task as a caller submits it, and the first message that its agent receives."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, StringConstraints, TypeAdapter
from pydantic_core import PydanticCustomError

from domain.agents.definition import (
    MAX_EXTERNAL_TOOLS,
    MOST_MCP_SERVERS,
    ExternalTool,
    HeaderName,
    HeaderValue,
    McpServer,
    ModelName,
    ServerName,
    ToolPattern,
    VariableName,
)
from domain.credentials import CredentialName, CredentialSpec
from domain.ids import ID_PATTERN
from domain.json_object import JsonObject
from domain.messages import ModelSettings, UserBlock, files_in, join_text
from domain.pictures import FileBlock
from domain.policy.rules import BOUND_KINDS, COMMANDS, TALKING_TOOLS, Action, Rule, SubjectKind
from domain.sessions.acceptance import Criterion, criterion_text
from domain.sessions.input_request import OnExpiry
from domain.sessions.session import Effect, SandboxMode


def _says_something(text: str) -> str:
    if not text.strip():  # models refuse it too
        raise PydanticCustomError("empty", "there is nothing in it")
    return text


# its longest length is a setting
Text = Annotated[
    str, StringConstraints(min_length=1), AfterValidator(_says_something), Field(json_schema_extra={"pattern": r"\S"})
]
Line = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


def _in_range(moment: datetime) -> datetime:
    # a time zone can move years at the edges out of what PostgreSQL and Python can represent
    if not 1970 <= moment.year <= 9000:
        raise PydanticCustomError("time_range", "must be a year from 1970 to 9000")
    return moment


GivenTime = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_in_range)]
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Tag = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,98}[^\s\x00-\x1f\x7f])?$")]
Tags = Annotated[list[Tag], Field(max_length=20)]
UserId = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]


# reasons to involve people: the kinds of input requests, and anomalies and low budgets
InputKind = Literal["clarification", "tool_approval", "plan_approval", "external_result", "missing_variables"]
RouteKind = Literal[InputKind, "budget_low", "anomaly"]

MAX_RETENTION_MS = 100 * 366 * 24 * 3_600_000  # a hundred years
DRY_RUN = (
    "This is a dry run: calls that would change anything are described to you and not made. Go through the task as if "
    "they had succeeded; the person wants to see what you would do."
)


class Strict(BaseModel, extra="forbid", strict=True):
    pass


class PastMessage(Strict):
    role: Literal["user", "assistant"]
    content: Text


class TaskContext(Strict):
    """Information for the agent before it begins."""

    files: list[Id] = Field(
        default_factory=list, max_length=100, description="ids of files; they appear in the workspace"
    )
    archives: list[Id] = Field(
        default_factory=list, max_length=5, description="ids of files that are tar archives; unpacked in the workspace"
    )
    notes: list[Line] = Field(default_factory=list, max_length=50)
    history_session: Id | None = Field(default=None, description="continue from what this finished session knew")
    history: list[PastMessage] = Field(
        default_factory=list, max_length=200, description="earlier messages, oldest first"
    )
    environment: dict[str, str] = Field(
        default_factory=dict, max_length=50, description="facts about the environment, shown to the agent; no secrets"
    )
    variables: dict[VariableName, Annotated[str, StringConstraints(min_length=1, max_length=10_000)]] = Field(
        default_factory=dict, max_length=50, description="values for the variables that the agent declares"
    )


class MostUsed(Strict):
    max_steps: int | None = Field(default=None, ge=1, le=2**31 - 1)
    max_tokens: int | None = Field(default=None, ge=1, le=2**53)
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1, le=2**31 - 1)


class TaskLimits(MostUsed):
    """The most that a task may use. Limits that are left out stay as they are."""

    ttl: int | None = Field(default=None, ge=1_000, description="execution limit in milliseconds")


class TreeConfig(MostUsed):
    """The most that a task and all its subagents, at any depth, may use together."""

    ttl: int | None = Field(default=None, ge=1_000, le=MAX_RETENTION_MS, description="milliseconds")


class TaskMcpServer(Strict):
    """An MCP server for this task alone. Its tools are `once`, unless `effects` names them."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict, max_length=20, description="`${NAME}` is a variable that the task brings"
    )
    only: list[ToolPattern] | None = Field(default=None, max_length=200, description="which of its tools; null: all")
    effects: dict[ToolPattern, Annotated[Effect, Field(strict=False)]] = Field(default_factory=dict, max_length=200)

    def server(self) -> McpServer:
        return McpServer.model_validate(self.model_dump())


EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
FolderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
MOST_REPOSITORIES = 8  # of one task
# what git takes for a branch, a tag or a commit, without its ways to name a range or an option
Branch = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_+-]*([./][A-Za-z0-9_+-]+)*$", max_length=200)
]


class TaskConfig(TaskLimits):
    tree: TreeConfig | None = Field(default=None, description="a budget shared by the whole conversation")
    model: ModelName | None = None
    sandbox: SandboxMode | None = Field(default=None, strict=False)
    input_timeout: int | None = Field(
        default=None, ge=1_000, description="how long a question may wait, in milliseconds"
    )
    on_input_timeout: OnExpiry | None = Field(
        default=None, strict=False, description="what then: cancel, deny or default"
    )
    notify: list[Line] = Field(
        default_factory=list, max_length=20, description="names of subscriptions, or channels: all subscriptions of one"
    )
    reminder_after: int | None = Field(
        default=None, ge=1_000, description="remind of a question that nobody answered, in milliseconds"
    )
    escalate_after: int | None = Field(
        default=None, ge=1_000, description="notify escalate_to if nobody has answered after this time, in milliseconds"
    )
    escalate_to: Line | dict[InputKind, Line] | None = Field(
        default=None, description="the name of a subscription: one for every unanswered request, or one for each kind"
    )
    routes: dict[RouteKind, Line] = Field(
        default_factory=dict,
        description="who is notified at once, by kind of request or trouble: the name of a subscription, or a channel",
    )
    approval_required: bool = False
    external_tools: list[ExternalTool] = Field(
        default_factory=list, max_length=MAX_EXTERNAL_TOOLS, description="tools whose calls you answer, at …/input"
    )
    mcp_servers: dict[ServerName, TaskMcpServer] = Field(
        default_factory=dict, max_length=MOST_MCP_SERVERS, description="at hosts that the agent permits"
    )
    instructions: Annotated[str, StringConstraints(min_length=1, max_length=100_000)] | None = Field(
        default=None, description="added to the agent's prompt, for this task only"
    )
    output_schema: JsonObject | None = Field(
        default=None, description="JSON schema of the final answer, in place of the agent's own"
    )
    model_settings: ModelSettings | None = None
    dry_run: bool = Field(default=False, description="calls with an effect are described, not made")
    retention: int | None = Field(
        default=None, ge=1_000, le=MAX_RETENTION_MS, description="how long its content is kept after its end, in ms"
    )
    await_children: bool | None = Field(
        default=None, description="whether it keeps running until subagents that wake it have reported"
    )
    environment: EnvironmentName | None = Field(default=None, description="the repository in which it works")
    ref: Branch | None = Field(default=None, description="the branch, tag or commit; null: the environment's")
    refs: dict[FolderName, Branch] = Field(
        default_factory=dict, max_length=MOST_REPOSITORIES, description="the same where there are several, by folder"
    )
    repository: Id | None = Field(
        default=None, description="instead of an environment: an uploaded file that `git bundle create` made"
    )
    repositories: dict[FolderName, Id] = Field(
        default_factory=dict, max_length=MOST_REPOSITORIES, description="instead of one: several, by their folders"
    )
    attempts: int | None = Field(
        default=None, ge=2, le=8, description="how many sessions try it from the same commit; one is chosen"
    )

    credentials: dict[CredentialName, CredentialSpec] = Field(
        default_factory=dict, max_length=20, description="for this task alone, and removed at its end; never shown"
    )

    @property
    def has_tree(self) -> bool:
        return self.environment is not None or self.repository is not None or bool(self.repositories)


# the same longest lengths as in a rule
Permission = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class Boundary(Strict):
    """The most that a task may touch. A list that is given forbids everything else of its kind."""

    tools: list[Permission] | None = Field(default=None, max_length=64)
    hosts: list[Pattern] | None = Field(
        default=None, max_length=100, description="for every tool that reaches hosts; * matches anything"
    )
    paths: list[Pattern] | None = Field(
        default=None,
        max_length=100,
        description="in the workspace, for every tool that takes paths; * matches anything",
    )

    def layers(self) -> list[list[Rule]]:
        """The boundary as layers of rules: everything of a kind is denied, then the named things are allowed again."""
        layers: list[list[Rule]] = []
        if self.tools is not None:
            allowed = [Rule(permission=name, action=Action.ALLOW) for name in (TALKING_TOOLS, *self.tools)]
            layers.append([Rule(permission="*", action=Action.DENY), *allowed])
        if self.hosts is not None or self.paths is not None:
            layers.append(_only(COMMANDS, [name for name in self.tools or [] if not _WILD & set(name)]))
        for kind, named in ((SubjectKind.HOST, self.hosts), (SubjectKind.PATH, self.paths)):
            if named is not None:
                layers.append(_only(BOUND_KINDS[kind], named))
        return layers


_WILD = frozenset("*?")


def _only(group: str, patterns: list[str]) -> list[Rule]:
    allowed = [Rule(permission=group, pattern=pattern, action=Action.ALLOW) for pattern in patterns]
    return [Rule(permission=group, action=Action.DENY), *allowed]


class Work(Strict):
    """What a caller says of a piece of work, besides its input."""

    acceptance_criteria: list[Criterion] = Field(
        default_factory=list, max_length=50, description="checked before the task completes: texts or commands"
    )
    constraints: list[Line] = Field(
        default_factory=list, max_length=50, description="what it must not do; judged before the task completes"
    )
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="ordered; the last match decides")
    boundary: Boundary | None = None
    tags: Tags = Field(
        default_factory=list, description="your own labels, by which conversations can be found; a turn adds to them"
    )
    user_id: UserId | None = Field(default=None, description="the person that the thread belongs to; the first counts")
    context: TaskContext = TaskContext()
    config: TaskConfig = TaskConfig()


class TaskSpec(Work):
    """The body of POST /tasks."""

    agent: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    input: Text | JsonObject
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


FILES_NAMED = 100  # in the first message; a tree may have thousands


def opening(spec: TaskSpec, files: list[str]) -> str:
    """The first user message of a session; `files` are names in the workspace."""
    text = spec.input if isinstance(spec.input, str) else "```json\n" + json.dumps(spec.input, indent=2) + "\n```"
    parts = [text]
    if spec.acceptance_criteria:
        parts.append("The task is done when:\n" + _bullets([criterion_text(one) for one in spec.acceptance_criteria]))
    if spec.constraints:
        parts.append("You must not violate:\n" + _bullets(spec.constraints))
    if spec.context.notes:
        parts.append("Notes:\n" + _bullets(spec.context.notes))
    if files:
        rest = [f"and {len(files) - FILES_NAMED} more"] if len(files) > FILES_NAMED else []
        parts.append("Files in your workspace:\n" + _bullets([*files[:FILES_NAMED], *rest]))
    if spec.context.environment:
        parts.append(
            "Environment:\n" + _bullets([f"{key}: {value}" for key, value in spec.context.environment.items()])
        )
    if spec.config.dry_run:
        parts.append(DRY_RUN)
    return "\n\n".join(parts)


def title_of(spec: TaskSpec) -> str:
    text = spec.title or (spec.input if isinstance(spec.input, str) else json.dumps(spec.input))
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:119] + "…"


def _bullets(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# Messages as the inbox stores them.

PARTS = TypeAdapter(list[UserBlock])


def parts_of(*texts: str, files: Sequence[FileBlock] = ()) -> str:
    """Texts, and the files after them, as the inbox stores them."""
    return json.dumps([*({"type": "text", "text": text} for text in texts), *(file.model_dump() for file in files)])


def files_of_parts(parts: str) -> list[FileBlock]:
    return files_in(PARTS.validate_json(parts))


def text_of_parts(parts: str | None) -> str:
    """The text of a message of the inbox."""
    return join_text(PARTS.validate_json(parts)) if parts else ""
