"""The API's responses: the server answers with these classes, and the client and the command line read them.

Task, result and what belongs to them; input requests; files; conversations; traces; budgets; notifications; schedules
and triggers. Fields that a newer server adds are ignored.
"""

from collections.abc import Iterator
from datetime import datetime
from operator import not_
from typing import Any, ClassVar, Generic, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeVar

Status = Literal["submitted", "working", "input_required", "completed", "failed", "cancelled"]
JsonObject = dict[str, Any]


class Model(BaseModel):
    # from_attributes: the server builds them from its own rows and values. defer_build: a command uses few of them, and
    # making the validators of all is a fifth of its start
    model_config = ConfigDict(frozen=True, from_attributes=True, defer_build=True)


class Record(Model):
    """The server writes it too. A field with a default is in every response all the same."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class Made(Record):
    """Something with a name that a caller has made."""

    id: str
    name: str
    created_by: str = ""
    created_at: datetime


def _absent(value: object) -> bool:
    return value is None


# tasks


class TaskHandle(Model):
    """An accepted task."""

    task_id: str
    status: Status
    created_at: datetime
    poll_interval: int = Field(description="milliseconds to wait between two requests for the status")
    conversation_id: str
    notices: list[str] = Field(
        default=[], description="what will not happen as asked, and why; left out if there is nothing to say"
    )


class SessionHandle(Model):
    """An accepted turn of a conversation; `session_id` is the id of its task."""

    session_id: str
    conversation_id: str
    stream_key: str = Field(description="path of its events, from the start or from any cursor")
    queued: bool = Field(default=False, description="it waits until the running session ends")
    steered: bool = Field(default=False, description="the message went to this session, which was already running")

    @property
    def task_id(self) -> str:
        return self.session_id


class Progress(Model):
    step: int = Field(description="the current step of the plan; without a plan, the number of steps taken so far")
    total_steps: int | None = Field(description="steps of the current plan; null without a plan")
    message: str


class TaskError(Model):
    type: str
    message: str


class Tokens(Record):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = Field(default=0.0, description="null: unknown, because a model has no price")

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


class Usage(Tokens):
    llm_calls: int = 0
    tool_invocations: int = 0


class Limits(Model):
    """The most that a session may use; null means no such limit."""

    ttl_ms: int = 3_600_000
    steps: int = 50
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    repeats_warning: int = Field(default=4, description="repetitions before the agent is warned")
    repeats: int = Field(default=8, description="repetitions before it is stopped")
    denied: int | None = Field(default=None, description="calls that rules denied before it is stopped")
    raised: bool = Field(default=False, exclude_if=not_, description="while the session ran")


class PlanStep(Model):
    title: str
    status: Literal["pending", "in_progress", "done", "skipped"]


class Plan(Model):
    steps: list[PlanStep]


class Retry(Model):
    step: int
    model: str
    attempt: int
    reason: str
    next_at: datetime


class CancelRequest(Model):
    by: str
    note: str
    grace_ms: int = Field(default=0, description="milliseconds that running tools have to finish; 0: none")
    at: datetime | None = None
    request_id: str | None = Field(default=None, description="the Idempotency-Key of the request")


class DeferredCall(Model):
    request_id: str = Field(description="what to name as `response_to`")
    tool: str
    arguments: JsonObject
    deadline: datetime


class DeferredTools(Model):
    calls: list[DeferredCall] = Field(description="of external tools, which the caller answers")
    approvals: list[DeferredCall] = Field(description="of tools that a rule gates")


class Rerun(Model):
    """The session that a rerun repeats, the step from which, and the changes."""

    session_id: str
    from_step: int = Field(description="the step of the original at which it begins")
    recorded: bool = Field(default=False, description="with the answers and results of the original: no model, no tool")
    changed: list[str] = Field(default=[], description="what was changed")
    layers: int = Field(default=0, description="how many of its layers of rules the original had too")


class TaskSummary(Model):
    task_id: str
    conversation_id: str
    agent: str
    title: str
    status: Status
    reason: str | None = Field(description="why the task ended; null until then")
    partial: bool
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    keep_until: datetime | None = Field(description="when its content will be removed; null until it ends")

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


class Task(TaskSummary):
    """The record of a task."""

    progress: Progress
    started_at: datetime | None
    error: TaskError | None
    agent_version: int
    models: list[str] = Field(description="the model and its fallbacks, in order")
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    spawned_by: str | None = Field(description="the session that started it as a subagent")
    short_id: str | None = Field(default=None, description="in lists: the shortest unambiguous beginning of the id")
    deadline: datetime
    limits: Limits
    usage: Usage
    plan: Plan | None
    retry: Retry | None = Field(description="set while a model call waits for its next attempt")
    cancel_requested: CancelRequest | None
    deferred_tools: DeferredTools | None = Field(
        default=None, description="tool calls and approvals that the task waits for; null if there are none"
    )
    queued: bool = Field(
        default=False, exclude_if=not_, description="it waits until its conversation's running session ends"
    )
    dry_run: bool
    content_removed_at: datetime | None
    rerun_of: Rerun | None = Field(description="the task that this one repeats, if it is a rerun")
    poll_interval: int


class TaskPage(Model):
    items: list[Task]
    next_cursor: str | None = Field(description="pass it to get the next page; null on the last one")


class Event(Model):
    """An event of a session. The fields of its own type are attributes; `data` has them all."""

    model_config = ConfigDict(extra="allow")

    ended: ClassVar[bool] = False  # whether it is the last event of a task

    type: str
    seq: int = Field(description="its number in its session")
    session_id: str
    at: datetime
    conv_seq: int | None = Field(default=None, exclude_if=_absent, description="its number in the conversation")

    @property
    def data(self) -> JsonObject:
        return self.model_dump(exclude=set(Event.model_fields))


class Ending(Model):
    """How a session ended."""

    reason: str
    partial: bool
    usage: Usage
    error: str | None = None
    output: str | None = None


class EventPage(Model):
    items: list[Event]
    next_after: int = Field(description="pass it as `after` to get the next page")
    closed: bool = Field(description="true: the terminal event was written, nothing follows")


class Artifact(Model):
    type: str
    name: str
    url: str = Field(description="where it is: a path of this API, or an address elsewhere")
    size: int
    media_type: str
    file_id: str
    description: str = Field(default="", description="what the agent says of it")
    content: str | None = Field(default=None, description="its text, if it is a text of at most 8 KiB; else null")


class ResultUsage(Usage):
    duration_ms: int
    tokens_consumed: int


class Verdict(Model):
    """The verdict on a criterion or a constraint."""

    kind: str
    criterion: str
    passed: bool
    why: str


class EffectRecord(Model):
    """One change that a tool call made in the world."""

    kind: str
    tool: str
    description: str
    state: str
    idempotency_key: str
    session_id: str
    started_at: datetime
    ended_at: datetime | None


class EffectPage(Model):
    items: list[EffectRecord]
    complete: bool = Field(description="false: there are more effects")


class Source(Model):
    """Something that the model read, with what is needed to find out later whether it has changed."""

    kind: str
    name: str
    at: datetime = Field(description="when it was read")
    sha256: str | None = None


class BasedOn(Model):
    """The sources of a result, and when each was read, so that a reader can judge whether the result is outdated."""

    agent: str
    agent_version: int
    models: list[str] = Field(description="the models that responded")
    sources: list[Source]


Output = TypeVar("Output", default=Any)


class Result(Model, Generic[Output]):
    """The end of a task and its results."""

    task_id: str
    status: Status
    reason: str | None
    partial: bool
    output: Output = Field(description="text; JSON if the agent has an output schema and the task completed")
    error: TaskError | None
    acceptance: list[Verdict] | None = Field(
        default=None, description="the newest verdict on each criterion; null: no check was made"
    )
    artifacts: list[Artifact]
    effects: list[EffectRecord] = Field(description="what the task did; in a dry run, what it would have done")
    effects_complete: bool = Field(description="false: there are more effects")
    based_on: BasedOn
    audit_log: list[Event] = Field(description="what was decided and done; all events with `?audit_log=full`")
    audit_log_complete: bool = Field(description="false: the log is longer; GET …/events has all events")
    usage: ResultUsage

    @property
    def completed(self) -> bool:
        return self.status == "completed"


# input requests and files


class RequestFields(Record):
    id: str
    conversation_id: str
    session_id: str
    question: str
    details: JsonObject = {}
    answer_schema: JsonObject | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    deadline: datetime
    default_answer: Any = None
    created_at: datetime


class InputRequest(RequestFields):
    """An input request: a question, an approval, the result of a tool of yours, variables."""

    kind: str = Field(
        description="clarification, tool_approval, plan_approval, external_result, missing_variables, external_event"
    )
    status: Literal["open", "answered", "expired", "withdrawn"]
    answer: Any
    on_expiry: Literal["cancel", "deny", "default"]


class InputRequestPage(Model):
    items: list[InputRequest]
    next_cursor: str | None = None


class File(Model):
    file_id: str
    name: str
    size: int
    sha256: str
    media_type: str
    url: str
    created_at: datetime


FileKind = Literal["file", "folder", "link"]


class WorkspaceFile(Model):
    path: str
    kind: FileKind
    kind_before: FileKind | None = Field(description="when the task began; null: it did not exist")
    size: int = Field(description="in bytes")
    mode: int | None
    mode_before: int | None = Field(description="when the task began")
    target: str | None = Field(description="of a link")
    change: Literal["added", "modified", "removed"] | None = Field(description="since the task began; null: none")


class WorkspaceListing(Model):
    items: list[WorkspaceFile]


# conversations


DeliveryMode = Literal["hold", "wake", "explicit", "report"]


class ConversationFields(Model):
    title: str
    status: str = Field(description="open or terminated")
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime


class ConversationSummary(ConversationFields):
    conversation_id: str
    delivery: DeliveryMode | None
    pending_count: int = Field(description="outcomes that wait for a fire")
    match_source: list[str] | None = Field(default=None, description="where a search matched: title, input, output")


class ConversationPage(Model):
    items: list[ConversationSummary]
    next_cursor: str | None


class Descriptor(Model):
    """The kind and the address of a conversation, which never change."""

    type: str = Field(description="channel, schedule, trigger; task: it was started by the API")
    identity: dict[str, str] = Field(description="connector, channel_id and user_id, or the id of what it belongs to")


class HistoryMarker(Model):
    kind: Literal["start", "reset"]
    at: datetime
    by: str = ""


class AgentRule(Model):
    """`permission` names a tool or `delegation`; `pattern` must match the whole subject. Both may contain * and ?."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class AgentState(Model):
    """Settings that may change: the models, the agent's rules, and where its answers go."""

    agent: str
    agent_version: int
    models: list[str] = Field(description="the model, then its fallbacks")
    permissions: list[list[AgentRule]] = Field(description="layers: of the latest task, and of those above it")
    routing: dict[str, str | None] = Field(description="where answers are sent; empty: they are read here")
    generation: int
    markers: list[HistoryMarker] = Field(description="the context is what follows the last one")
    created_at: datetime
    updated_at: datetime


