"""A session before it runs: the decisions of its creator (`NewSession`), and the row that is written (`PlacedSession`).

Each field is a column of the table `sessions`. The defaults are only here, so that a new column is one migration and
one field."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Self, TypedDict

from errand.models import Rerun
from pydantic import Field

from domain.agents.definition import AgentDefinition, ExternalTool, Sides
from domain.conversations.subagents import DelegationTool, SubagentTerms, Successor
from domain.frozen import Frozen
from domain.json_object import JsonObject
from domain.messages import ModelSettings
from domain.policy.rules import Action, Rule
from domain.sessions.acceptance import Criterion
from domain.sessions.input_request import OnExpiry
from domain.sessions.session import AgentRef, DeliveryMode, Limits, SandboxMode, SessionRef
from domain.task import TaskConfig

# The task of a session as the code reads it. `NewSession.spec` keeps all of the submitted task; these are the fields
# that anything reads later. The SQL types of the same names have the same fields.


TRANSPORT = "stream"  # unless the caller wants the events as the response itself


def kind_of(spawned_by: str | None, blocking: bool, transport: str) -> str:
    """One of four kinds, by who started the session and whether somebody waits for it."""
    if spawned_by is not None:
        return "sync_subagent" if blocking else "async_subagent"
    return "sync_agent" if transport == "sse" else "async_agent"


class NotificationConfig(Frozen):
    """Who is notified of what happens in a whole tree, and when."""

    notify: list[str] = Field(default_factory=list)
    routes: dict[str, str] = Field(default_factory=dict)
    reminder_after: int | None = None
    escalate_after: int | None = None
    escalate_to: str | dict[str, str] | None = None

    def escalates_to(self, kind: str) -> str | None:
        """The subscription that an unanswered request of this kind escalates to."""
        return self.escalate_to.get(kind) if isinstance(self.escalate_to, dict) else self.escalate_to


TREE_FIELDS = {"environment", "ref", "refs", "repository", "repositories"}


class SubmittedConfig(NotificationConfig):
    """Settings that subagents inherit."""

    sandbox: SandboxMode | None = None
    input_timeout: int | None = None
    on_input_timeout: OnExpiry | None = None
    # a subagent finds the tree in the workspace of its parent
    environment: str | None = None
    ref: str | None = None
    refs: dict[str, str] = Field(default_factory=dict)
    repository: str | None = None
    repositories: dict[str, str] = Field(default_factory=dict)
    attempts: int | None = None

    @property
    def has_tree(self) -> bool:
        return self.environment is not None or self.repository is not None or bool(self.repositories)


class SubmittedContext(Frozen):
    files: list[str] = Field(default_factory=list)


class SubmittedChannel(Frozen):
    """The place on another service at which a person wrote."""

    message_id: str | None = None
    thread: str | None = None


class SubmittedSchedule(Frozen):
    id: str
    silent_reply: str | None = None  # an answer that is exactly this is not sent


class SubmittedTask(Frozen):
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


# The additions of a task to the definition of its agent, for this task alone.


class TaskTerms(Frozen):
    instructions: str | None = None
    output_schema: JsonObject | None = None
    model_settings: ModelSettings | None = None

    @classmethod
    def of(cls, config: TaskConfig) -> Self | None:
        """None if the task adds nothing, like most tasks."""
        given = {name: value for name in cls.model_fields if (value := getattr(config, name)) is not None}
        return cls.model_construct(**given) if given else None


def apply_terms(agent: AgentDefinition, terms: TaskTerms | None) -> AgentDefinition:
    """The definition with the task's additions: its instructions after the prompt, and its output schema."""
    if terms is None:
        return agent
    changes: JsonObject = {}
    if terms.instructions:
        changes["prompt"] = f"{agent.prompt.strip()}\n\nFor this task:\n{terms.instructions.strip()}"
    if terms.output_schema is not None:
        changes["output_schema"] = terms.output_schema
    return agent.model_copy(update=changes)


RETENTION_MS = 30 * 24 * 3_600_000  # the default of the setting too; a payload leaves it out
# fields that a continuation does not take over from the session before it
_NOT_CONTINUED = frozenset({"trigger", "blocking", "parent_session_id", "base_head", "rerun"})


class SessionType(StrEnum):
    AGENT = "agent"
    SUBAGENT = "async_subagent"


