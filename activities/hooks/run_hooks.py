"""run_hooks: runs the hooks of one moment one after the other. A failure is reported, and the session continues."""

from collections.abc import Sequence
from typing import Any

from temporalio import activity

from activities.attempt import beating
from activities.definitions import Definitions
from activities.hooks.hook import SessionHook
from activities.hooks.hook_runner import HookError, reply_of, report
from activities.thread_state import ThreadStates
from activities.workspaces import Workspaces
from domain.agents.hook import (
    INNER,
    MOST_TEXT,
    AfterModel,
    AfterTool,
    BeforeModel,
    BeforeTool,
    HookPoint,
    Moment,
    OnEnd,
    OnMessage,
    RequestedCall,
    SubagentCreated,
    ThreadCreated,
)
from domain.messages import calls_of, text_of
from domain.sealing import SealingError
from domain.sessions.hook_call import HookCall, HookList, HookOutcome, HookPoints
from domain.sessions.session import AgentRef
from store import conversations, messages, sessions, threads, tool_calls, workspaces
from store.database import Pool


class RunHooks:
    def __init__(
        self,
        pool: Pool,
        hooks: dict[str, SessionHook],
        definitions: Definitions,
        states: ThreadStates,
        space: Workspaces,
    ) -> None:
        self._pool = pool
        self._hooks = hooks
        self._definitions = definitions
        self._states = states
        self._workspaces = space

    @activity.defn(name="list_hooks")
    @beating
    async def list_hooks(self, wanted: HookList) -> HookPoints:
        """The moments at which an agent has hooks. Dry runs and recorded reruns have none, because hooks may have
        effects."""
        session = await sessions.get(self._pool, wanted.ref.tenant, wanted.ref.session_id)
        if session is None or session.dry_run or (session.rerun is not None and session.rerun.recorded):
            return HookPoints(points=[])
        named = (await self._definitions.load(wanted.agent)).hooks
        points = {hook.point for name in named if (hook := self._hooks.get(name))}
        if any(name not in self._hooks for name in named):
            # This worker cannot know the moment of a hook that it does not have. Its absence is reported at the first
            # one; and as it may be a guard, no tool runs.
            points |= {HookPoint.BEFORE_MODEL, HookPoint.BEFORE_TOOL}
        return HookPoints(points=[point for point in HookPoint if point in points and point not in INNER])

    @activity.defn(name="run_hooks")
    @beating
    async def run_hooks(self, call: HookCall) -> HookOutcome:
        named = (await self._definitions.load(call.agent)).hooks
        hooks = [hook for name in named if (hook := self._hooks.get(name)) and hook.point is call.point]
        absent = [name for name in named if name not in self._hooks]
        notes: list[str] = []
        refusals: dict[int, str] = {}
        if call.point in (HookPoint.BEFORE_MODEL, HookPoint.BEFORE_TOOL):
            for name in absent:
                await self._report(call, name, _key(call, 0), f"This worker has no hook {name!r}.")
        if absent and call.point is HookPoint.BEFORE_TOOL:  # it may be a guard: fail closed
            refusal = f"This was not run: this worker has no hook {absent[0]!r}."
            return HookOutcome(refusals=dict.fromkeys(call.indexes, refusal))
        version, _ = await workspaces.get(self._pool, call.ref.tenant, call.workspace_id)
        folder = await self._workspaces.ready(call.ref.tenant, call.workspace_id, version)
        session = await sessions.get(self._pool, call.ref.tenant, call.ref.session_id)
        for place, given in enumerate(await self._moments(call)):
            moment = given
            for hook in hooks:
                try:
                    agents: Sequence[AgentRef] = [*call.above, call.agent]
                    key = f"{moment.key}/{hook.name}"
                    stored = session.variables if session else {}
                    state = await self._states.load(call.ref, agents, stored, call.workspace_id, folder, key)
                    reply = await reply_of(hook, moment, state)
                except (HookError, SealingError) as error:
                    await self._report(call, hook.name, moment.key, str(error))
                    if call.point is HookPoint.BEFORE_TOOL:  # it may be a guard: fail closed
                        refusals[call.indexes[place]] = f"This was not run: the hook {hook.name!r} failed."
                    continue
                if reply.text and isinstance(moment, OnMessage) and call.messages:
                    await conversations.change_text(self._pool, call.ref.tenant, call.messages[place], reply.text)
                    moment = moment.model_copy(update={"text": reply.text})
                if reply.note:
                    notes.append(reply.note)
                if reply.refusal and call.point is HookPoint.BEFORE_TOOL:
                    refusals.setdefault(call.indexes[place], reply.refusal)
        if hooks:
            await self._workspaces.keep(call.ref.tenant, call.workspace_id)
        return HookOutcome(note="\n\n".join(notes)[:MOST_TEXT] or None, refusals=refusals)

    async def _moments(self, call: HookCall) -> list[Moment]:
        """Read the input of the hooks from the store."""
        common: dict[str, Any] = {
            "session_id": call.ref.session_id,
            "conversation_id": call.ref.conversation_id,
            "agent": call.agent.name,
            "step": call.step,
        }
        tenant = call.ref.tenant
        if call.point is HookPoint.BEFORE_MODEL:
            return [BeforeModel(**common, key=_key(call, 0), model=call.model)]
        if call.point is HookPoint.ON_END:
            return [OnEnd(**common, key=_key(call, 0), reason=call.reason or "", error=call.error)]
        if call.point is HookPoint.AFTER_THREAD_CREATED:
            session = await sessions.get(self._pool, tenant, call.ref.session_id)
            place = await threads.get(self._pool, tenant, session.thread_id) if session else None
            above = place.parent_thread_id if place else None
            thread_id = place.id if place else call.ref.conversation_id
            return [ThreadCreated(**common, key=_key(call, 0), thread_id=thread_id, parent_thread_id=above)]
        if call.point is HookPoint.AFTER_SUBAGENT_CREATED:
            found = await sessions.by_ids(self._pool, tenant, call.children)
            return [
                SubagentCreated(
                    **common,
                    key=f"{_key(call, 0)}/{child}",
                    reference=found[child].thread_id,
                    child_session_id=child,
                    name=found[child].subagent_name or found[child].agent,
                    subagent=found[child].agent,
                )
                for child in call.children
                if child in found
            ]
        if call.point is HookPoint.ON_MESSAGE and call.opening is not None:
            opening = await messages.prompt(self._pool, tenant, call.opening)
            return [OnMessage(**common, key=f"{_key(call, 0)}/{call.opening}", text=opening)]
        if call.point is HookPoint.ON_MESSAGE:
            texts = [await conversations.message_text(self._pool, tenant, one) for one in call.messages]
            pairs = zip(call.messages, texts, strict=True)
            return [OnMessage(**common, key=f"{_key(call, 0)}/{one}", text=text) for one, text in pairs]
        [node] = await messages.path(self._pool, tenant, call.node, limit=1)
        calls = [RequestedCall(tool=block.name, arguments=block.arguments) for block in calls_of(node)]
        if call.point is HookPoint.AFTER_MODEL:
            return [AfterModel(**common, key=_key(call, 0), text=text_of(node), calls=calls)]
        if call.point is HookPoint.BEFORE_TOOL:
            return [BeforeTool(**common, key=_key(call, one), **dict(calls[one])) for one in call.indexes]
        results = {one.index: one for one in await tool_calls.results(self._pool, tenant, node.id)}
        return [
            AfterTool(
                **common,
                key=_key(call, one),
                **dict(calls[one]),
                state=results[one].state.for_model if one in results else "unknown",
                result=results[one].text if one in results else "",
            )
            for one in call.indexes
        ]

    async def _report(self, call: HookCall, name: str, key: str, error: str) -> None:
        await report(self._pool, call.ref, name, call.point, call.step, key, error)


def _key(call: HookCall, place: int) -> str:
    return f"{call.ref.session_id}/{call.line}/{call.step}/{call.point}/{call.node or ''}/{place}"