class ActiveSession(Model):
    session_id: str
    stream_key: str
    transport: str


class MailboxState(Model):
    pending_count: int


class ModelUsage(Tokens):
    requests: int


class Thread(Model):
    thread_id: str
    parent_thread_id: str | None
    name: str
    agent: str
    depth: int
    tags: list[str]
    user_id: str | None
    arguments: JsonObject | None = Field(description="with which a subagent was created")
    state: Literal["running", "queued", "idle"]
    pending: int = Field(description="sessions and messages that wait")
    created_at: datetime
    updated_at: datetime


class RegistryEntry(Model):
    """A child as its parent's registry lists it."""

    reference: str
    name: str
    agent: str
    title: str
    description: str
    resumable: bool
    blocking: bool
    thread_name: str
    spawn_group_id: str
    created_at: datetime
    status: str
    parent_communication: str


class ChildFields(Model):
    session_id: str
    name: str
    agent: str
    title: str
    live: bool
    created_at: datetime


class ChildSession(ChildFields):
    """A subagent's session."""

    status: Status


class Session(Task):
    """A task with its place in the conversation, and its messages."""

    session_id: str
    thread_id: str
    session_type: str
    kind: str = Field(description="sync_agent, async_agent, sync_subagent or async_subagent")
    transport: str
    trigger: str
    subagent_name: str | None
    delivery: DeliveryMode | None
    output: str | None
    outcome_message_id: str | None = Field(description="the mailbox message with its outcome")
    delivered_to: str | None = Field(description="the session that consumed its outcome; null: pending, or no outcome")
    children: list[ChildSession]
    display_messages: list["DisplayMessage"]


