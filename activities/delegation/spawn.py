"""begin_delegations: begins all delegation calls of one step; the conversation is asked for all children at once.
activate makes such calls itself, for the subagents that begin with a prompt."""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

from errand.models import RegistryEntry
from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.attempt import send_heartbeats
from activities.delegation.messages import Subagents, message_id_of
from activities.delegation.plan import CONFIGURED, ChildRefused, Planned, Planner
from activities.delegation.settle import DelegationRecord
from activities.model.call_model import CallModel
from activities.requests.external_tools import Arguments
from activities.tools.offered import CREATE, Offered, find_enabled
from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain import events as ev
from domain.agents.definition import AgentDefinition, Immediate, ReceivingSide, SubagentTool
from domain.agents.variables import resolve_values
from domain.conversations.mailbox import list_attachments, rewrite_paths
from domain.conversations.requests import CallRef, InboxKind, SpawnAnswer, SpawnChild, SpawnerThread, SpawnRequest
from domain.conversations.subagent_texts import (
    background,
    dispatched,
    launched,
    message_delivered,
    not_found,
    subagent_started,
)
from domain.conversations.subagents import (
    TERMINATED,
    Begun,
    BegunBatch,
    DelegationCall,
    DelegationTool,
    SubagentTerms,
    first_message,
    inline_path,
)
from domain.conversations.variable_request import VariableRequest
from domain.errors import Refusal, Unavailable
from domain.ids import derive_id
from domain.messages import USER, ModelResponse, Node, ReplyBody, ToolCallBlock, calls_of, text_of
from domain.policy.rules import Rule
from domain.redaction import is_sealed
from domain.sessions.session import (
    CallState,
    Effect,
    EffectKind,
    ModelCall,
    ModelReply,
    StopReason,
    ToolOutcome,
    preview,
)
from store import conversations, messages, runs, sessions, threads, variables
from store.database import TRANSIENT_ERRORS, Pool
from store.messages import StepFacts
from store.sessions import SessionRow
from store.threads import Child
from workflows.client import WorkflowClient

# wait this long for the child's first reply before its id is given out, so that no id of a dead session is returned
DEAD_ON_ARRIVAL_SECONDS = 2.0

# Recorded for a call of a tool named after its agent. The agent's own input schema is checked when the call is planned.
_NAMED_AFTER_AGENT = Tool(
    name=DelegationTool.SUBAGENT,
    description="",
    input=Arguments,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    addresses=True,
    summary=lambda arguments: preview(json.dumps(arguments.model_dump(), ensure_ascii=False), 120),
)

ATTEMPTS = 3

# errors that pass with time, or that others settle
RETRIED: tuple[type[BaseException], ...] = (
    *TRANSIENT_ERRORS,
    *(runs.NotCurrentRun, runs.SessionEnded, Unavailable, ApplicationError, RPCError),
)


@dataclass
class Wanted:
    """One call with its checked arguments."""

    index: int
    kind: DelegationTool
    tool: str  # its name, which may be an agent's name
    arguments: Any
    planned: Planned | None = None

    def key(self, call: DelegationCall) -> str:
        """The same at every attempt of the call."""
        return f"{call.node}:{self.index}"

    def child_id(self, call: DelegationCall) -> str:
        """The session that the call starts."""
        return derive_id(call.node, "child", self.index)


