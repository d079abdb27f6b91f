"""The tools with which agents start, reach and end other agents: what each is given, then the table of name, parameters
and text.

Those that start something, or wait for it, are planned together by the activity begin_delegations
(activities/delegation/spawn.py). The others, but `set_status`, are answered by `context.subagents` with a text, and
whether they failed.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from activities.tools.tool import BEGIN_DELEGATIONS, Tool, ToolContext, ToolInput, ToolResult, clean
from domain.conversations.subagents import DelegationTool
from domain.events import Progress
from domain.json_object import JsonObject
from domain.policy.rules import Subject
from domain.sessions.session import Effect, EffectKind, preview
from domain.triggers import EVENT_NAME, EVENT_PATTERN, MAX_CHARS

LONGEST_ASK_S = 600
MOST_PROMPT = 100_000  # characters
SELF_CONTAINED = "The whole task: it sees nothing of this conversation."
COPIED = "Paths of files of yours that it gets a copy of."


# what each tool is given


class _Stripped(ToolInput, str_strip_whitespace=True):
    pass


class DelegateInput(ToolInput):
    agent: str = Field(min_length=1, max_length=63, description="Name of the subagent.")
    prompt: str = Field(min_length=1, max_length=MOST_PROMPT, description=SELF_CONTAINED)


class AsyncTaskInput(DelegateInput):
    description: str = Field(min_length=1, max_length=200, description="A label of 3 to 5 words.")


class TaskInput(AsyncTaskInput):
    task_id: str | None = Field(None, max_length=64, description="Continue this earlier task instead of a new one.")


class AsyncDelegateInput(ToolInput):
    name: str = Field(
        min_length=1,
        max_length=63,
        description="Name of the subagent. The same name (and agent) again continues where it left off.",
    )
    prompt: str = Field(min_length=1, max_length=MOST_PROMPT, description="The whole task, or how to continue it.")
    agent: str | None = Field(None, max_length=63, description="Which agent it is, if that differs from its name.")


class AsyncTaskResultInput(ToolInput):
    task_id: str = Field(min_length=1, max_length=64, description="From async_task.")
    offset: int = Field(default=0, ge=0, description="Where to continue in a long result, as its end says.")


class GatherInput(ToolInput):
    task_ids: list[str] = Field(min_length=1, max_length=200, description="Ids of subagents you launched.")
    wait_for: Literal["all", "any"] = Field("all", description="Return when all have ended, or when the first has.")
    timeout_s: float = Field(30, ge=0, le=300, description="Seconds to wait at the most.")


class SteerSubagentInput(ToolInput):
    task_id: str = Field(min_length=1, max_length=64, description="Session id of the subagent.")
    message: str = Field(min_length=1, max_length=MOST_PROMPT, description="What it should know or do as well.")


class CancelSubagentInput(ToolInput):
    task_id: str = Field(min_length=1, max_length=64, description="Session id of the subagent.")
    reason: str = Field("", max_length=500, description="Why it is no longer needed.")


class ListSubagentsInput(ToolInput):
    pass


class SubagentCreateInput(_Stripped):
    agent: str = Field(min_length=1, max_length=63, description="Which agent it is.")
    name: str = Field(min_length=1, max_length=63, description="What you call this instance.")
    message: str | None = Field(None, min_length=1, max_length=MOST_PROMPT, description="Its first task.")
    arguments: JsonObject | None = Field(None, description="Instead of a message, for an agent that lists some.")
    attachments: list[str] = Field(default_factory=list, max_length=20, description=COPIED)

    @model_validator(mode="after")
    def _has_a_task(self) -> "SubagentCreateInput":
        if (self.message is None) == (self.arguments is None):
            raise ValueError("give either a message or arguments")
        return self


class SubagentMessageInput(_Stripped):
    target: str = Field(min_length=1, max_length=64, description="The instance: its reference or its name.")
    message: str = Field(min_length=1, max_length=MOST_PROMPT, description="What it should know or do.")
    attachments: list[str] = Field(default_factory=list, max_length=20, description=COPIED)


class SubagentTerminateInput(_Stripped):
    target: str = Field(min_length=1, max_length=64, description="The instance: its reference or its name.")
    reason: str = Field("", max_length=500, description="Why it is no longer needed.")


class NotifyParentInput(_Stripped):
    content: str = Field(min_length=1, max_length=MOST_PROMPT, description="What your parent should know.")
    needs_answer: bool = Field(description="Whether you need an answer in order to continue.")
    waits: bool = Field(
        default=False,
        description="Whether it may wait for your parent's next turn. Otherwise it arrives before its next step, and "
        "wakes it if it is idle.",
    )
    attachments: list[str] = Field(default_factory=list, max_length=20, description=COPIED)


class SetStatusInput(ToolInput):
    status: str = Field(min_length=1, max_length=500, description="How things are, in a few words.")


class StartBackgroundAgentInput(ToolInput):
    prompt: str = Field(min_length=1, max_length=MOST_PROMPT, pattern=r"\S", description="The whole task.")
    agent: str | None = Field(None, max_length=63, description="Which agent it is; needed if you have several.")
    name: str = Field("subagent", min_length=1, max_length=63, description="What you call it.")
    agent_id: str | None = Field(None, max_length=64, description="Continue this background agent.")


class SendAgentMessageInput(ToolInput):
    text: str | None = Field(
        None, min_length=1, max_length=MOST_PROMPT, pattern=r"\S", description="What it should know or do."
    )
    message: str | None = Field(
        None,
        min_length=1,
        max_length=MOST_PROMPT,
        pattern=r"\S",
        description="Another name of text; give one of the two.",
    )
    agent_id: str | None = Field(
        None, max_length=64, description="Its id; else your parent, else the agent that people wrote to last."
    )

    @model_validator(mode="after")
    def _has_one_text(self) -> "SendAgentMessageInput":
        if (self.text is None) == (self.message is None):
            raise ValueError("give either text or message")
        return self

    @property
    def said(self) -> str:
        return self.text or self.message or ""


class AskAgentInput(ToolInput):
    agent_id: str = Field(min_length=1, max_length=64, description="Its id; not your own.")
    prompt: str = Field(min_length=1, max_length=MOST_PROMPT, pattern=r"\S", description="What you want to know.")
    timeout_s: float = Field(120, ge=1, le=LONGEST_ASK_S, description="How long to wait for the reply.")


class EmitEventInput(ToolInput):
    name: str = Field(max_length=MAX_CHARS, pattern=EVENT_NAME, description="Parts with colons: build:42:done.")
    data: dict[str, Any] = Field(default_factory=dict, description="What the others need to know about it.")


class SubscribeEventsInput(ToolInput):
    pattern: str = Field(
        max_length=MAX_CHARS,
        pattern=EVENT_PATTERN,
        description="Which events: build:*:done; * is any one part.",
    )
    subscribe: bool = Field(True, description="false: no longer.")


# what answers a call that begin_delegations does not plan


async def _set_status(given: SetStatusInput, context: ToolContext) -> ToolResult:
    status = " ".join(clean(given.status).split())
    if not status:
        return ToolResult("The status has no visible text.", failed=True)
    return ToolResult("Noted.", events=[Progress(message=status)], progress=status, status_text=status)


async def _list_subagents(given: ListSubagentsInput, context: ToolContext) -> ToolResult:
    return ToolResult(await context.subagents.listing(context.ref))


async def _steer_subagent(given: SteerSubagentInput, context: ToolContext) -> tuple[str, bool]:
    if not given.message.strip():
        return "The message is empty; nothing was sent.", True
    return await context.subagents.steer(context.ref, given.task_id, given.message, context.key)


Answer = Callable[[Any, ToolContext], Awaitable[tuple[str, bool]]]  # the text, and whether the call failed


def _answering(answer: Answer) -> Callable[[Any, ToolContext], Awaitable[ToolResult]]:
    async def run(given: Any, context: ToolContext) -> ToolResult:
        text, failed = await answer(given, context)
        return ToolResult(text, failed=failed)

    return run


def _tool(
    name: str,
    given: type[BaseModel],
    description: str,
    summary: Callable[[Any], str],
    *,
    answer: Answer | None = None,
    **traits: Any,
) -> Tool:
    """A tool that may be repeated. Without an answer and a `run` of its own, begin_delegations plans its calls."""
    if answer is not None:
        traits["run"] = _answering(answer)
    elif "run" not in traits:
        DelegationTool(name)  # without its kind a call would begin the agent of that name
        traits["activity"] = BEGIN_DELEGATIONS
    kind = traits.pop("kind", EffectKind.SUBAGENT)
    effect = traits.pop("effect", Effect.IDEMPOTENT)
    return Tool(name=name, input=given, description=description, summary=summary, kind=kind, effect=effect, **traits)


# the table. `delegates`: an agent with subagents has it without naming it. `starts`: it begins something that the rules
# judge by its subject. `addresses`: it names instances.

DELEGATE = _tool(
    "delegate",
    DelegateInput,
    "Let a subagent do a part of the work now, in your workspace and on your budget, and wait for its answer. "
    "Several calls in one reply run side by side.",
    lambda given: f"{given.agent}: {given.prompt}",
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent",)),
)
TASK = _tool(
    "task",
    TaskInput,
    "Start a subagent with its own session and wait for its result. Pass task_id to continue an earlier one with a "
    "further prompt. Several calls in one reply run side by side.",
    lambda given: f"{given.agent}: {given.description}",
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent",)),
)
ASYNC_DELEGATE = _tool(
    "async_delegate",
    AsyncDelegateInput,
    "Hand a task to a subagent and continue at once. Its outcome is kept in the mailbox until the caller asks for "
    "it to be delivered: tell the caller what you dispatched, and do not wait or poll for it.",
    lambda given: f"{given.name}: {given.prompt}",
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent", "name")),
)
ASYNC_TASK = _tool(
    "async_task",
    AsyncTaskInput,
    "Launch a subagent in the background and get its task_id at once. Launch several in one reply to let them work "
    "in parallel, then collect them with gather.",
    lambda given: f"{given.agent}: {given.description}",
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent",)),
)
ASYNC_TASK_RESULT = _tool(
    "async_task_result",
    AsyncTaskResultInput,
    "The result of a background subagent, or that it still runs. Prefer gather to asking again and again.",
    lambda given: given.task_id,
    answer=lambda given, context: context.subagents.result(context.ref, given.task_id, context.key, given.offset),
    kind=None,
    delegates=True,
    polls=True,
)
GATHER = _tool(
    "gather",
    GatherInput,
    "Wait for background subagents and get the results of those that have ended. When the time runs out nothing is "
    "cancelled, and you are told which still run.",
    lambda given: f"{given.wait_for} of {len(given.task_ids)} for {given.timeout_s:g} s",
    kind=None,
    delegates=True,
)
STEER_SUBAGENT = _tool(
    "steer_subagent",
    SteerSubagentInput,
    "Send a message to a running subagent; it reads it before its next step and continues with it.",
    lambda given: f"{given.task_id}: {given.message}",
    answer=_steer_subagent,
    delegates=True,
)
CANCEL_SUBAGENT = _tool(
    "cancel_subagent",
    CancelSubagentInput,
    "Stop a running subagent. What it has so far is kept.",
    lambda given: given.task_id,
    answer=lambda given, context: context.subagents.cancel(context.ref, given.task_id, given.reason),
    delegates=True,
)
LIST_SUBAGENTS = _tool(
    "list_subagents",
    ListSubagentsInput,
    "List the subagents you have started in this conversation with their ids and states.",
    lambda given: "list subagents",
    run=_list_subagents,
    effect=Effect.READ,
    kind=EffectKind.CALL,
    bookkeeping=True,
    delegates=True,
    polls=True,
)
SUBAGENT_CREATE = _tool(
    "subagent_create",
    SubagentCreateInput,
    "Create an instance of a subagent under a name of your choice. It stays when its task is done: send it further "
    "messages with subagent_message instead of creating another one.",
    lambda given: f"{given.name} ({given.agent}): {given.message or given.arguments}",
    starts=True,
    addresses=True,
    touches=(),
    subject=Subject(fields=("agent",)),
)
SUBAGENT_MESSAGE = _tool(
    "subagent_message",
    SubagentMessageInput,
    "Send a message to an instance of a subagent. If it is working, it reads it before its next step.",
    lambda given: f"{given.target}: {given.message}",
    starts=True,
    addresses=True,
    touches=(),
)
SUBAGENT_TERMINATE = _tool(
    "subagent_terminate",
    SubagentTerminateInput,
    "End an instance of a subagent permanently: its work is stopped, and it accepts no more messages.",
    lambda given: f"{given.target}: {given.reason}" if given.reason else given.target,
    answer=lambda given, context: context.subagents.terminate(context.ref, given.target, given.reason),
    addresses=True,
    touches=(),
)
NOTIFY_PARENT = _tool(
    "notify_parent",
    NotifyParentInput,
    "Send a message to the agent that started you. Nothing else of your work reaches it on its own.",
    lambda given: preview(given.content, 120),
    answer=lambda given, context: context.subagents.notify_parent(
        context.ref, given.content, given.needs_answer, context.key, given.attachments, waits=given.waits
    ),
    touches=(),
)
SET_STATUS = _tool(
    "set_status",
    SetStatusInput,
    "Publish your status: the agent that started you sees it in its list of subagents.",
    lambda given: preview(given.status, 120),
    run=_set_status,
    kind=None,
    bookkeeping=True,
    talks=True,
)
START_BACKGROUND_AGENT = _tool(
    "start_background_agent",
    StartBackgroundAgentInput,
    "Start an agent in the background and get its agent_id at once. It reports with send_agent_message, which "
    "wakes you; you are told once if it fails. Do not wait or poll for it.",
    lambda given: f"{given.name}: {given.prompt}",
    starts=True,
    subject=Subject(fields=("agent", "name")),
)
SEND_AGENT_MESSAGE = _tool(
    "send_agent_message",
    SendAgentMessageInput,
    "Send a message to another agent. It is marked as coming from you, and wakes the agent if it is idle.",
    lambda given: f"{given.agent_id or 'default'}: {given.said}",
    answer=lambda given, context: context.subagents.send_to_agent(context.ref, given.agent_id, given.said, context.key),
    touches=(),
)
ASK_AGENT = _tool(
    "ask_agent",
    AskAgentInput,
    "Ask another agent something and wait for its reply.",
    lambda given: f"{given.agent_id}: {given.prompt}",
    answer=lambda given, context: context.subagents.ask_agent(
        context.ref, given.agent_id, given.prompt, context.key, given.timeout_s
    ),
    touches=(),
    timeout_s=LONGEST_ASK_S + 20,
)
EMIT_EVENT = _tool(
    "emit_event",
    EmitEventInput,
    "Report that something happened to the agents that wait for it or subscribed to it; not to yourself.",
    lambda given: given.name,
    answer=lambda given, context: context.subagents.emit(context.ref, given.name, given.data, context.key),
    touches=(),
)
SUBSCRIBE_EVENTS = _tool(
    "subscribe_events",
    SubscribeEventsInput,
    "Subscribe to events that other agents emit: each arrives as a message and wakes you. Not your own.",
    lambda given: f"{'' if given.subscribe else 'no longer '}{given.pattern}",
    answer=lambda given, context: context.subagents.subscribe(context.ref, given.pattern, given.subscribe),
    kind=None,
    touches=(),
)

TOOLS = (
    *(DELEGATE, TASK, ASYNC_DELEGATE, ASYNC_TASK, ASYNC_TASK_RESULT, GATHER),
    *(STEER_SUBAGENT, CANCEL_SUBAGENT, LIST_SUBAGENTS),
    *(SUBAGENT_CREATE, SUBAGENT_MESSAGE, SUBAGENT_TERMINATE, NOTIFY_PARENT, SET_STATUS),
    *(START_BACKGROUND_AGENT, SEND_AGENT_MESSAGE, ASK_AGENT, EMIT_EVENT, SUBSCRIBE_EVENTS),
)