class SessionBranch(Model):
    """A session in the tree of a conversation."""

    session_id: str
    thread_id: str
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    spawned_by: str | None = Field(description="the session that started it as a subagent")
    session_type: str
    kind: str
    name: str | None
    agent: str
    handed_to: str | None = Field(description="the agent that has taken it over")
    title: str
    status: Status
    reason: str | None
    partial: bool
    live: bool
    transport: str
    created_at: datetime
    ended_at: datetime | None
    children: list["SessionBranch"] = Field(default_factory=list)


class Conversation(ConversationFields):
    conversation_id: str
    delivery: DeliveryMode | None
    descriptor: Descriptor
    state: AgentState
    latest_session: str | None = Field(description="newest session of the root thread")
    active_session: ActiveSession | None = Field(description="the running session of the root thread")
    live_sessions: list[str] = Field(description="all running sessions, subagents included")
    input_requests: list[InputRequest] = Field(description="open requests to people, subagents included")
    mailbox: MailboxState
    usage: dict[str, ModelUsage] = Field(description="by model")
    threads: list[Thread]
    children: list[RegistryEntry] = Field(description="the registry: subagents that tools of its prompts have started")
    sessions: list[SessionBranch] = Field(description="as a tree: subagents below the session that started them")
    complete: bool = Field(description="false: there are more sessions or threads than shown")


