"""run_tool: one tool call, claimed before its effect and fenced by attempt. The next model call reads its result."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.delegation.subagents import Subagents
from activities.hooks.inner_hooks import InnerHooks
from activities.mcp.mcp_tool import MCP, find_mcp
from activities.model.recorded import RECORDED, result_without_tool
from activities.runtime.database_away import retried_if_away
from activities.runtime.definitions import Definitions
from activities.runtime.heartbeat import cancel_requested, completed, heartbeating, workflow_is_gone
from activities.runtime.session_run import call_attempt, run_of
from activities.runtime.spans import tool_called
from activities.runtime.thread_state import ThreadStates
from activities.runtime.workspaces import Workspaces
from activities.sandbox import Commands, NetworkPolicy
from activities.tools.declared_tools import DECLARED, find_declared, with_binding
from activities.tools.guarded_run import approval_of, call_turn, guarded, stopped
from activities.tools.outcomes import (
    form_answers,
    outcome_of,
    pending_outcome,
    repetition_digest,
)
from activities.tools.rules import Rulebook
from activities.tools.support.egress import Fetcher
from activities.tools.support.long_output import spilled
from activities.tools.support.output import bounded, clean
from activities.tools.tool import Tool, ToolContext, ToolResult
from activities.tools.tool_commits import ToolCommits
from domain.agents.definition import AgentDefinition
from domain.amounts import counted
from domain.json_object import JsonObject
from domain.messages import ReplyBody
from domain.plan import Plan
from domain.policy.rules import Action, Rule, verdict
from domain.sealing import SealingError
from domain.sessions.effects import would_have
from domain.sessions.step import CallState, Effect, ToolOutcome, ToolRequest
from domain.sessions.tool_writes import ToolAttempt, ToolClaim
from store import tool_calls
from store.database import Pool
from store.tool_calls import ToolClaimResult

INTERRUPTED = "Interrupted: the session was told to stop while this call ran."
UNKNOWN = "It may have happened in full, in part or not at all. Check before you repeat it."
UNREADABLE_MS = 60_000  # until a call that continues elsewhere is asked for again, if its secrets cannot be read

PATIENCE_S, LOOK_S = 0.5, 0.05  # how long a call without a place holds its slot of the worker, and looks for one


class Places:
    """The calls that this worker runs at a time, shared between tenants: each may have as many as leave the same number
    for every other tenant that runs some here, and for one more that may come; one at least, even if all are used."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._used: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def take_place(self, request: ToolRequest) -> AsyncIterator[None]:
        """Hold a place of the tenant. A call that gets none goes back to Temporal's queue, where it holds no slot."""
        tenant, info = request.ref.tenant, activity.info()
        if info.is_local or request.cancel:
            yield
            return
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while self._used[tenant] >= self._share(tenant):
            if asyncio.get_running_loop().time() > deadline:
                raise ApplicationError(
                    f"This worker runs {counted(self._used[tenant], 'call')} of the tenant; this one has not begun.",
                    next_retry_delay=timedelta(seconds=min(info.attempt, 5)),
                    category=ApplicationErrorCategory.BENIGN,
                )
            await asyncio.sleep(LOOK_S)
        self._used[tenant] += 1
        try:
            yield
        finally:
            self._used[tenant] -= 1
            self._used += Counter()  # forgets tenants without a call

    def _share(self, tenant: str) -> int:
        if self._used.total() >= self._places:
            return 1
        return max(1, self._places // (len(self._used.keys() | {tenant}) + 1))


class RunTool:
    def __init__(
        self,
        pool: Pool,
        tools: dict[str, Tool],
        definitions: Definitions,
        workspaces: Workspaces,
        commands: Commands,
        fetcher: Fetcher,
        subagents: Subagents,
        rulebook: Rulebook,
        states: ThreadStates,
        hooks: InnerHooks,
        places: int,
    ) -> None:
        self._places = Places(places)
        self._pool = pool
        self._tools = tools
        self._definitions = definitions
        self._workspaces = workspaces
        self._commands = commands
        self._fetcher = fetcher
        self._subagents = subagents
        self._rulebook = rulebook
        self._states = states
        self._hooks = hooks
        self._commits = ToolCommits(pool)

    def activities(self) -> list[Callable[..., Any]]:
        """One registered activity per tool, so that the timeline and the metrics name it."""
        own = [tool.name for tool in self._tools.values() if tool.activity is None]
        return [self._named(name) for name in (*own, "refuse", RECORDED, DECLARED, MCP)]

    def _named(self, name: str) -> Callable[[ToolRequest], Coroutine[Any, Any, ToolOutcome]]:
        @activity.defn(name=f"tool.{name}")
        async def run_tool(request: ToolRequest) -> ToolOutcome:
            async with heartbeating(), self._places.take_place(request):  # before the claim, which only one attempt has
                with retried_if_away():
                    tool = self._tools.get(name)
                    if name == DECLARED:
                        tool = find_declared(await self._definitions.load(request.agent), request)
                    elif name == MCP:
                        tool = find_mcp(await self._definitions.load(request.agent), request.name)
                    return tool_called(request, await self._run(request, tool))

        return run_tool

    async def _run(self, request: ToolRequest, tool: Tool | None) -> ToolOutcome:
        by = call_attempt()
        attempt = ToolAttempt.of(request, run=run_of(request.ref), holder=by.call, attempt=by.attempt)
        named = tool or self._tools.get(request.name)  # a refused call may have no tool
        kind, asks = tool.kind if tool else None, named is not None and named.asks
        wanted = ToolClaim.by(attempt, request.ref, request.preview, kind, asks=asks)
        claim = await tool_calls.claim(self._pool, wanted)
        if not claim.go:
            # an attempt whose result was lost may have changed the plan's steps: to ask once more is harmless
            planned = tool is not None and tool.plans
            return outcome_of(
                request,
                claim.state or CallState.UNKNOWN,
                claim.text or "",
                spent=claim.spent,
                planned=planned,
                replanned=planned,
            )
        assert claim.body is not None  # the node with the call was committed before the call began
        given = claim.body.calls[request.index].arguments
        done = await self._done(request, tool, given)
        try:
            result = await self._do(request, attempt, tool, claim, claim.body)
            if result.remote is not None:
                if result.remote != claim.remote:
                    await self._commits.hold(attempt, result.remote)
                return pending_outcome(request, result)
            state = CallState.FAILED if result.failed else CallState.OK
            state = CallState.CANCELLED if request.cancel and result.failed else state
            state = CallState.UNKNOWN if result.unknown else state
        except asyncio.CancelledError:
            if not cancel_requested() or await workflow_is_gone():  # then the end of the session says so
                raise
            remote = await tool_calls.remote(self._pool, request.ref.tenant, request.node, request.index)
            if remote is not None:  # the workflow stops it where it continues
                return pending_outcome(request, ToolResult("", remote=remote))
            state, result = CallState.CANCELLED, ToolResult(INTERRUPTED, failed=True)
            if tool is not None and tool.stop is not None and request.effect is Effect.ONCE:  # it was sent elsewhere
                state, result = CallState.UNKNOWN, ToolResult(f"{INTERRUPTED} {UNKNOWN}", failed=True)
        outcome = await completed(self._commits.commit(request, attempt, state, result, done))
        return outcome.model_copy(update={"digest": repetition_digest(request, tool, given, state, result.text)})

    async def _do(
        self, request: ToolRequest, attempt: ToolAttempt, tool: Tool | None, claim: ToolClaimResult, reply: ReplyBody
    ) -> ToolResult:
        """Run the tool. An error in the tool is a result for the model, never a failed activity."""
        agent = await self._definitions.load(request.agent)
        if tool is None:
            return await result_without_tool(self._pool, request, reply)
        given = reply.calls[request.index].arguments
        try:
            arguments = tool.input.model_validate(await self._arguments(request, given))
        except ValidationError as error:
            return ToolResult(tool.explain(error), failed=True)
        if claim.dry:
            return ToolResult(would_have(tool.summary(arguments) or tool.name))
        folder = self._workspaces.folder(request.ref.tenant, request.workspace_id)
        if not tool.bookkeeping:  # restoring a workspace would delay the workflow task in which bookkeeping runs
            await self._workspaces.ready(request.ref.tenant, request.workspace_id, claim.workspace_version or 0)
        key, agents = f"{request.node}:{request.index}", [*request.above, request.agent]
        try:
            state = await self._states.load(request.ref, agents, claim.variables, request.workspace_id, folder, key)
        except SealingError as error:
            if claim.remote is not None and not request.cancel:  # it continues on its server: keep its handle
                return ToolResult("", remote=claim.remote, wait_ms=UNREADABLE_MS)
            text = f"The secrets of this session cannot be read: {error}."
            return ToolResult(text, failed=True, unknown=claim.remote is not None)
        context = ToolContext(
            ref=request.ref,
            agent=agent.name,
            workspace=folder,
            key=key,
            again=claim.again,
            plan=Plan.model_validate_json(claim.plan) if claim.plan else None,
            sandbox=self._commands.sandbox,
            limits=self._commands.limits,
            fetcher=self._fetcher,
            subagents=self._subagents,
            state=state,
            permits=partial(self._permits, request, tool),
            network=await self._network(request, agent),
            remote=claim.remote,
            hold=partial(self._commits.hold, attempt),
            answers=await form_answers(self._pool, request, claim.remote) if claim.remote else {},
        )
        if request.cancel and tool.stop is not None:
            return await stopped(tool, context)
        result = await guarded(tool, arguments, context, call_turn(self._pool, request, tool, folder))
        if result.remote is not None:
            return result
        # It has happened: a stop that arrives from here on does not call it interrupted.
        finished = await completed(self._finished(request, tool, agent, given, context, result))
        return finished.replaced(changed=context.state.changed)

    async def _finished(
        self,
        request: ToolRequest,
        tool: Tool,
        agent: AgentDefinition,
        given: JsonObject,
        context: ToolContext,
        result: ToolResult,
    ) -> ToolResult:
        """The result to record: as hooks and the binding of the side leave it, cut to its length."""
        folder = context.workspace
        if not tool.bookkeeping:
            result = await self._hooks.stored(request, agent, given, result, context.state)
        if not request.above:
            result = await with_binding(agent.side(request.agent.side), request.name, given, context, result)
        if tool.bookkeeping:
            return result.replaced(text=bounded(clean(result.text))[0])
        result = result.replaced(text=await spilled(request, folder, result.text))
        if tool.effect is not Effect.READ:
            report = await self._workspaces.keep(request.ref.tenant, request.workspace_id)
            result = report.added_to(result)
        return result

    async def _arguments(self, request: ToolRequest, given: JsonObject) -> Any:
        """The model's arguments, or those to which an approver changed them."""
        approval = await approval_of(self._pool, request)
        if approval is not None and "arguments" in approval.answer:
            return approval.answer["arguments"]
        return given

    async def _done(self, request: ToolRequest, tool: Tool | None, given: JsonObject) -> str:
        """One line about what is really done, if that may differ from the model's call; else empty."""
        if tool is None or request.approval is None:
            return ""
        return tool.call_summary(await self._arguments(request, given))

    async def _permits(self, request: ToolRequest, tool: Tool, subject: str) -> bool:
        return verdict(await self._layers(request), tool, [subject]).action is Action.ALLOW

    async def _network(self, request: ToolRequest, agent: AgentDefinition) -> NetworkPolicy | None:
        if not self._commands.networked(agent, request.sandbox):
            return None  # the usual case, so that the rules are not loaded for every call
        return self._commands.network(agent, request.sandbox, await self._layers(request))

    async def _layers(self, request: ToolRequest) -> list[list[Rule]]:
        return await self._rulebook.layers(request.ref, [*request.above, request.agent])