class Trigger(StrEnum):
    """What started a session."""

    API = "api"
    FORK = "fork"
    FIRE = "fire"
    RERUN = "rerun"
    CHANNEL = "channel"  # a message that arrived for an address
    SCHEDULE = "schedule"
    EVENT = "event"
    CHILD_RESULT = "async_subagent_result"  # an outcome woke its thread
    TASK = DelegationTool.TASK
    ASYNC_TASK = DelegationTool.ASYNC_TASK
    ASYNC_DELEGATE = DelegationTool.ASYNC_DELEGATE
    SUBAGENT = DelegationTool.SUBAGENT
    SUBAGENT_CREATE = DelegationTool.SUBAGENT_CREATE
    SUBAGENT_MESSAGE = DelegationTool.SUBAGENT_MESSAGE
    START_BACKGROUND = DelegationTool.START_BACKGROUND
    ATTEMPT = DelegationTool.ATTEMPT


class Supervision(Frozen):
    """The rules of a session, and what it may ask of people and of its caller."""

    rules: list[list[Rule]] = Field(default_factory=list)  # layers: the task's and its parents'
    may_ask: bool = False
    approval_required: bool = False
    external_tools: list[ExternalTool] = Field(default_factory=list)  # the caller answers their calls
    variables: dict[str, str] = Field(default_factory=dict)
    # variables to ask for before the first step: name -> description
    missing: dict[str, str] = Field(default_factory=dict)