class ShownFile(Model):
    """A picture or a PDF that a model is shown."""

    type: Literal["image", "document"]
    file_id: str = Field(description="its bytes: GET /files/{file_id}")
    name: str
    media_type: str
    size: int
    width: int = Field(description="in pixels; of a document 0")
    height: int


class DisplayMessage(Model):
    """One message; fields that do not belong to its type are left out."""

    type: Literal["user", "note", "checkpoint", "assistant", "tool_call", "tool_result"]
    author: str | None = Field(default=None, exclude_if=_absent, description="of `assistant`: the agent")
    tool: str | None = Field(default=None, exclude_if=_absent, description="of `tool_call` and `tool_result`")
    failed: bool | None = Field(default=None, exclude_if=_absent, description="of `tool_result`")
    input: str | None = Field(default=None, exclude_if=_absent, description="of `tool_call`: its arguments, shortened")
    text: str | None = Field(default=None, exclude_if=_absent, description="not of `tool_call`; a result is shortened")
    silent: bool | None = Field(default=None, exclude_if=_absent, description="true: the platform put it there")
    files: list[ShownFile] | None = Field(
        default=None, exclude_if=_absent, description="of `user` and `tool_result`: what the model is shown with it"
    )
    step: int | None = Field(default=None, exclude_if=_absent, description="missing before the first model call")
    side: str | None = Field(default=None, exclude_if=_absent, description="of the second side, `b`")


class Turn(Model):
    """One exchange of a conversation."""

    session_id: str
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    generation: int = Field(description="turns of one generation share a context; a reset begins the next")
    trigger: str
    agent: str
    status: Status
    reason: str | None
    partial: bool
    input: Any = Field(description="the input of the turn")
    output: str | None = Field(description="its final message")
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    display_messages: list[DisplayMessage] | None = Field(default=None, description="with `full=true`")


class TurnPage(Model):
    items: list[Turn]
    next_cursor: str | None


class Interrupted(Model):
    interrupted: int = Field(description="how many sessions were asked to stop, subagents included")
    session_ids: list[str]


class MailboxMessage(Model):
    """A reference to a session that ended; its content is read when it is rendered."""

    message_id: str
    conversation_id: str
    source_session_id: str
    source_type: Literal["subagent_result", "subagent_failed"]
    subagent_name: str
    created_at: datetime
    delivered_to: str | None


class MailboxPage(Model):
    items: list[MailboxMessage]
    pending_count: int
    next_cursor: str | None


# traces: a session's model and tool calls step by step, with the traces of its subagents


