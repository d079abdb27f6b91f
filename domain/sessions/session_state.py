"""The state of a running Session workflow: its lines of reasoning, its own state, and the input it starts with; and
what its loop and its hooks send each other."""

from collections.abc import Collection
from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from domain.agents.definition import Sides, other_side
from domain.agents.hook import HookPoint
from domain.sessions.session import AgentRef, Limits, LineCall, ModelReply, SandboxMode, SessionRef, SideName, Usage

RETURN_AFTER = timedelta(minutes=5)


class Line(BaseModel):
    """One strand of reasoning: a growing context and the agent that reads it. A session has one main line, and one more
    for each inline delegate while it runs."""

    path: str = "main"
    agent: AgentRef
    models: list[str]  # the model, then its fallbacks in order
    model_index: int = 0
    switched_at: datetime | None = None  # when a fallback took over; after a while the first model is asked again
    head: str | None = None
    opening: str | None = None  # "node/index" of the tool call whose prompt opens an inline line
    step: int = 0  # the session's number of the line's current step
    steps: int = 0  # for a side: how many it has taken
    activated: bool = False  # the immediate subagents of its prompt have been started
    doing: str = ""  # what the current step is about
    above: list[AgentRef] = Field(
        default_factory=list
    )  # for an inline line: the agents it works for, the session's first
    note: str | None = None  # a sentence of the platform for the next call
    previous: str | None = None  # the last step's result, until watchers have been shown it
    previous_step: int = 0
    misfits: int = 0  # answers that did not fit the output schema
    # A reply committed before this run began, whose tool calls may not have run. The line continues with it.
    pending: ModelReply | None = None
    resumed: bool = False  # the current reply was such a reply
    hooked: bool = False  # of an inline line: its agent has hooks
    trail: list[str] = Field(default_factory=list)  # digests of its latest steps, by which repetition is noticed

    @property
    def is_main(self) -> bool:
        return self.path == "main"

    @property
    def model(self) -> str:
        return self.models[self.model_index]

    def next_model(self, failed: Collection[str]) -> str | None:
        """The model to ask if the present one fails too: the next in the ring that has not failed in this step."""
        ring = [*self.models[self.model_index + 1 :], *self.models[: self.model_index]]
        return next((model for model in ring if model not in failed), None)

    def switch_model(self, to: str, now: datetime) -> None:
        self.model_index = self.models.index(to)
        self.switched_at = now if self.model_index else None

    def return_model(self, now: datetime) -> str | None:
        """Go back to the first model, some time after another one took over. Returns the one that is left."""
        if self.switched_at is None or now - self.switched_at < RETURN_AFTER:
            return None
        left = self.model
        self.switch_model(self.models[0], now)
        return left

    def take_pending(self) -> ModelReply | None:
        """The reply from which a run takes over. Some of its calls may have run or be waiting for people. Each is found
        by its node and index, so that nothing is done twice."""
        reply, self.pending = self.pending, None
        self.resumed = reply is not None
        return reply


class StartedChild(BaseModel):
    """A subagent that a session has started, as its details in the Web UI name it."""

    id: str
    title: str


