"""The API's responses as the command line reads them: only the printed fields, so that other versions of the server
fit. `--json` prints the response unchanged; these models are for people's output."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cli.client.request_models import RequestInfo
from cli.client.response import ResponseModel
from domain.json_object import JsonObject

EventData = JsonObject  # an unparsed event: events of other server versions are passed on and shown too
Item = TypeVar("Item", bound=BaseModel)


class PageOf(ResponseModel, Generic[Item]):
    items: list[Item]
    next_cursor: str | None = None


class HandleInfo(ResponseModel):
    """An accepted session, which can be followed at once."""

    session_id: str
    conversation_id: str


class UsageInfo(ResponseModel):
    """The usage of a task. Results have the sum of its tokens, tasks and events have each kind."""

    llm_calls: int = 0
    tool_invocations: int = 0
    tokens_consumed: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None  # None: some model has no price

    @property
    def tokens(self) -> int:
        kinds = (self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens)
        return sum(kinds) if self.tokens_consumed is None else self.tokens_consumed


class ErrorInfo(ResponseModel):
    type: str
    message: str


class ProgressInfo(ResponseModel):
    step: int = 0
    total_steps: int | None = None
    message: str = ""


class RetryInfo(ResponseModel):
    attempt: int
    reason: str
    next_at: str


class PlanStepInfo(ResponseModel):
    title: str
    status: str


class PlanInfo(ResponseModel):
    steps: list[PlanStepInfo]


class OriginInfo(ResponseModel):
    recorded: bool = False


class TaskInfo(ResponseModel):
    task_id: str
    short_id: str | None = None
    status: str
    conversation_id: str = ""
    title: str = ""
    agent: str = ""
    reason: str | None = None
    partial: bool = False
    error: ErrorInfo | None = None
    progress: ProgressInfo = ProgressInfo()
    retry: RetryInfo | None = None
    cancel_requested: JsonObject | None = None  # shown unchanged, or not at all
    created_at: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    ended_at: str | None = None
    content_removed_at: str | None = None
    usage: UsageInfo | None = None
    plan: PlanInfo | None = None
    rerun_of: OriginInfo | None = None


class CriterionInfo(ResponseModel):
    criterion: str
    passed: bool
    why: str


class EffectInfo(ResponseModel):
    state: str
    tool: str
    description: str | None = None


class ArtifactInfo(ResponseModel):
    name: str = ""
    url: str  # a path of the API, or an address elsewhere


class ResultInfo(ResponseModel):
    task_id: str
    status: str
    reason: str | None = None
    partial: bool = False
    output: Any = None
    error: ErrorInfo | None = None
    usage: UsageInfo
    acceptance: list[CriterionInfo] | None = None
    effects: list[EffectInfo] = []
    artifacts: list[ArtifactInfo] = []


class MailInfo(ResponseModel):
    """An outcome in a conversation's mailbox."""

    subagent_name: str
    source_type: str
    source_session_id: str
    created_at: str
    delivered_to: str | None = None


class PendingInfo(ResponseModel):
    pending_count: int


class SessionInfo(ResponseModel):
    """A session in a conversation's tree."""

    session_id: str
    name: str | None = None
    agent: str
    handed_to: str | None = None
    title: str
    status: str
    reason: str | None = None
    children: list["SessionInfo"] = []


class ActiveInfo(ResponseModel):
    session_id: str


class ModelUsageInfo(ResponseModel):
    requests: int
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens


class ConversationInfo(ResponseModel):
    conversation_id: str
    title: str
    status: str
    mailbox: PendingInfo
    active_session: ActiveInfo | None = None
    live_sessions: list[str] = []
    sessions: list[SessionInfo] = []
    input_requests: list[RequestInfo] = []
    complete: bool = True
    usage: dict[str, ModelUsageInfo] = {}


class WorkspaceFileInfo(ResponseModel):
    path: str
    kind: str
    kind_before: str | None = None
    mode: int | None = None
    mode_before: int | None = None
    change: str | None = None


class WorkspaceInfo(ResponseModel):
    items: list[WorkspaceFileInfo]


class TurnInfo(ResponseModel):
    """One exchange of a conversation."""

    session_id: str
    status: str
    reason: str | None = None
    input: Any = None
    output: str | None = None
    created_at: str


class FileInfo(ResponseModel):
    """An uploaded file."""

    file_id: str
    name: str
    size: int
    created_at: str


class ConversationItem(ResponseModel):
    conversation_id: str
    title: str
    status: str
    pending_count: int
    updated_at: str


class BudgetInfo(ResponseModel):
    budget: str
    limit: float
    used: float
    left: float


class SessionBudgetInfo(ResponseModel):
    task_id: str
    name: str
    status: str
    budgets: list[BudgetInfo]


class ReservedInfo(ResponseModel):
    calls: int
    tokens: int


class TreeBudgetInfo(ResponseModel):
    conversation_id: str
    budgets: list[BudgetInfo]
    reserved: ReservedInfo


class TaskBudgetInfo(SessionBudgetInfo):
    children: list[SessionBudgetInfo]
    tree: TreeBudgetInfo | None = None


class SubscriptionInfo(ResponseModel):
    id: str
    name: str
    channel: str
    target: str
    events: list[str]
    every_task: bool
    subagents: bool = False
    status: str
    last_error: str | None = None
    created_at: str
    secret: str | None = None  # only in the response that creates or rotates it


class DeliveryInfo(ResponseModel):
    id: str
    subscription_id: str
    event: str
    status: str
    attempts: int
    last_error: str | None = None
    created_at: str