class ModelSpan(Model):
    """One call of the model."""

    model_config = ConfigDict(frozen=False)  # the server completes it when it has read the tools

    model: str
    started_at: datetime
    ended_at: datetime
    attempts: int = 1
    thinking: str = Field(default="", description="its thinking, as the model summarised it")
    text: str = Field(default="", description="what it said; before tool calls, why it makes them")
    usage: Usage


class ToolSpan(Model):
    """One tool call; `steps` or `sessions` hold what a subagent did inside it."""

    index: int
    tool: str
    arguments: str = Field(description="JSON")
    effect: str
    state: str = Field(description="started, ok, failed, unknown or cancelled")
    result: str
    files: list[ShownFile] = Field(default_factory=list, description="that the model was shown with the result")
    usage: Usage | None = Field(default=None, description="of a model that the tool asked, as for a search")
    started_at: datetime
    ended_at: datetime | None
    steps: list["StepTrace"] = Field(default_factory=list, description="of a subagent that ran inside this session")
    sessions: list["Trace"] = Field(default_factory=list, description="of subagents with separate sessions")


class StepTrace(Model):
    """Plan, act, observe: the model's text, the calls it made and their results."""

    model_config = ConfigDict(frozen=False)

    step: int
    started_at: datetime
    side: str = Field(default="a", exclude_if=lambda side: side == "a", description="of an agent with two AI sides")
    speaker: str | None = Field(default=None, exclude_if=_absent, description="its label")
    models: list[ModelSpan] = Field(default_factory=list)
    tools: list[ToolSpan] = Field(default_factory=list)


class Mark(Model):
    """An event between the calls: a new plan, a wait for a person, a retry, a message."""

    at: datetime
    type: str
    text: str
    until: datetime | None = Field(
        default=None,
        exclude_if=_absent,
        description="of a retry or a wait for a person: when the next attempt began, or the answer arrived",
    )
    plan: list[PlanStep] | None = Field(default=None, exclude_if=_absent, description="of a new plan")


class Trace(Model):
    session_id: str
    conversation_id: str
    agent: str
    agent_version: int
    name: str | None = Field(description="of a subagent: how its parent calls it")
    title: str
    status: Status
    reason: str | None
    partial: bool
    error: str | None
    output: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    usage: Usage
    rerun_of: Rerun | None = None
    steps: list[StepTrace] = Field(default_factory=list)
    marks: list[Mark] = Field(default_factory=list)
    sessions: list["Trace"] = Field(default_factory=list, description="of subagents that no call of a step started")
    complete: bool = Field(default=True, description="false: there is more than a trace shows")

    @property
    def child_sessions(self) -> list["Trace"]:
        """The traces of subagents with separate sessions that this session started."""
        inside = [child for step in every_step(self.steps) for call in step.tools for child in call.sessions]
        return [*inside, *self.sessions]

    @property
    def session_ids_below(self) -> list[str]:
        """The ids of all subagents with separate sessions, at any depth."""
        return [found for child in self.child_sessions for found in (child.session_id, *child.session_ids_below)]


def every_step(steps: list[StepTrace]) -> Iterator[StepTrace]:
    """All steps, with those that subagents took inside a call after the step of that call."""
    for step in steps:
        yield step
        for call in step.tools:
            yield from every_step(call.steps)


# budgets


class BudgetLine(Model):
    """One limit and its use. An unlimited amount has no line."""

    budget: str = Field(description="steps, tokens, cost_usd, tool_calls or ttl (milliseconds)")
    limit: float
    used: float
    left: float


class SessionBudget(Model):
    task_id: str
    name: str
    status: Status
    budgets: list[BudgetLine]


class ReservedAmounts(Model):
    """Amounts that running model calls may still use. The unused part is released."""

    calls: int
    tokens: int
    cost_usd: float


class TreeBudget(Model):
    conversation_id: str
    deadline: datetime | None
    budgets: list[BudgetLine]
    reserved: ReservedAmounts


class TaskBudget(SessionBudget):
    children: list[SessionBudget] = Field(description="its subagents, oldest first")
    tree: TreeBudget | None = Field(
        description="shared by the whole conversation; null: the conversation has no budget"
    )


class ReplayVerdict(Model):
    """What a replay of one run found. If nothing differs, the last three fields are empty."""

    workflow_id: str
    run_id: str
    events: int
    same: bool
    event_id: int | None = Field(default=None, description="the first event at which the code decides otherwise")
    event_type: str | None = None
    reason: str | None = None


