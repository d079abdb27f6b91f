"""Runs hooks: between the steps of a session (two activities), and inside a model call or a tool call, where they
change the model's input, and replies or results before they are stored. Then how one hook runs. Only an agent that
names hooks enters this file."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from temporalio import activity

from activities.attempt import with_heartbeats
from activities.hooks.hook import SessionHook
from activities.thread_state import ThreadState, ThreadStates
from activities.tools.offered import ReplyPrompt
from activities.tools.tool import ToolResult, clean
from activities.user_code import at_home, hide_in_logs, run_apart, run_within
from activities.workspaces import Workspaces
from domain.agents.definition import AgentDefinition
from domain.agents.hook import (
    INNER,
    MOST_TEXT,
    AfterModel,
    AfterTool,
    BeforeModel,
    BeforeReply,
    BeforeResult,
    BeforeTool,
    FilterMessages,
    HookPoint,
    HookReply,
    Moment,
    OnEnd,
    OnMessage,
    RequestedCall,
    ShownMessage,
    SubagentCreated,
    SystemMessage,
    ThreadCreated,
)
from domain.events import EventRow, HookFailed
from domain.json_object import JsonObject
from domain.messages import ModelResponse, Node, calls_of, hide_nodes, select_shown, text_of, turn_text_of
from domain.sealing import SealingError
from domain.sessions.session import AgentRef, CallState, SessionRef, ToolRequest
from domain.sessions.session_state import HookCall, HookList, HookOutcome, HookPoints
from store import conversations, events, messages, sessions, threads, tool_calls, workspaces
from store.agents import load_view
from store.database import Pool

RESULT_SECONDS = 20.0  # for all hooks of one result, because the tool's activity waits for them


@dataclass
class Hooks:
    _pool: Pool
    _hooks: dict[str, SessionHook]
    _states: ThreadStates
    _workspaces: Workspaces

    @activity.defn(name="list_hooks")
    @with_heartbeats
    async def list_hooks(self, wanted: HookList) -> HookPoints:
        """The moments at which an agent has hooks. Dry runs and recorded reruns have none, because hooks may have
        effects."""
        session = await sessions.get(self._pool, wanted.ref.tenant, wanted.ref.session_id)
        if session is None or session.dry_run or (session.rerun is not None and session.rerun.recorded):
            return HookPoints(points=[])
        named = (await load_view(self._pool, wanted.agent)).hooks
        points = {hook.point for name in named if (hook := self._hooks.get(name))}
        if any(name not in self._hooks for name in named):
            # This worker cannot know the moment of a hook that it does not have. Its absence is reported at the first
            # one; and as it may be a guard, no tool runs.
            points |= {HookPoint.BEFORE_MODEL, HookPoint.BEFORE_TOOL}
        return HookPoints(points=[point for point in HookPoint if point in points and point not in INNER])

    @activity.defn(name="run_hooks")
    @with_heartbeats
    async def run_hooks(self, call: HookCall) -> HookOutcome:
        named = (await load_view(self._pool, call.agent)).hooks
        hooks = [hook for name in named if (hook := self._hooks.get(name)) and hook.point is call.point]
        absent = [name for name in named if name not in self._hooks]
        notes: list[str] = []
        refusals: dict[int, str] = {}
        if call.point in (HookPoint.BEFORE_MODEL, HookPoint.BEFORE_TOOL):
            for name in absent:
                error = f"This worker has no hook {name!r}."
                await report_failure(self._pool, call.ref, name, call.point, call.step, _key(call, 0), error)
        if absent and call.point is HookPoint.BEFORE_TOOL:  # it may be a guard: fail closed
            refusal = f"This was not run: this worker has no hook {absent[0]!r}."
            return HookOutcome(refusals=dict.fromkeys(call.indexes, refusal))
        version, _ = await workspaces.get(self._pool, call.ref.tenant, call.workspace_id)
        with self._workspaces.use(call.ref.tenant, call.workspace_id):
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
                        reply = await run_hook(hook, moment, state)
                    except (HookError, SealingError) as error:
                        await report_failure(
                            self._pool, call.ref, hook.name, call.point, call.step, moment.key, str(error)
                        )
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
        common = _common_fields(call.ref, call.agent.name, call.step)
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
        results = {one.index: one for one in await tool_calls.get_results(self._pool, tenant, node.id)}
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

    # inside a model call or a tool call

    async def filter_messages(self, prompt: ReplyPrompt) -> list[Node]:
        """The messages for the model. The newest one always stays, and a call and its results are hidden together. A
        filter that fails hides nothing."""
        nodes = prompt.nodes

        def build_moment(common: JsonObject) -> Moment:
            return FilterMessages(**common, messages=_messages(nodes, prompt.call.agent.side))

        async for reply in self._replies(prompt, HookPoint.FILTER_MESSAGES, build_moment):
            nodes = hide_nodes(nodes, reply.hide)
        return nodes

    async def change_system(self, prompt: ReplyPrompt, text: str) -> str:
        """The system prompt for the model."""

        def build_moment(common: JsonObject) -> Moment:
            return SystemMessage(**common, text=text)

        async for reply in self._replies(prompt, HookPoint.AFTER_SYSTEM_MESSAGE, build_moment):
            text = reply.text or text
        return text

    async def change_reply(self, prompt: ReplyPrompt, turn: ModelResponse) -> str:
        """The text that is stored for a reply."""
        text = turn.answer()

        def build_moment(common: JsonObject) -> Moment:
            calls = [RequestedCall(tool=one.name, arguments=one.arguments) for one in turn.calls]
            return BeforeReply(**common, text=text, calls=calls)

        async for reply in self._replies(prompt, HookPoint.BEFORE_REPLY, build_moment):
            text = reply.text or text
        return text

    async def _replies(
        self, prompt: ReplyPrompt, point: HookPoint, build_moment: Callable[[JsonObject], Moment]
    ) -> AsyncIterator[HookReply]:
        """Run the hooks of a model call one after the other; each receives the result of the one before it."""
        call, agent = prompt.call, prompt.agent
        hooks = self.find(agent, point)
        session = await sessions.get(self._pool, call.ref.tenant, call.ref.session_id) if hooks else None
        if session is None or session.dry_run:
            return
        version, _ = await workspaces.get(self._pool, call.ref.tenant, session.workspace_id)
        with self._workspaces.use(call.ref.tenant, session.workspace_id):
            folder = await self._workspaces.ready(call.ref.tenant, session.workspace_id, version)
            key = f"{call.ref.session_id}/{call.line}/{call.step}/{point}/{call.head or ''}"
            common = {**_common_fields(call.ref, agent.name, call.step), "key": key}
            agents = [*call.above, call.agent]
            for hook in hooks:
                try:
                    state = await self._states.load(
                        call.ref, agents, prompt.facts.variables, session.workspace_id, folder, f"{key}/{hook.name}"
                    )
                    yield await run_hook(hook, build_moment(common), state)
                except (HookError, SealingError) as error:
                    await report_failure(self._pool, call.ref, hook.name, hook.point, call.step, key, str(error))
            await self._workspaces.keep(call.ref.tenant, session.workspace_id)

    async def change_result(
        self, request: ToolRequest, agent: AgentDefinition, arguments: Any, result: ToolResult, state: ThreadState
    ) -> ToolResult:
        """The result to store. If a hook fails, the result stays unchanged."""
        hooks = self.find(agent, HookPoint.BEFORE_RESULT)
        session = await sessions.get(self._pool, request.ref.tenant, request.ref.session_id)
        if session is None or session.dry_run:
            return result
        give_up = asyncio.get_running_loop().time() + RESULT_SECONDS
        for hook in hooks:
            moment = BeforeResult(
                **_common_fields(request.ref, agent.name, request.step),
                key=f"{request.node}:{request.index}/{HookPoint.BEFORE_RESULT}",
                tool=request.name,
                arguments=arguments,
                state=CallState.FAILED if result.failed else CallState.OK,
                result=result.text,
            )
            try:
                reply = await run_hook(hook, moment, state, give_up - asyncio.get_running_loop().time())
            except HookError as error:
                await report_failure(
                    self._pool, request.ref, hook.name, hook.point, request.step, moment.key, str(error)
                )
                continue
            result = replace(result, text=reply.result) if reply.result else result
        return result

    def find(self, agent: AgentDefinition, point: HookPoint) -> Sequence[SessionHook]:
        return [hook for name in agent.hooks if (hook := self._hooks.get(name)) and hook.point is point]


def _common_fields(ref: SessionRef, agent: str, step: int) -> dict[str, Any]:
    return {"session_id": ref.session_id, "conversation_id": ref.conversation_id, "agent": agent, "step": step}


def _key(call: HookCall, place: int) -> str:
    return f"{call.ref.session_id}/{call.line}/{call.step}/{call.point}/{call.node or ''}/{place}"


def _messages(nodes: list[Node], side: str) -> list[ShownMessage]:
    return [
        ShownMessage(
            id=node.id,
            kind=node.kind,
            author=node.author,
            text=text_of(node) if node.side == side else turn_text_of(node),
            tools=[one.name for one in calls_of(node)] if node.side == side else [],
        )
        for node in select_shown(nodes, side)
    ]


# one hook, within its time limit; a failure is reported and changes nothing


class HookError(Exception):
    """A hook failed. The text says how, and contains none of the hook's input."""