class BeginDelegations:
    def __init__(
        self,
        pool: Pool,
        conversations: WorkflowClient,
        tools: dict[str, Tool],
        planner: Planner,
        subagents: Subagents,
        max_children: int,
    ) -> None:
        self._pool = pool
        self._conversations = conversations
        self._tools = tools
        self._planner = planner
        self._subagents = subagents
        self._max_children = max_children
        self._deferred = DeferredCalls(pool)

    @activity.defn(name="begin_delegations")
    async def begin_delegations(self, call: DelegationCall) -> BegunBatch:
        async with send_heartbeats():
            try:
                return await self._begin_all(call)
            except Exception as error:
                if not is_hopeless(error):
                    raise
                return await give_up_calls(self._pool, call, error)

    async def _begin_all(self, call: DelegationCall) -> BegunBatch:
        [node] = await messages.path(self._pool, call.ref.tenant, call.node, limit=1)
        blocks = calls_of(node)
        call.immediate = isinstance(node.body, ReplyBody) and node.body.immediate
        record = DelegationRecord(self._pool, call.ref, call.node)
        begun: dict[int, Begun] = {}
        wanted: list[Wanted] = []
        for index in call.indexes:
            name = blocks[index].name
            kind = DelegationTool(name) if name in set(DelegationTool) else DelegationTool.SUBAGENT
            tool = self._tools.get(name, _NAMED_AFTER_AGENT)
            known = await record.claim(index, name, tool.call_summary(blocks[index].arguments), tool.kind)
            if known is not None:
                begun[index] = Begun(index=index, kind=kind, settled=known)
                continue
            try:
                wanted.append(Wanted(index, kind, name, tool.input.model_validate(blocks[index].arguments)))
            except ValidationError as error:
                begun[index] = await self._refuse(record, index, kind, _explain(error), name=name)
        await self._plan(call, record, wanted, begun)
        await self._spawn(call, record, [one for one in wanted if one.index not in begun], begun)
        return BegunBatch(calls=[begun[index] for index in call.indexes])

    async def _plan(
        self, call: DelegationCall, record: DelegationRecord, wanted: list[Wanted], begun: dict[int, Begun]
    ) -> None:
        """Plan all calls. Every possible refusal happens here, before an id exists."""
        for one in wanted:
            if one.kind in CONFIGURED and (taken := await self._taken(call, record, one)):
                begun[one.index] = taken
                continue
            try:
                if one.kind is DelegationTool.GATHER:
                    begun[one.index] = await self._gather(call, record, one)
                    continue
                pending = [other.planned for other in wanted if other.planned is not None]
                one.planned = await self._planner.plan(call, one.kind, one.tool, one.arguments, pending)
            except ChildRefused as refusal:
                begun[one.index] = await self._refuse(
                    record, one.index, one.kind, str(refusal), refusal.rule, name=one.tool
                )
                continue
            if any(need.missing for need in one.planned.needs):
                begun[one.index] = await self._defer(call, record, one, one.planned)
                continue
            if sent := await self._send(call, record, one):
                begun[one.index] = sent
                continue
            spawn = one.planned.spawn
            if spawn.inline:
                line = inline_path(call.line, call.step, one.index)
                begun[one.index] = Begun(
                    index=one.index,
                    kind=one.kind,
                    agent=spawn.agent,
                    models=one.planned.models,
                    hooked=bool(spawn.definition.for_side("a").hooks),
                    resume=await runs.resume_point(self._pool, call.ref, line) if call.resumed else None,
                )

    async def _defer(self, call: DelegationCall, record: DelegationRecord, one: Wanted, planned: Planned) -> Begun:
        assert planned.session is not None
        one.planned = replace(planned, session=planned.session.model_copy(update={"blocking": False}))
        spawn = await self._asked_for(call, parent := await self._planner.load_parent(call.ref), [one])
        settled = await self._deferred.keep(call, record, one.index, one.tool, planned, parent, spawn)
        return Begun(index=one.index, kind=one.kind, settled=settled)

    async def _asked_for(self, call: DelegationCall, parent: SessionRow, starting: list[Wanted]) -> SpawnRequest:
        return SpawnRequest(
            request_id=f"{call.node}/{','.join(str(one.index) for one in starting)}",
            spawned_by=call.ref.session_id,
            thread=parent.thread_id,
            children=[build_child(call, one) for one in starting],
            max_depth=await self._planner.find_max_depth(call),
            max_children=self._max_children,
        )

    async def _spawn(
        self, call: DelegationCall, record: DelegationRecord, starting: list[Wanted], begun: dict[int, Begun]
    ) -> None:
        """Start the sessions of all calls that need one: those that planning has not begun in another way."""
        if not starting:
            return
        parent = await self._planner.load_parent(call.ref)
        spawn = await self._asked_for(call, parent, starting)
        answer = await self._conversations.spawn(call.ref.tenant, call.ref.conversation_id, spawn)
        dead = await self._dead_on_arrival(call, [said.session_id for said in answer.answers if said.error is None])
        for one, said in zip(starting, answer.answers, strict=True):
            begun[one.index] = await self._begin(call, record, one, said, dead)

    async def _begin(
        self, call: DelegationCall, record: DelegationRecord, one: Wanted, said: SpawnAnswer, dead: dict[str, str]
    ) -> Begun:
        assert one.planned is not None
        child, terms, spawn = said.session_id, one.planned.spawn.terms, one.planned.spawn
        if said.error is not None:
            return await self._refuse(record, one.index, one.kind, said.error, name=one.tool)
        if child in dead and not spawn.waits:
            await self._subagents.claim(call.ref, [child], one.key(call))
            return await self._refuse(record, one.index, one.kind, f"The launch failed: {dead[child]}.", name=one.tool)
        started = ev.SubagentStarted(
            child_session_id=child,
            name=spawn.name,
            agent=spawn.agent.name,
            description=spawn.description,
        )
        if spawn.waits:
            await record.emit(one.index, started)
            return Begun(index=one.index, kind=one.kind, child=child, waits=terms is not None)
        text = dispatched(spawn.name, child)
        if terms is not None:
            text = subagent_started(spawn.name, spawn.resumes or child, explicit=terms.explicit)
        if one.kind is DelegationTool.ASYNC_TASK:
            text = launched(child, spawn.agent.name, spawn.description)
        elif one.kind is DelegationTool.START_BACKGROUND:
            text = background(spawn.resumes or child, spawn.name)  # a continued agent keeps its id
        settled = await record.settle(one.index, one.tool, CallState.OK, text, [started])
        return Begun(index=one.index, kind=one.kind, settled=settled, child=child, wakes=said.delivery == "wake")

    async def _taken(self, call: DelegationCall, record: DelegationRecord, one: Wanted) -> Begun | None:
        """The result of a message that an earlier attempt sent and a session, which may have ended, has read."""
        taken = await conversations.get_message_state(
            self._pool, call.ref.tenant, message_id_of(call.ref, one.key(call))
        )
        reader = await self._subagents.child(call.ref, taken.by) if taken and taken.by else None
        if reader is None or reader.terms is None:
            return None
        return await self._delivered(record, one, reader, reader.terms)

    async def _send(self, call: DelegationCall, record: DelegationRecord, one: Wanted) -> Begun | None:
        """Send the message to a working instance; None if a session must begin with it, or has begun with it in an
        earlier attempt."""
        assert one.planned is not None
        instance, terms, tenant = one.planned.spawn.instance, one.planned.spawn.terms, call.ref.tenant
        if instance is None or terms is None or await sessions.get(self._pool, tenant, one.child_id(call)):
            return None
        # What an earlier attempt sent may wait for the instance's next session.
        message_id = message_id_of(call.ref, one.key(call))
        if not instance.live and not await conversations.has_message(self._pool, tenant, message_id):
            return None
        files = one.planned.attachments
        text = first_message(rewrite_paths(one.arguments.model_dump(exclude_none=True), files), None)
        text = list_attachments(text, [file.path for file in files])
        space = one.planned.session.workspace_id if one.planned.session else None
        if not await self._subagents.send(call.ref, instance, text, one.key(call), space, files):
            return None
        return await self._delivered(record, one, instance, terms)

    @staticmethod
    async def _delivered(record: DelegationRecord, one: Wanted, instance: Child, terms: SubagentTerms) -> Begun:
        if terms.blocking:
            return Begun(index=one.index, kind=one.kind, child=instance.session_id, waits=True)
        text = message_delivered(instance.name, instance.thread_id)
        settled = await record.settle(one.index, one.tool, CallState.OK, text, [])
        return Begun(index=one.index, kind=one.kind, settled=settled)

    async def _dead_on_arrival(self, call: DelegationCall, ids: list[str]) -> dict[str, str]:
        """Children whose first model call was refused for its credentials. A child that has replied counts as alive."""
        dead: dict[str, str] = {}
        give_up = asyncio.get_running_loop().time() + DEAD_ON_ARRIVAL_SECONDS
        while ids and asyncio.get_running_loop().time() < give_up:
            signs = await threads.find_signs_of_life(self._pool, call.ref.tenant, ids)
            dead |= {child: kind for child, kind in signs.items() if kind == "authentication_error"}
            ids = [child for child in ids if child not in signs]
            if ids:
                await asyncio.sleep(0.05)
        return dead

    async def _gather(self, call: DelegationCall, record: DelegationRecord, one: Wanted) -> Begun:
        found = {task_id: await self._subagents.child(call.ref, task_id) for task_id in one.arguments.task_ids}
        if foreign := [task_id for task_id, child in found.items() if child is None]:
            raise ChildRefused("\n\n".join(not_found(task_id) for task_id in foreign))
        running = [task_id for task_id, child in found.items() if child is not None and child.live]
        ended = len(running) < len(found)
        waits = bool(running) and not (one.arguments.wait_for == "any" and ended)
        return Begun(
            index=one.index,
            kind=one.kind,
            ids=running if waits else [],
            any_of=one.arguments.wait_for == "any",
            timeout_s=one.arguments.timeout_s,
        )

    async def _refuse(
        self,
        record: DelegationRecord,
        index: int,
        kind: DelegationTool,
        text: str,
        rule: Rule | None = None,
        name: str | None = None,
    ) -> Begun:
        settled = await record.settle(index, name or kind, CallState.FAILED, text, [], rule)
        return Begun(index=index, kind=kind, settled=settled)