class ReplayReport(Model):
    same: bool
    verdicts: list[ReplayVerdict] = Field(description="of each run of the task and of its conversation")


# the audit log


class ChainedEntry(Record):
    """An entry of the audit log, bound to the one before it in its chain."""

    tenant: str
    chain: str
    seq: int
    at: datetime
    actor: str
    action: str
    session_id: str = ""
    subject: str = ""
    digest: str = ""
    previous: str = ""
    hash: str = ""


class AuditEntry(ChainedEntry):
    number: int


class AuditPage(Model):
    items: list[AuditEntry]
    next_before: int | None = Field(description="pass it as `before` to get older entries; null on the last page")


class Break(Model):
    """The first place where a chain does not hold."""

    chain: str
    seq: int
    problem: str


class Verification(Model):
    intact: bool
    chains: int
    entries: int
    broken: Break | None = Field(description="the first entry that does not match")
    head: str = Field(description="keep it outside: a later verification with it shows that nothing before was removed")


class ChainState(Model):
    intact: bool
    entries: int
    broken: Break | None = Field(description="the first entry that does not match")


# notifications


class Subscription(Made):
    channel: str = Field(description="webhook, slack or email")
    target: str = Field(description="of a URL the host, of an e-mail address the first letter and the domain")
    events: list[str]
    every_task: bool
    subagents: bool
    status: str
    failing_since: datetime | None = Field(description="since when every delivery has failed")
    last_error: str | None
    old_secret_until: datetime | None = Field(
        description="until then deliveries are also signed with the previous secret"
    )


class Notice(Model):
    """A notice of the feed of all sessions. The fields of its own type are attributes."""

    model_config = ConfigDict(extra="allow")

    type: str
    number: int
    session_id: str | None = Field(default=None, exclude_if=_absent)
    conversation_id: str | None = Field(default=None, exclude_if=_absent)
    at: str


class NoticePage(Model):
    items: list[Notice]
    next_after: int = Field(description="pass it as `after` to get the next page")
    closed: bool = Field(default=False, description="false: the feed of a tenant has no end")


class CreatedSubscription(Subscription):
    secret: str | None = Field(description="of a webhook: verifies its signatures. It is shown only once")


class SubscriptionPage(Model):
    items: list[Subscription]


class Delivery(Model):
    id: str = Field(description="the webhook-id of every attempt")
    subscription_id: str
    event: str
    task_id: str | None
    status: str
    attempts: int
    last_error: str | None
    next_at: datetime | None = Field(description="time of the next attempt")
    created_at: datetime
    delivered_at: datetime | None


class DeliveryPage(Model):
    items: list[Delivery]
    next_cursor: str | None


# environments


class GitSource(Model):
    url: str
    ref: str | None = None
    depth: int = 50
    filter: str | None = None
    sparse: list[str] = []
    credential: str | None = None
    forge: str | None = None


class Environment(Model):
    name: str
    git: GitSource | None = None
    repositories: dict[str, GitSource] = Field(default={}, description="instead of git: several, by their folders")
    setup: str | None = Field(default=None, description="runs once in the fresh tree")
    setup_hosts: list[str] = []
    setup_seconds: int = 600
    setup_inputs: list[str] = []
    maintenance: str | None = None
    variables: dict[str, str] = {}
    secrets: dict[str, str] = Field(default={}, description="variables of the setup, and their credentials")
    exposed: dict[str, str] = Field(default={}, description="variables of commands, and their credentials")
    network: str = "off"
    hosts: list[str] = []
    credentials: list[str] = []
    triggers: list[str] = []


class EnvironmentPage(Model):
    items: list[Environment]


class Credential(Model):
    name: str
    scope: str = Field(default="tenant", description="tenant, or user: of the key that asks")
    hosts: list[str] = Field(default=[], description="that get it")
    username: str = "x-access-token"
    access: str = "read"


class CredentialPage(Model):
    items: list[Credential]


# attempts