async def run_hook(hook: SessionHook, moment: Moment, state: ThreadState, most_s: float | None = None) -> HookReply:
    """The reply of a hook, without secrets; `most_s`: the remaining time, if that is less than the hook's own limit."""
    seconds = hook.timeout_s if most_s is None else min(hook.timeout_s, most_s)
    with hide_in_logs(state.redactor):
        try:
            reply = await run_within(seconds, _run(hook, moment, state))
        except TimeoutError:
            raise HookError(f"It did not finish within {seconds:g} seconds.") from None
        except Exception as error:
            # The error's text may contain secrets, so it goes only to the operator's log.
            activity.logger.exception("the hook %s failed", hook.name)
            raise HookError(f"It failed ({type(error).__name__}); the operator's log has the details.") from None
    texts = {name: getattr(reply, name) for name in ("note", "refusal", "text", "result")}
    shown = {name: clean(state.redactor.text(text)).strip() or None for name, text in texts.items() if text}
    return HookReply(**shown, hide=reply.hide)


async def _run(hook: SessionHook, moment: Moment, state: ThreadState) -> HookReply:
    with hide_in_logs(state.redactor):  # also while it runs after it was abandoned
        return await run_apart(_answer, hook, moment, at_home(state))


async def _answer(hook: SessionHook, moment: Moment, state: ThreadState) -> HookReply:
    return HookReply.model_validate(await hook.run(moment, state) or {}, from_attributes=True)


async def report_failure(
    pool: Pool, ref: SessionRef, name: str, point: HookPoint, step: int, key: str, error: str
) -> None:
    row = EventRow.of(ref, HookFailed(hook=name, point=point, step=step, error=error))
    await events.append(pool, f"hook/{key}/{name}", [row], again=True)