class SessionState(BaseModel):
    """The state of a Session that must survive continue-as-new."""

    line: Line
    step: int = 0
    version: int = 0
    usage: Usage = Field(default_factory=Usage)
    recorded: Usage = Field(default_factory=Usage)  # usage of recorded answers when they were given
    inbox: list[str] = Field(default_factory=list)  # message ids that wait for the next model call
    seen_messages: list[str] = Field(default_factory=list)  # ids, so that one sent again counts once
    waking: list[str] = Field(default_factory=list)  # children whose outcome is delivered unasked
    ended: list[str] = Field(default_factory=list)  # children known to have ended
    children: list[StartedChild] = Field(default_factory=list)  # the latest
    children_started: int = 0
    answered: list[str] = Field(default_factory=list)  # input requests that have an answer
    plan_approved: bool = False
    failed_calls: int = 0
    denied_calls: int = 0
    forbidden_calls: int = 0  # of these, calls that a rule denied
    acceptance_round: int = 0  # how often the acceptance criteria were checked
    turns: int = 0  # completed turns of the two sides
    # With two AI sides: the line of the side that waits for its turn. Both share one message tree.
    waiting_line: Line | None = None
    # after a handoff: the sides of the agent that took over, and whether a handoff has happened
    sides: Sides | None = None
    handed_over: bool = False
    chosen: bool = False  # one of its attempts
    announced: bool = False  # hooks know that the session began
    # by agent and side: the moments at which it has hooks
    hook_points: dict[str, list[HookPoint]] = Field(default_factory=dict)
    limits: Limits | None = None  # raised while it was running; None: those it started with

    def switch_sides(self) -> None:
        """The other side continues from where this one stopped."""
        assert self.waiting_line is not None
        spoke, self.line = self.line, self.waiting_line
        self.line.head, self.line.step = spoke.head, spoke.step
        self.line.previous, self.line.previous_step = spoke.previous, spoke.previous_step
        self.waiting_line = spoke
        self.turns += 1


class SessionInput(BaseModel):
    """The input of a Session workflow: references and limits, never texts."""

    ref: SessionRef
    agent: AgentRef
    models: list[str]  # the model, then its fallbacks in order
    limits: Limits
    deadline: datetime
    workspace_id: str
    inbox: list[str] = Field(default_factory=list)  # message ids that open the session
    head: str | None = None  # the message tree's node to continue from
    title: str = ""
    trigger: str = "api"
    sandbox: SandboxMode | None = None
    approval_required: bool = False  # the plan must be approved before anything with an effect runs
    ask_variables: bool = False  # the agent lacks values that it needs to begin
    tree: bool = False  # its workspace begins with a repository
    acceptance: bool = False  # criteria and constraints are judged before it may complete
    await_children: bool = True  # with children still to report, the session is not done
    attempts: bool = False  # other sessions do its task, and one of their results becomes its own
    spawned_by: str | None = None  # who spawned it
    sides: Sides | None = None  # None: a plain agent
    renew_after: int | None = None  # events, until it continues as new; None: when the server suggests it
    carried: SessionState | None = None

    def first_state(self) -> SessionState:
        if self.sides is None:
            line = Line(agent=self.agent, models=self.models, head=self.head)
            return SessionState(line=line, inbox=list(self.inbox), seen_messages=list(self.inbox))
        first = self.sides.first
        waiting = self._side_line(other_side(first)) if self.sides.dual else None
        return SessionState(
            line=self._side_line(first), waiting_line=waiting, inbox=list(self.inbox), seen_messages=list(self.inbox)
        )

    def _side_line(self, name: SideName) -> Line:
        assert self.sides is not None
        agent = self.agent.model_copy(update={"side": name})
        # a thread that is continued was activated before
        return Line(agent=agent, models=self.sides.models[name], head=self.head, activated=self.head is not None)


# Requests of a session's loop to the activities that run its hooks, and their answers. Texts travel as references.


class HookList(BaseModel):
    """Ask which hooks an agent has."""

    ref: SessionRef
    agent: AgentRef


class HookPoints(BaseModel):
    points: list[HookPoint]


class HookSubject(BaseModel):
    """The subject of a moment; texts are found by these references."""

    model: str = ""
    node: str | None = None  # the assistant node of the reply
    indexes: list[int] = Field(default_factory=list)  # its calls
    messages: list[str] = Field(default_factory=list)  # in the inbox
    opening: str | None = None  # for an inline line: "node/index" of the tool call whose prompt is its first message
    children: list[str] = Field(default_factory=list)  # sessions that were started
    reason: str | None = None  # of the end
    error: str | None = None


class HookCall(LineCall, HookSubject):
    """Run the hooks of one moment."""

    point: HookPoint
    workspace_id: str


class HookOutcome(BaseModel):
    note: str | None = None
    refusals: dict[int, str] = Field(default_factory=dict)  # by the call's index