class Attempt(Model):
    number: int
    task_id: str = Field(description="of the session that made it")
    status: str
    reason: str | None
    error: str | None
    passed: bool | None = Field(description="whether it met the criteria of the task; null: it was not checked")
    verdicts: list[Verdict] = []
    steps: int
    usage: Usage
    patch: Artifact | None = Field(description="all its changes; null: it has made none, or has not ended")
    changes: str | None = Field(description="how many files and lines it changes")
    chosen: bool


class AttemptPage(Model):
    items: list[Attempt]
    chosen_by: str | None = Field(description="criteria, judge, person or size; null: none is chosen yet")
    why: str | None


# schedules and triggers


class ScheduleCheck(Model):
    """A command or a read-only tool of the agent that decides whether a run is needed."""

    run: str | None
    tool: str | None
    input: JsonObject
    timeout_s: int


class QuietTime(Model):
    start: str
    end: str


class Spent(Record):
    """The amounts that its runs and their subagents have used."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0
    failures: int = 0


class Mission(Model):
    """What bounds a schedule. It keeps working until it is cancelled, expired, stopped or out of budget."""

    status: Literal["working", "cancelled", "expired", "out_of_budget", "stopped"]
    reason: str | None = Field(description="why it ended")
    summary: str | None = Field(description="of a mission that has ended")
    ended_at: datetime | None
    bounds: JsonObject = Field(description="its budgets, its end and its risks, as they were given")
    today: Spent
    total: Spent
    requests: list[str] = Field(description="input requests that its runs wait for")


class Schedule(Made):
    cron: str | None = Field(description="five fields: minute hour day-of-month month day-of-week")
    timezone: str = Field(description="IANA name; for cron and quiet hours")
    every: int | None = Field(description="milliseconds")
    at: datetime | None = Field(description="once, at this time")
    jitter: int = Field(description="milliseconds; each tick is late by a part of it")
    catch_up: int = Field(description="milliseconds; a tick that was missed for longer is dropped")
    context: Literal["continue", "fork", "isolated"]
    overlap: str
    missed: Literal["each", "once", "skip"] = Field(description="ticks that are late by over five seconds")
    check: ScheduleCheck | None
    quiet_hours: QuietTime | None
    silent_reply: str | None = Field(description="a run that answers exactly this notifies nobody")
    pause_after_failures: int | None = Field(description="in a row; null: never")
    conversation_id: str
    mission: Mission | None = Field(description="what bounds it; null: nothing does")
    agent: str
    agent_version: int = Field(description="fixed when the schedule was made or replaced")
    prompt: str
    paused: bool
    pause_reason: str | None
    failures: int = Field(description="runs in a row that failed")
    runs: dict[str, int] = Field(description="how many ticks were fired, steered, skipped or failed")
    next_times: list[datetime] | None = Field(description="the next five; null if Temporal does not answer")


class SchedulePage(Model):
    items: list[Schedule]
    next_cursor: str | None


class ScheduleRun(Record):
    """The record of one tick, with the state of its session. There is one for each scheduled time, however often the
    tick is repeated."""

    scheduled_at: datetime
    status: str
    reason: str = ""
    session_id: str | None = None
    manual: bool = False
    task_status: str | None = None


class RunPage(Model):
    items: list[ScheduleRun]


class Triggered(Model):
    scheduled_at: datetime = Field(description="names the run in the list of runs")


class Trigger(Made):
    url: str = Field(description="path for the signed events")
    signature: str
    filter: list[JsonObject] = Field(description="conditions; all of them must hold")
    template: str | None = Field(description="what the agent reads of the event; null: its payload as JSON")
    correlation: str | None = Field(description="the event's key; wait_for_event waits for it")
    context: Literal["shared", "per_key", "isolated"]
    conversation_id: str | None = Field(description="whose messages the events are; null: their own")
    agent: str | None
    agent_version: int | None = Field(description="fixed when the trigger was made or changed")
    prompt: str


class CreatedTrigger(Trigger):
    secret: str | None = Field(description="that was made for the trigger. Shown once")


class TriggerPage(Model):
    items: list[Trigger]


class EventAccepted(Model):
    """The result of an event. A repetition of the event gets the same result."""

    event_id: str
    outcome: Literal["accepted", "delivered", "filtered", "kept"]
    session_id: str | None = Field(default=None, description="the session that it became, or that waited for it")
    conversation_id: str | None = None
