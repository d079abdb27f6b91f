"""Hooks that run inside a model call or a tool call: they change the model's input, and replies or results before they
are stored."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from activities.hooks.hook import SessionHook
from activities.hooks.hook_runner import HookError, reply_of, report
from activities.thread_state import ThreadState, ThreadStates
from activities.tools.tool import ToolResult
from activities.workspaces import Workspaces
from domain.agents.definition import AgentDefinition
from domain.agents.hook import (
    BeforeReply,
    BeforeResult,
    FilterMessages,
    HookPoint,
    HookReply,
    Moment,
    RequestedCall,
    ShownMessage,
    SystemMessage,
)
from domain.json_object import JsonObject
from domain.messages import Node, calls_of, shown_nodes, text_of, turn_text_of, without
from domain.model_exchange import ModelResponse
from domain.sealing import SealingError
from domain.sessions.step import CallState, ModelCall, ToolRequest
from store import sessions, workspaces
from store.database import Pool
from store.messages import StepFacts

RESULT_SECONDS = 20.0  # for all hooks of one result, because the tool's activity waits for them


class InnerHooks:
    def __init__(self, pool: Pool, hooks: dict[str, SessionHook], states: ThreadStates, space: Workspaces) -> None:
        self._pool = pool
        self._hooks = hooks
        self._states = states
        self._workspaces = space

    async def filtered(
        self, call: ModelCall, agent: AgentDefinition, nodes: list[Node], facts: StepFacts
    ) -> list[Node]:
        """The messages for the model. The newest one always stays, and a call and its results are hidden together. A
        filter that fails hides nothing."""

        def given(common: JsonObject) -> Moment:
            return FilterMessages(**common, messages=_messages(nodes, call.agent.side))

        async for reply in self._replies(call, agent, facts, HookPoint.FILTER_MESSAGES, given):
            nodes = without(nodes, reply.hide)
        return nodes

    async def system(self, call: ModelCall, agent: AgentDefinition, text: str, facts: StepFacts) -> str:
        """The system prompt for the model."""

        def given(common: JsonObject) -> Moment:
            return SystemMessage(**common, text=text)

        async for reply in self._replies(call, agent, facts, HookPoint.AFTER_SYSTEM_MESSAGE, given):
            text = reply.text or text
        return text

    async def replied(self, call: ModelCall, agent: AgentDefinition, turn: ModelResponse, facts: StepFacts) -> str:
        """The text that is stored for a reply."""
        text = turn.answer()

        def given(common: JsonObject) -> Moment:
            calls = [RequestedCall(tool=one.name, arguments=one.arguments) for one in turn.calls]
            return BeforeReply(**common, text=text, calls=calls)

        async for reply in self._replies(call, agent, facts, HookPoint.BEFORE_REPLY, given):
            text = reply.text or text
        return text

    async def _replies(
        self,
        call: ModelCall,
        agent: AgentDefinition,
        facts: StepFacts,
        point: HookPoint,
        given: Callable[[JsonObject], Moment],
    ) -> AsyncIterator[HookReply]:
        """Run the hooks of a model call one after the other; each receives the result of the one before it."""
        hooks = self._of(agent, point)
        session = await sessions.get(self._pool, call.ref.tenant, call.ref.session_id) if hooks else None
        if session is None or session.dry_run:
            return
        version, _ = await workspaces.get(self._pool, call.ref.tenant, session.workspace_id)
        folder = await self._workspaces.ready(call.ref.tenant, session.workspace_id, version)
        key = f"{call.ref.session_id}/{call.line}/{call.step}/{point}/{call.head or ''}"
        common = {
            "session_id": call.ref.session_id,
            "conversation_id": call.ref.conversation_id,
            "agent": agent.name,
            "step": call.step,
            "key": key,
        }
        agents = [*call.above, call.agent]
        for hook in hooks:
            try:
                state = await self._states.load(
                    call.ref, agents, facts.variables, session.workspace_id, folder, f"{key}/{hook.name}"
                )
                yield await reply_of(hook, given(common), state)
            except (HookError, SealingError) as error:
                await report(self._pool, call.ref, hook.name, hook.point, call.step, key, str(error))
        await self._workspaces.keep(call.ref.tenant, session.workspace_id)

    async def stored(
        self, request: ToolRequest, agent: AgentDefinition, arguments: Any, result: ToolResult, state: ThreadState
    ) -> ToolResult:
        """The result to store. If a hook fails, the result stays unchanged."""
        hooks = self._of(agent, HookPoint.BEFORE_RESULT)
        session = await sessions.get(self._pool, request.ref.tenant, request.ref.session_id) if hooks else None
        if session is None or session.dry_run:
            return result
        give_up = asyncio.get_running_loop().time() + RESULT_SECONDS
        for hook in hooks:
            moment = BeforeResult(
                session_id=request.ref.session_id,
                conversation_id=request.ref.conversation_id,
                agent=agent.name,
                step=request.step,
                key=f"{request.node}:{request.index}/{HookPoint.BEFORE_RESULT}",
                tool=request.name,
                arguments=arguments,
                state=CallState.FAILED if result.failed else CallState.OK,
                result=result.text,
            )
            try:
                reply = await reply_of(hook, moment, state, give_up - asyncio.get_running_loop().time())
            except HookError as error:
                await report(self._pool, request.ref, hook.name, hook.point, request.step, moment.key, str(error))
                continue
            result = replace(result, text=reply.result) if reply.result else result
        await self._workspaces.keep(request.ref.tenant, request.workspace_id)
        return result

    def _of(self, agent: AgentDefinition, point: HookPoint) -> Sequence[SessionHook]:
        return [hook for name in agent.hooks if (hook := self._hooks.get(name)) and hook.point is point]


def _messages(nodes: list[Node], side: str) -> list[ShownMessage]:
    return [
        ShownMessage(
            id=node.id,
            kind=node.kind,
            author=node.author,
            text=text_of(node) if node.side == side else turn_text_of(node),
            tools=[one.name for one in calls_of(node)] if node.side == side else [],
        )
        for node in shown_nodes(nodes, side)
    ]