class NewSession(Supervision):
    """The decisions of a session's creator. The session's conversation and thread are added when it is placed."""

    agent_owner: str
    agent: str
    agent_version: int
    models: list[str]  # the model, then its fallbacks in order
    sides: Sides | None = None  # None: a plain agent, with a model on one side and people on the other
    title: str = ""
    spec: JsonObject = Field(default_factory=dict)  # the task as submitted
    limits: Limits = Limits()
    session_type: SessionType = SessionType.AGENT
    trigger: Trigger = Trigger.API
    workspace_id: str | None = None  # None: its own
    parent_session_id: str | None = None  # None: the newest session of its thread that can be continued
    base_head: str | None = None  # the message to continue from; None: that session's last one
    spawned_by: str | None = None
    subagent_name: str | None = None
    subagent: SubagentTerms | None = None  # only if a subagent tool started it
    delivery: DeliveryMode | None = None  # how its outcome reaches the spawner
    blocking: bool = False  # the spawner waits for it in a tool call
    await_children: bool = True
    tools: list[str] | None = None  # None: those of its definition
    created_by: str = ""
    dry_run: bool = False  # calls with an effect are described, not made
    retention_ms: int = RETENTION_MS
    rerun: Rerun | None = None  # the session that it repeats
    task_terms: TaskTerms | None = None  # what the task adds to the definition of its agent

    @property
    def agent_ref(self) -> AgentRef:
        return AgentRef(owner=self.agent_owner, name=self.agent, version=self.agent_version)

    @property
    def task(self) -> SubmittedTask:
        return SubmittedTask.model_validate(self.spec)

    @classmethod
    def for_child(
        cls,
        parent: "PlacedSession",
        agent: AgentRef,
        supervision: Supervision,
        *,
        tool: DelegationTool,
        name: str,
        label: str,
        models: list[str],
        sides: Sides | None = None,
        tools: list[str],
        limits: Limits,
        terms: SubagentTerms | None = None,
        arguments: JsonObject | None = None,
        tags: Sequence[str] = (),
        workspace_id: str | None = None,
    ) -> Self:
        """A subagent. It works in its parent's workspace; with its own terms, in the given workspace or a new one."""
        thread = parent.task.channel.thread if parent.task.channel else None
        return cls(
            **dict(supervision),
            **_agent(agent),
            models=models,
            sides=sides,
            title=f"{label} (@{agent.name} subagent)",
            spec={
                "agent": agent.name,
                "config": parent.task.config.model_dump(mode="json", exclude_defaults=True, exclude={"attempts"}),
                **({"arguments": arguments} if arguments else {}),
                **({"tags": list(tags)} if tags else {}),
                **({"channel": {"thread": thread}} if thread else {}),  # where its questions are asked
            },
            limits=limits,
            session_type=SessionType.SUBAGENT,
            trigger=Trigger(tool),
            workspace_id=workspace_id if terms else parent.workspace_id,
            spawned_by=parent.id,
            subagent_name=name,
            subagent=terms,
            blocking=terms.blocking if terms else tool is DelegationTool.TASK,
            tools=tools,
            created_by=parent.created_by,
            dry_run=parent.dry_run,
            retention_ms=parent.retention_ms,
        )

    @classmethod
    def continuing(cls, before: "NewSession", handed_to: Successor | None = None) -> Self:
        """A thread that is woken continues with its present agent and reports to the same spawner. It answers in the
        same thread of a channel, but not the same message."""
        kept = {name: getattr(before, name) for name in NewSession.model_fields if name not in _NOT_CONTINUED}
        if channel := before.task.channel:
            kept["spec"] = {**before.spec, "channel": channel.model_copy(update={"message_id": None}).model_dump()}
        if handed_to is not None:
            kept |= {**_agent(handed_to.agent), **handed_to.model_dump(include={"models", "sides", "tools"})}
        return cls(**kept, trigger=Trigger.CHILD_RESULT)

    @classmethod
    def attempt_of(cls, task: "PlacedSession", number: int, *, limits: Limits, tools: list[str]) -> Self:
        """One of several sessions that do the same task, each in a workspace of its own."""
        kept = {name: getattr(task, name) for name in NewSession.model_fields if name not in _NOT_CONTINUED}
        thread = task.task.channel.thread if task.task.channel else None
        own = {
            "spec": {**task.spec, "channel": {"thread": thread} if thread else None},  # where its questions are asked
            "title": f"{task.title} (attempt {number})",
            "session_type": SessionType.SUBAGENT,
            "trigger": Trigger.ATTEMPT,
            "workspace_id": None,
            "spawned_by": task.id,
            "subagent_name": f"attempt {number}",
            "blocking": True,
            "limits": limits,
            "tools": tools,
            "missing": {},
        }
        return cls(**kept | own)

    @classmethod
    def rerun_of(
        cls, source: "PlacedSession", task: "NewSession", rerun: Rerun, *, title: str, permissions: Sequence[Rule]
    ) -> Self:
        """A repetition of `source`: the checked task with the source's tools and rules, plus the added permissions."""
        fields = dict(task) | {
            "title": title,
            "tools": source.tools,
            "rules": [*source.rules, *([list(permissions)] if permissions else [])],
            "may_ask": source.may_ask or any(rule.action is Action.ASK for rule in permissions),
            "approval_required": source.approval_required and not rerun.recorded,
            "parent_session_id": source.id,
            "rerun": rerun,
        }
        return cls(**fields)

    def place(
        self,
        ref: SessionRef,
        *,
        thread_id: str | None = None,
        depth: int = 0,
        delivery: DeliveryMode | None = None,
        created_at: datetime | None = None,
    ) -> "PlacedSession":
        """The row of this session. Its time begins now. A child without a delivery mode holds its outcome."""
        now = created_at or datetime.now(UTC)
        held = None if self.spawned_by is None else DeliveryMode.HOLD
        fields = dict(self) | {
            "tenant": ref.tenant,
            "id": ref.session_id,
            "conversation_id": ref.conversation_id,
            "thread_id": thread_id or ref.conversation_id,
            "workspace_id": self.workspace_id or ref.session_id,
            "depth": depth,
            "delivery": delivery or self.delivery or held,
            "deadline": now + timedelta(milliseconds=self.limits.ttl_ms),
            "created_at": created_at,
        }
        return PlacedSession(**fields)


class PlacedSession(NewSession):
    """A session with its place in a conversation: the row that is written when it is accepted."""

    tenant: str
    id: str
    conversation_id: str
    thread_id: str
    workspace_id: str
    depth: int = 0
    deadline: datetime
    created_at: datetime | None = None  # None: when the database writes it

    @property
    def ref(self) -> SessionRef:
        return SessionRef(tenant=self.tenant, session_id=self.id, conversation_id=self.conversation_id)


class AgentColumns(TypedDict):
    agent_owner: str
    agent: str
    agent_version: int


def _agent(agent: AgentRef) -> AgentColumns:
    return {"agent_owner": agent.owner, "agent": agent.name, "agent_version": agent.version}