def _explain(error: ValidationError) -> str:
    lines = [f"- {'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in error.errors()]
    return "The arguments do not fit; nothing was started.\n" + "\n".join(lines[:20])


# The child that the conversation is asked for.


def build_child(call: DelegationCall, one: Wanted) -> SpawnChild:
    assert one.planned is not None and one.planned.session is not None
    spawn = one.planned.spawn
    return SpawnChild(
        session_id=one.child_id(call),
        kind=one.kind,
        name=spawn.name,
        thread=spawn.resumes,
        prompt=CallRef(
            node=call.node,
            index=one.index,
            field=spawn.prompt,
            within=spawn.within,
            kind=_message_kind(spawn.terms),
            attachments=one.planned.attachments,
        ),
        session=one.planned.session,
        delivery=spawn.reports,
    )


def _message_kind(terms: SubagentTerms | None) -> InboxKind:
    """The role with which a parent's message arrives. If it is addressed to side B, it arrives as a message of side
    A."""
    return InboxKind.ASSISTANT if terms and terms.receives_messages is ReceivingSide.SIDE_B else InboxKind.USER


# Calls of subagents whose variables lack values: each call is stored, and its subagent begins once they are set.


class DeferredCalls:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def keep(
        self,
        call: DelegationCall,
        record: DelegationRecord,
        index: int,
        tool: str,
        planned: Planned,
        parent: SessionRow,
        spawn: SpawnRequest,
    ) -> ToolOutcome:
        """Store one call as it was made. Its result lists the missing values and the place to set them."""
        request = VariableRequest(
            id=derive_id(call.node, "variables", index),
            tenant=call.ref.tenant,
            conversation_id=call.ref.conversation_id,
            thread_id=parent.thread_id,
            session_id=call.ref.session_id,
            agent=planned.spawn.agent.name,
            name=planned.spawn.name,
            instance=tool == DelegationTool.SUBAGENT_CREATE,
            needs=planned.needs,
            spawn=spawn.model_copy(update={"deferred": await self._thread(parent)}),
        )
        request = await variables.open_request(self._pool, request)
        required = ev.VariablesRequired(
            request_id=request.id,
            thread_id=request.thread_id,
            agent=request.agent,
            name=request.name,
            missing=request.missing_names,
        )
        return await record.settle(index, tool, CallState.FAILED, request.for_model(), [required])

    async def _thread(self, parent: SessionRow) -> SpawnerThread:
        """The position of the parent's thread in its conversation, for a start after the parent has ended."""
        above = await sessions.get(self._pool, parent.tenant, parent.spawned_by) if parent.spawned_by else None
        return SpawnerThread(
            parent=above.thread_id if above else None, name=parent.subagent_name or parent.agent, depth=parent.depth
        )


async def start_deferred(pool: Pool, conversations: WorkflowClient, request: VariableRequest) -> None:
    """Ask the conversation to start a subagent whose values are set. Ids derive from the first call, so it starts
    once."""
    try:
        answer = await conversations.spawn(request.tenant, request.conversation_id, request.spawn)
        started = answer.answers[0].error is None
    except Refusal:  # the conversation was terminated
        started = False
    await variables.settle_request(pool, request, started=started)


# Calls that cannot start are settled, so that an unexpected error is not retried without end.


def is_hopeless(error: Exception) -> bool:
    return not isinstance(error, RETRIED) and activity.info().attempt >= ATTEMPTS


async def give_up_calls(pool: Pool, call: DelegationCall, error: Exception) -> BegunBatch:
    """Record an error as the result of the calls that have none yet."""
    activity.logger.error("the delegations of %s cannot be begun", call.node, exc_info=error)
    [node] = await messages.path(pool, call.ref.tenant, call.node, limit=1)
    blocks = calls_of(node)
    record = DelegationRecord(pool, call.ref, call.node)
    text = f"This failed with an internal error ({type(error).__name__}). Look what was done before you try again."
    begun = []
    for index in call.indexes:
        name = blocks[index].name
        kind = DelegationTool(name) if name in set(DelegationTool) else DelegationTool.SUBAGENT
        settled = await record.claim(index, name, "") or await record.settle(index, name, CallState.FAILED, text, [])
        begun.append(Begun(index=index, kind=kind, settled=settled))
    return BegunBatch(calls=begun)


# The subagents that begin with a prompt, before its first model step. The calls are recorded as a reply of the platform
# and run like those of a model; the same claims make sure that they run once. Models are shown their results, but
# neither the calls nor their arguments.


BEGIN = "Begin."  # the first message of a child whose parent has no text to pass on
MOST_NAME = 63


class Activate(CallModel):
    """The activity. It works like a model call, but the reply follows from the agent's definition."""

    platform_alone = True

    @activity.defn(name="activate")
    async def activate(self, call: ModelCall) -> ModelReply:
        return await self.reply_to(call)

    async def offered(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        return await self.toolbox.immediate(call, agents[-1], facts)

    async def ask(
        self,
        call: ModelCall,
        agent: AgentDefinition,
        nodes: list[Node],
        tools: Offered,
        facts: StepFacts,
        turn: ModelResponse,
    ) -> None:
        variables = {
            name: value for name, value in resolve_values(agent, facts.variables).items() if not is_sealed(value)
        }
        task = _task(nodes)
        turn.immediate, turn.stop_reason = True, StopReason.TOOL_CALLS
        for one in find_enabled(agent, facts.variables):
            if one.immediate is None or (CREATE if one.resumable else one.name) not in tools:
                continue
            name = _name(one, one.immediate, variables)
            if one.resumable and _is_there(facts.registry, one.name, name):
                continue  # started by an earlier activation; it keeps its thread
            text = variables.get(one.immediate.description_env or "", "").strip() or task
            arguments = {one.init_user_message_property or "message": text}
            if one.immediate.name_env:
                arguments[one.init_agent_name_property or "name"] = name
            if one.resumable:
                arguments = {"agent": one.name, "name": name, "message": text}
            turn.content.append(
                ToolCallBlock(
                    id=f"immediate_{call.step}_{len(turn.content)}",
                    name=CREATE if one.resumable else one.name,
                    arguments=arguments,
                )
            )


def _task(nodes: list[Node]) -> str:
    """The thread's latest request."""
    asked = [text_of(node) for node in nodes if node.kind == USER]
    return next((text for text in reversed(asked) if text.strip()), BEGIN)


def _name(tool: SubagentTool, immediate: Immediate, variables: dict[str, str]) -> str:
    return variables.get(immediate.name_env or "", "").strip()[:MOST_NAME] or tool.name


def _is_there(registry: list[RegistryEntry], agent: str, name: str) -> bool:
    return any(
        entry.resumable and entry.agent == agent and entry.name == name and entry.status != TERMINATED
        for entry in registry
    )
