"""begin_delegations: begins all delegation calls of one step; the conversation is asked for all children at once.
activate makes such calls itself, for the subagents that begin with a prompt."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from errand.models import RegistryEntry
from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.attempt import send_heartbeats
from activities.delegation.messages import Subagents, message_id_of, message_kind
from activities.delegation.plan import CONFIGURED, ChildRefused, Planned, Planner, Spawn, Spawner
from activities.delegation.settle import DelegationRecord
from activities.model.call_model import CallModel
from activities.requests.external_tools import CallersTool
from activities.tools.offered import CREATE, Offered, ReplyPrompt, find_enabled
from activities.tools.tool import BEGIN_DELEGATIONS, Tool, list_problems
from domain import events as ev
from domain.agents.definition import AgentDefinition
from domain.agents.variables import resolve_values
from domain.conversations.mailbox import list_attachments, rewrite_paths
from domain.conversations.requests import CallRef, SpawnAnswer, SpawnChild, SpawnerThread, SpawnRequest
from domain.conversations.subagent_texts import (
    background,
    describe_dispatch,
    describe_launch,
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
    InlineLine,
    first_message,
    inline_path,
)
from domain.conversations.variable_request import VariableRequest
from domain.errors import Refusal, Unavailable
from domain.ids import derive_id
from domain.messages import USER, ModelResponse, ReplyBody, ToolCallBlock, calls_of, text_of
from domain.policy.rules import Rule
from domain.redaction import is_sealed
from domain.sessions.session import (
    CallState,
    DeliveryMode,
    Effect,
    EffectKind,
    ModelCall,
    ModelReply,
    StopReason,
)
from store import conversations, messages, runs, sessions, threads, variables
from store.database import TRANSIENT_ERRORS, Pool
from store.messages import StepFacts
from store.threads import Child
from workflows.client import WorkflowClient

# wait this long for the child's first reply before its id is given out, so that no id of a dead session is returned
DEAD_ON_ARRIVAL_SECONDS = 2.0

# Recorded for a call of a tool named after its agent. The agent's own input schema is checked when the call is planned.
_NAMED_AFTER_AGENT = CallersTool(
    name=DelegationTool.SUBAGENT,
    description="",
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    addresses=True,
)

ATTEMPTS = 3

# errors that pass with time, or that others settle
RETRIED: tuple[type[BaseException], ...] = (
    *TRANSIENT_ERRORS,
    *(runs.NotCurrentRun, runs.SessionEnded, Unavailable, ApplicationError, RPCError),
)


@dataclass
class Wanted:
    """One call of a step, with its record and, once it is planned, what it starts."""

    call: DelegationCall
    record: DelegationRecord
    index: int
    tool: str  # its name, which may be an agent's name
    arguments: Any = None
    planned: Planned | None = None

    @property
    def kind(self) -> DelegationTool:
        return DelegationTool(self.tool) if self.tool in set(DelegationTool) else DelegationTool.SUBAGENT

    @property
    def key(self) -> str:
        """The same at every attempt of the call."""
        return f"{self.call.node}:{self.index}"

    @property
    def instance(self) -> Child | None:
        """The existing one that it is a message for."""
        return self.planned.spawn.instance if self.planned is not None else None

    @property
    def child_id(self) -> str:
        """The session that the call starts."""
        return derive_id(self.call.node, "child", self.index)

    async def claim(self, pool: Pool, summary: str, kind: EffectKind | None = None) -> Begun | None:
        """Claim the call; its earlier result if it has one, with the child that it started: the workflow may not have
        learned of that."""
        known = await self.record.claim(self.index, self.tool, summary, kind)
        if known is None:
            return None
        begun = Begun(index=self.index, tool=self.tool, settled=known)
        child = await sessions.get(pool, self.call.ref.tenant, self.child_id)
        if child is not None and known.state is CallState.OK:
            begun.child, begun.wakes = child.id, child.delivery is DeliveryMode.WAKE and not child.blocking
        return begun

    async def settle(
        self, text: str, *events: ev.Event, state: CallState = CallState.OK, rule: Rule | None = None, **child: Any
    ) -> Begun:
        settled = await self.record.settle(self.index, self.tool, state, text, [*events], rule)
        return Begun(index=self.index, tool=self.tool, settled=settled, **child)

    async def refuse(self, text: str, rule: Rule | None = None) -> Begun:
        return await self.settle(text, state=CallState.FAILED, rule=rule)

    def wait_for(self, child: str) -> Begun:
        return Begun(index=self.index, tool=self.tool, child=child, awaited=[child])


@dataclass
class BeginDelegations:
    _pool: Pool
    _workflows: WorkflowClient
    _tools: dict[str, Tool]
    _planner: Planner
    _subagents: Subagents
    _max_children: int

    @activity.defn(name="begin_delegations")
    async def begin_delegations(self, call: DelegationCall) -> BegunBatch:
        async with send_heartbeats():
            [node] = await messages.path(self._pool, call.ref.tenant, call.node, limit=1)
            call.immediate = isinstance(node.body, ReplyBody) and node.body.immediate
            record, blocks = DelegationRecord(self._pool, call.ref, call.node), calls_of(node)
            wanted = [Wanted(call, record, index, blocks[index].name) for index in call.indexes]
            try:
                begun = await self._begin_all(call, wanted, blocks)
            except Exception as error:
                if isinstance(error, RETRIED) or activity.info().attempt < ATTEMPTS:
                    raise
                begun = await give_up_calls(self._pool, wanted, error)
            return BegunBatch(calls=[begun[index] for index in call.indexes])

    async def _begin_all(
        self, call: DelegationCall, wanted: list[Wanted], blocks: list[ToolCallBlock]
    ) -> dict[int, Begun]:
        """Claim all, plan all, then ask for all sessions at once. What is refused is refused before an id exists."""
        begun: dict[int, Begun] = {}
        for one in wanted:
            if (found := await self._claim(one, blocks[one.index])) is not None:
                begun[one.index] = found
        by = await self._planner.load_spawner(call)
        for one in [one for one in wanted if one.index not in begun]:
            pending = [other.planned for other in wanted if other.planned is not None]
            if (found := await self._plan(by, one, pending)) is not None:
                begun[one.index] = found
        return begun | await self._spawn(by, [one for one in wanted if one.index not in begun])

    async def _claim(self, one: Wanted, block: ToolCallBlock) -> Begun | None:
        """Claim the call and read its arguments; its result if it has one."""
        tool = self._tools.get(one.tool, _NAMED_AFTER_AGENT)
        if (known := await one.claim(self._pool, tool.call_summary(block.arguments), tool.kind)) is not None:
            return known
        try:
            one.arguments = tool.input.model_validate(block.arguments)
        except ValidationError as error:
            lines = "\n".join(f"- {problem}" for problem in list_problems(error))
            return await one.refuse(f"The arguments do not fit; nothing was started.\n{lines}")
        return None

    async def _plan(self, by: Spawner, one: Wanted, pending: list[Planned]) -> Begun | None:
        """Plan the call. None: a session has to be started for it."""
        call = one.call
        if one.kind in CONFIGURED and (delivered := await self._find_delivered(one)) is not None:
            return delivered
        try:
            if one.kind is DelegationTool.GATHER:
                return await self._gather(one)
            one.planned = await self._planner.plan(by, one.kind, one.tool, one.arguments, pending)
        except ChildRefused as refusal:
            return await one.refuse(str(refusal), refusal.rule)
        if any(need.missing for need in one.planned.needs):
            return await self._defer(by, one, one.planned)
        spawn = one.planned.spawn
        if spawn.inline:
            line = inline_path(call.line, call.step, one.index)
            inline = InlineLine(
                agent=spawn.agent,
                models=one.planned.models,
                hooked=bool(spawn.definition.for_side("a").hooks),
                resume=await runs.resume_point(self._pool, call.ref, line) if call.resumed else None,
            )
            return Begun(index=one.index, tool=one.tool, line=inline)
        return await self._send(one, one.planned)

    async def _gather(self, one: Wanted) -> Begun:
        found = {task_id: await self._subagents.child(one.call.ref, task_id) for task_id in one.arguments.task_ids}
        if foreign := [task_id for task_id, child in found.items() if child is None]:
            raise ChildRefused("\n\n".join(not_found(task_id) for task_id in foreign))
        running = [task_id for task_id, child in found.items() if child is not None and child.live]
        any_of = one.arguments.wait_for == "any"
        return Begun(
            index=one.index,
            tool=one.tool,
            awaited=[] if any_of and len(running) < len(found) else running,
            any_of=any_of,
            timeout_s=one.arguments.timeout_s,
        )

    # a message to an instance that is there

    async def _find_delivered(self, one: Wanted) -> Begun | None:
        """The result of a message that an earlier attempt sent and a session, which may have ended, has read."""
        ref = one.call.ref
        sent = await conversations.get_message_state(self._pool, ref.tenant, message_id_of(ref, one.key))
        reader = await self._subagents.child(ref, sent.by) if sent and sent.by else None
        return await self._report_delivered(one, reader) if reader is not None and reader.terms is not None else None

    async def _send(self, one: Wanted, planned: Planned) -> Begun | None:
        """Send the message to a working instance; None if a session must begin with it, or has begun with it in an
        earlier attempt."""
        instance, ref = planned.spawn.instance, one.call.ref
        if instance is None or await sessions.get(self._pool, ref.tenant, one.child_id):
            return None
        # What an earlier attempt sent may wait for the instance's next session.
        if not instance.live and not await conversations.has_message(
            self._pool, ref.tenant, message_id_of(ref, one.key)
        ):
            return None
        files = planned.attachments
        text = first_message(rewrite_paths(one.arguments.model_dump(exclude_none=True), files), None)
        text = list_attachments(text, [file.path for file in files])
        space = planned.session.workspace_id if planned.session else None
        if not await self._subagents.send(ref, instance, text, one.key, space, files):
            return None
        return await self._report_delivered(one, instance)

    @staticmethod
    async def _report_delivered(one: Wanted, instance: Child) -> Begun:
        if instance.terms is not None and instance.terms.blocking:
            return one.wait_for(instance.session_id)
        return await one.settle(message_delivered(instance.name, instance.thread_id))

    # a call that waits for values of variables: it is stored, and its subagent begins once they are set

    async def _defer(self, by: Spawner, one: Wanted, planned: Planned) -> Begun:
        """Store the call as it was made. Its result lists the missing values and the place to set them."""
        assert planned.session is not None
        one.planned = replace(planned, session=planned.session.model_copy(update={"blocking": False}))
        parent, call = by.session, one.call
        above = await sessions.get(self._pool, parent.tenant, parent.spawned_by) if parent.spawned_by else None
        # the position of the parent's thread, for a start after the parent has ended
        thread = SpawnerThread(
            parent=above.thread_id if above else None, name=parent.subagent_name or parent.agent, depth=parent.depth
        )
        spawn = await self._build_request(by, [one])
        request = VariableRequest(
            id=derive_id(call.node, "variables", one.index),
            tenant=call.ref.tenant,
            conversation_id=call.ref.conversation_id,
            thread_id=parent.thread_id,
            session_id=call.ref.session_id,
            agent=planned.spawn.agent.name,
            name=planned.spawn.name,
            instance=one.kind is DelegationTool.SUBAGENT_CREATE,
            needs=planned.needs,
            spawn=spawn.model_copy(update={"deferred": thread}),
        )
        request = await variables.open_request(self._pool, request)
        required = ev.VariablesRequired(
            request_id=request.id,
            thread_id=request.thread_id,
            agent=request.agent,
            name=request.name,
            missing=request.missing_names,
        )
        return await one.settle(request.for_model(), required, state=CallState.FAILED)

    # new sessions, for all calls that need one

    async def _build_request(self, by: Spawner, starting: list[Wanted]) -> SpawnRequest:
        return SpawnRequest(
            request_id=f"{by.call.node}/{','.join(str(one.index) for one in starting)}",
            spawned_by=by.session.id,
            thread=by.session.thread_id,
            children=[build_child(one) for one in starting],
            max_depth=await self._planner.find_max_depth(by.call),
            max_children=self._max_children,
        )

    async def _spawn(self, by: Spawner, starting: list[Wanted]) -> dict[int, Begun]:
        if not starting:
            return {}
        ref = by.call.ref
        answer = await self._workflows.spawn(ref.tenant, ref.conversation_id, await self._build_request(by, starting))
        dead = await self._dead_on_arrival(by.call, [said.session_id for said in answer.answers if said.error is None])
        answers = {one.index: said for one, said in zip(starting, answer.answers, strict=True)}
        # another message may have begun the instance's next session meanwhile, and that one may have ended by now
        busy = [one for one in starting if one.instance is not None and answers[one.index].error is not None]
        begun = {one.index: await self._begin(one, answers[one.index], dead) for one in starting if one not in busy}
        for one in busy:
            if (found := await self._plan(by, one, [])) is not None:
                begun[one.index] = found
        left = [one for one in busy if one.index not in begun]
        if len(left) < len(starting):
            return begun | await self._spawn(by, left)
        return {one.index: await self._begin(one, answers[one.index], dead) for one in left}

    async def _begin(self, one: Wanted, said: SpawnAnswer, dead: dict[str, str]) -> Begun:
        assert one.planned is not None
        child, spawn = said.session_id, one.planned.spawn
        if said.error is not None:
            return await one.refuse(said.error)
        if child in dead and not spawn.waits:
            await self._subagents.claim(one.call.ref, [child], one.key)
            return await one.refuse(f"The launch failed: {dead[child]}.")
        started = ev.SubagentStarted(
            child_session_id=child, name=spawn.name, agent=spawn.agent.name, description=spawn.description
        )
        if spawn.waits:
            await one.record.emit(one.index, started)
            return one.wait_for(child)
        return await one.settle(describe_start(spawn, child), started, child=child, wakes=said.delivery == "wake")

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


def describe_start(spawn: Spawn, child: str) -> str:
    """The result of a call that does not wait; a continued agent keeps its id."""
    if spawn.terms is not None:
        return subagent_started(spawn.name, spawn.resumes or child, explicit=spawn.terms.explicit)
    if spawn.kind is DelegationTool.ASYNC_TASK:
        return describe_launch(child, spawn.agent.name, spawn.description)
    if spawn.kind is DelegationTool.START_BACKGROUND:
        return background(spawn.resumes or child, spawn.name)
    return describe_dispatch(spawn.name, child)


def build_child(one: Wanted) -> SpawnChild:
    """The child that the conversation is asked for."""
    assert one.planned is not None and one.planned.session is not None
    spawn = one.planned.spawn
    return SpawnChild(
        session_id=one.child_id,
        kind=one.kind,
        name=spawn.name,
        thread=spawn.resumes,
        prompt=CallRef(
            node=one.call.node,
            index=one.index,
            field=spawn.prompt,
            within=spawn.within,
            kind=message_kind(spawn.terms),
            attachments=one.planned.attachments,
        ),
        session=one.planned.session,
        delivery=spawn.reports,
    )


async def start_deferred(pool: Pool, workflows: WorkflowClient, request: VariableRequest) -> None:
    """Ask the conversation to start a subagent whose values are set. Ids derive from the first call, so it starts
    once."""
    try:
        answer = await workflows.spawn(request.tenant, request.conversation_id, request.spawn)
        started = answer.answers[0].error is None
    except Refusal:  # the conversation was terminated
        started = False
    await variables.settle_request(pool, request, started=started)


# Calls that cannot start are settled, so that an unexpected error is not retried without end.


async def give_up_calls(pool: Pool, wanted: list[Wanted], error: Exception) -> dict[int, Begun]:
    """Record an error as the result of the calls that have none yet."""
    activity.logger.error("delegations cannot be begun", exc_info=error)
    text = f"This failed with an internal error ({type(error).__name__}). Look what was done before you try again."
    return {one.index: await one.claim(pool, "") or await one.refuse(text) for one in wanted}


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

    async def offer_tools(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        return await self.toolbox.immediate(call, agents[-1], facts)

    async def ask(self, prompt: ReplyPrompt, turn: ModelResponse) -> None:
        agent, facts = prompt.agent, prompt.facts
        variables = {
            name: value for name, value in resolve_values(agent, facts.variables).items() if not is_sealed(value)
        }
        asked = (text_of(node) for node in reversed(prompt.nodes) if node.kind == USER)
        task = next((text for text in asked if text.strip()), BEGIN)  # the thread's latest request
        turn.immediate, turn.stop_reason = True, StopReason.TOOL_CALLS
        for one in find_enabled(agent, facts.variables):
            if one.immediate is None or (CREATE if one.resumable else one.name) not in prompt.tools:
                continue
            name = variables.get(one.immediate.name_env or "", "").strip()[:MOST_NAME] or one.name
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
                    id=f"immediate_{prompt.call.step}_{len(turn.content)}",
                    name=CREATE if one.resumable else one.name,
                    arguments=arguments,
                )
            )


def _is_there(registry: list[RegistryEntry], agent: str, name: str) -> bool:
    return any(
        entry.resumable and entry.agent == agent and entry.name == name and entry.status != TERMINATED
        for entry in registry
    )
