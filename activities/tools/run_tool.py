"""A tool call, from claim to commit: claimed before its effect, fenced by attempt and run.

`RunTool.run_call` is the story; the methods below it are in its order, and then the functions that they use: a place on
the worker, guard, run, what is recorded. The next model call reads the result from the store. Tools do not import this
module; what they may use is in tool.py.
"""

import asyncio
import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from opentelemetry import trace
from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.attempt import (
    call_attempt,
    cancel_requested,
    complete_work,
    retry_if_away,
    run_of,
    send_heartbeats,
    workflow_is_gone,
)
from activities.delegation.messages import Subagents
from activities.egress import Fetcher
from activities.environments import Environments, open_network
from activities.hooks.run_hooks import Hooks
from activities.mcp.mcp_tool import MCP, find_mcp
from activities.model.recorded import RECORDED, original_result
from activities.pull_requests import Repositories, Repository
from activities.requests.approved_files import find_changed, runs_commands
from activities.sandbox import NONE, Commands
from activities.thread_state import ThreadStates
from activities.tools.declared_tools import DECLARED, apply_binding, find_declared
from activities.tools.rules import load_layers
from activities.tools.support.paths import Workspace
from activities.tools.tool import SHOWN, ArtifactFile, Tool, ToolContext, ToolResult, bound_text, clean
from activities.user_code import hide_in_logs, run_within
from activities.workspaces import Workspaces
from domain import events as ev
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.amounts import format_count
from domain.events import EventRow
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.limits import call_digest
from domain.messages import ReplyBody
from domain.pictures import MOST_BYTES, MOST_SHOWN, Facts, NotShown, inspect
from domain.plan import Plan
from domain.policy.rules import Action, Rule, SubjectKind, verdict
from domain.sealing import SealingError
from domain.sessions.input_request import InputRequest, RequestKind, RequestStatus
from domain.sessions.session import (
    CallState,
    Effect,
    PendingCall,
    RemoteCall,
    ToolOutcome,
    ToolRequest,
    form_id,
    preview,
    would_have,
)
from domain.sessions.writes import BudgetUse, NewFile, ToolAttempt, ToolClaim, ToolCommit
from store import files, input_requests, runs, tool_calls
from store.agents import load_view
from store.database import COMMIT_PATIENCE, Pool, patiently
from store.tool_calls import ToolClaimResult
from store.workspaces import Fence

INTERRUPTED = "Interrupted: the session was told to stop while this call ran."
UNKNOWN = "It may have happened in full, in part or not at all. Check before you repeat it."
SUPERSEDED = "A newer attempt holds this call."
BUSY = "Another call is using this workspace and did not end in time. {} was not run; try again."
CHANGED = (
    "The command was approved with other content of files that it names: {}. It was not run. Make the call again, so "
    "that people see what it would run now."
)
UNREADABLE_MS = 60_000  # until a call that continues elsewhere is asked for again, if its secrets cannot be read
PLACE_PATIENCE_S, LOOK_S = 0.5, 0.05  # how long a call without a place holds its slot of the worker, and looks for one
TURN_PATIENCE_S = 120.0  # how long a call waits for its turn in the workspace
GRACE_SECONDS = 8.0  # for a tool that was cancelled; the sandbox takes up to five to end all processes
STOP_SECONDS = 40.0  # for a tool's `stop`, at most: with the grace, less than its activity has


@dataclass(frozen=True)
class ClaimedCall:
    """A call that this attempt has claimed."""

    request: ToolRequest
    attempt: ToolAttempt
    tool: Tool
    claim: ToolClaimResult
    agent: AgentDefinition
    given: JsonObject  # the model's arguments
    approval: InputRequest | None  # None: it is not gated

    @property
    def arguments(self) -> Any:
        """The model's arguments, or those to which an approver changed them."""
        changed = self.approval.answer if self.approval is not None else {}
        return changed.get("arguments", self.given)

    @property
    def change_summary(self) -> str:
        """One line about what is really done, if that may differ from the model's call; else empty."""
        return self.tool.call_summary(self.arguments) if self.approval is not None else ""

    @property
    def fence(self) -> Fence:
        return partial(tool_calls.check_attempt, attempt=self.attempt)


@dataclass
class RunTool:
    """The activities, one per tool, so that the timeline and the metrics name it."""

    _pool: Pool
    _tools: dict[str, Tool]
    _workspaces: Workspaces
    _commands: Commands
    _fetcher: Fetcher
    _subagents: Subagents
    _states: ThreadStates
    _hooks: Hooks
    _environments: Environments
    _repositories: Repositories
    _places: "Places"

    def activities(self) -> list[Callable[..., Any]]:
        own = [tool.name for tool in self._tools.values() if tool.activity is None]
        return [self._activity(name) for name in (*own, "refuse", RECORDED, DECLARED, MCP)]

    def _activity(self, name: str) -> Callable[[ToolRequest], Coroutine[Any, Any, ToolOutcome]]:
        @activity.defn(name=f"tool.{name}")
        async def run_tool(request: ToolRequest) -> ToolOutcome:
            # the place comes before the claim: a call that goes back to the queue has not begun
            async with send_heartbeats(), self._places.take_place(request):
                with retry_if_away():
                    outcome = await self.run_call(request, await self._find_tool(name, request))
                    describe_span(request, outcome)
                    return outcome

        return run_tool

    async def _find_tool(self, name: str, request: ToolRequest) -> Tool | None:
        """The tool of this activity; None if nothing runs: the call was refused, or repeats a recorded result."""
        if name == DECLARED:
            return find_declared(await load_view(self._pool, request.agent), request)
        if name == MCP:
            return find_mcp(await load_view(self._pool, request.agent), request.name)
        return self._tools.get(name)

    async def run_call(self, request: ToolRequest, tool: Tool | None) -> ToolOutcome:
        """The story of a call: claim, validate, guard, run, record, commit."""
        by = call_attempt()
        attempt = ToolAttempt.of(request, run=run_of(request.ref), holder=by.call, attempt=by.attempt)
        claim = await self._claim(request, attempt, tool)
        if not claim.go:
            return earlier_outcome(request, tool, claim)
        assert claim.body is not None  # the node with the call was committed before the call began
        given = claim.body.calls[request.index].arguments
        call = None
        try:
            if tool is not None:
                load = partial(self._load_call, request, attempt, tool, claim, given)
                call = await patiently(load, seconds=COMMIT_PATIENCE)
            result = await (self._result(call) if call else self._find_result(request, claim.body))
            if result.remote is not None:
                if result.remote != claim.remote:
                    await self._hold(attempt, result.remote)
                return pending_outcome(request, result)
            state = state_of(request, result)
        except asyncio.CancelledError:
            if not cancel_requested() or await workflow_is_gone():  # then the end of the session says so
                raise
            remote = await tool_calls.get_remote(self._pool, request.ref.tenant, request.node, request.index)
            if remote is not None:  # the workflow stops it where it continues
                return pending_outcome(request, ToolResult("", remote=remote))
            state, result = CallState.CANCELLED, ToolResult(INTERRUPTED, failed=True)
            if tool is not None and tool.stop is not None and request.effect is Effect.ONCE:  # it was sent elsewhere
                state, result = CallState.UNKNOWN, ToolResult(f"{INTERRUPTED} {UNKNOWN}", failed=True)
        summary = call.change_summary if call else ""
        commit = partial(self._commit, request, attempt, state, result, summary)
        outcome = await complete_work(patiently(commit, seconds=COMMIT_PATIENCE))
        return outcome.model_copy(update={"digest": repetition_digest(request, tool, given, state, result.text)})

    # claim: the store decides who makes the call. A `once` call that an earlier attempt began is never claimed again:
    # nobody knows how far it came, so the answer is the outcome "unknown" instead of a second effect.

    async def _claim(self, request: ToolRequest, attempt: ToolAttempt, tool: Tool | None) -> ToolClaimResult:
        named = tool or self._tools.get(request.name)  # a refused call may have no tool
        kind, asks = tool.kind if tool else None, named is not None and named.asks
        return await tool_calls.claim(self._pool, ToolClaim.by(attempt, request.ref, request.preview, kind, asks=asks))

    async def _load_call(
        self, request: ToolRequest, attempt: ToolAttempt, tool: Tool, claim: ToolClaimResult, given: JsonObject
    ) -> ClaimedCall:
        approval = await load_approval(self._pool, request)
        agent = await load_view(self._pool, request.agent)
        return ClaimedCall(request, attempt, tool, claim, agent, given, approval)

    async def _find_result(self, request: ToolRequest, reply: ReplyBody) -> ToolResult:
        """The result of a call that nothing runs for."""
        if request.refusal is not None:
            return ToolResult(request.refusal, failed=True)
        return await original_result(self._pool, request.ref.tenant, reply, request.index)

    # validate

    async def _result(self, call: ClaimedCall) -> ToolResult:
        """The result for the model. An error in the tool is one too, never a failed activity."""
        tool, place = call.tool, (call.request.ref.tenant, call.request.workspace_id)
        try:
            arguments = tool.input.model_validate(call.arguments)
        except ValidationError as error:
            return ToolResult(tool.explain(error), failed=True)
        if call.claim.dry:
            return ToolResult(would_have(tool.summary(arguments) or tool.name))
        try:
            with contextlib.nullcontext() if tool.bookkeeping else self._workspaces.use(*place):
                return await self._run(call, arguments)
        except runs.REFUSALS:  # the call was closed meanwhile: nobody keeps the files of what came too late
            await self._workspaces.abandon(*place)
            raise

    async def _run(self, call: ClaimedCall, arguments: Any) -> ToolResult:
        """Raises one of runs.REFUSALS if the call was closed meanwhile."""
        claim = call.claim
        try:
            context = await patiently(partial(self._context, call), seconds=COMMIT_PATIENCE)
        except SealingError as error:
            if claim.remote is not None and not call.request.cancel:  # it continues on its server: keep its handle
                return ToolResult("", remote=claim.remote, wait_ms=UNREADABLE_MS)
            text = f"The secrets of this session cannot be read: {error}."
            return ToolResult(text, failed=True, unknown=claim.remote is not None)
        if call.request.cancel and call.tool.stop is not None:
            return await stop_call(call.tool, context)
        result = await run_guarded(call.tool, arguments, context, call_turn(self._pool, call, context.workspace))
        if result.remote is not None:
            return result
        # It has happened: a stop that arrives from here on does not call it interrupted.
        return await complete_work(self._record(call, context, result))

    async def _context(self, call: ClaimedCall) -> ToolContext:
        """What the tool may use, with its workspace restored."""
        request, tool, claim, agent = call.request, call.tool, call.claim, call.agent
        folder = self._workspaces.folder(request.ref.tenant, request.workspace_id)
        if not tool.bookkeeping:  # restoring a workspace would delay the workflow task in which bookkeeping runs
            await self._workspaces.ready(request.ref.tenant, request.workspace_id, claim.workspace_version or 0)
        key, agents = f"{request.node}:{request.index}", [*request.above, request.agent]
        state = await self._states.load(
            request.ref, agents, claim.variables, request.workspace_id, folder, key, call.fence
        )
        environment = repository = None
        if claim.environment is not None:
            environment = await self._environments.open(request.ref, claim.environment)
        if environment is not None:
            state.redactor.add(environment.hidden)
            repository = Repository(self._repositories, request.ref, request.workspace_id, folder, environment)
        network = None
        if environment is not None or agent.network:  # usually not, so that the rules are not loaded for every call
            network = open_network(self._commands, agent, request.sandbox, await self._layers(request), environment)
        return ToolContext(
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
            network=network,
            variables=environment.variables if environment is not None else NONE,
            repository=repository,
            remote=claim.remote,
            skills=agent.skills,
            hold=partial(self._hold, call.attempt),
            answers=await form_answers(self._pool, request, claim.remote) if claim.remote else {},
        )

    async def _permits(self, request: ToolRequest, tool: Tool, subject: str) -> bool:
        return verdict(await self._layers(request), tool, [subject]).action is Action.ALLOW

    async def _layers(self, request: ToolRequest) -> list[list[Rule]]:
        return await load_layers(self._pool, request.ref, [*request.above, request.agent])

    # record

    async def _record(self, call: ClaimedCall, context: ToolContext, result: ToolResult) -> ToolResult:
        """The result to commit: as hooks and the binding of the side leave it, cut to its length."""
        request, tool, agent = call.request, call.tool, call.agent
        hooked = bool(agent.hooks) and not tool.bookkeeping
        if hooked:
            change = partial(self._hooks.change_result, request, agent, call.given, result, context.state)
            result = await patiently(change, seconds=COMMIT_PATIENCE)
        if not request.above and (agent.side_a or agent.side_b):
            result = await apply_binding(agent.side(request.agent.side), request.name, call.given, context, result)
        if tool.bookkeeping:
            return replace(result, text=bound_text(clean(result.text))[0])
        result = replace(result, text=await shorten_output(request, context.workspace, result.text))
        if tool.effect is not Effect.READ or hooked:
            keep = partial(self._workspaces.keep, request.ref.tenant, request.workspace_id, call.fence)
            result = (await patiently(keep, seconds=COMMIT_PATIENCE)).add_to(result)
        return result

    # commit: the result with its effects, files and events in one transaction, or the handle of a call that continues
    # elsewhere. Both are fenced by attempt and run: a worker that was believed dead writes nothing any more.

    async def _hold(self, attempt: ToolAttempt, remote: RemoteCall) -> None:
        await patiently(lambda: tool_calls.hold(self._pool, attempt, remote), seconds=COMMIT_PATIENCE)

    async def _commit(
        self, request: ToolRequest, attempt: ToolAttempt, state: CallState, result: ToolResult, summary: str
    ) -> ToolOutcome:
        result, facts = await check_shown(result)
        saved = await save_artifacts(self._pool, request, result.artifacts)
        shown = [fact.block(file.id, file.name, file.size) for file, fact in zip(saved, facts, strict=True) if fact]
        returned = ev.ToolReturned(tool=request.name, state=state, preview=preview(result.text), rule=request.rule)
        if shown:
            returned = returned.model_copy(update={"files": shown})
        used = result.used
        saved_events = [
            ev.ArtifactSaved(name=file.name, artifact_type=file.type, file_id=file.id, size=file.size, url=file.url)
            for file in saved
            if file.type != SHOWN
        ]
        events: list[ev.Event] = [*result.events, *saved_events, returned]
        commit = ToolCommit(
            **attempt.model_dump(exclude={"tool", "effect"}),
            state=state,
            result=result.text,
            denied=request.refusal is not None,
            rule=str(request.rule) if request.rule else None,
            events=[EventRow.of(request.ref, event, by=attempt.call_attempt) for event in events],
            progress=clean(result.progress) if result.progress else None,
            status_text=result.status_text,
            plan=result.plan,
            files=saved,
            shown=[*result.files, *shown],
            sources=result.sources,
            used=BudgetUse(tokens=used.tokens, cost_usd=used.cost_usd) if used else None,
            usage=used,
            description=summary,
        )
        if not await tool_calls.commit(self._pool, commit):
            raise ApplicationError(SUPERSEDED, type=wire.SUPERSEDED, non_retryable=True)
        outcome = outcome_of(request, state, result.text).model_copy(update={"used": result.used})
        if result.plan is None:
            return outcome
        replanned = any(isinstance(event, ev.Replanning) for event in result.events)
        doing = preview(result.plan.steps[result.plan.current - 1].title, 80)
        return outcome.model_copy(update={"doing": doing, "planned": True, "replanned": replanned})


# a place on the worker, before the claim


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
        deadline = asyncio.get_running_loop().time() + PLACE_PATIENCE_S
        while self._used[tenant] >= self._share(tenant):
            if asyncio.get_running_loop().time() > deadline:
                busy = format_count(self._used[tenant], "call")
                raise ApplicationError(
                    f"This worker runs {busy} of the tenant; this one has not begun.",
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


# guard: the approval, then the turn in the workspace, then the time limit. The turn comes after the approval is read
# and before its files are compared; the limit counts from the turn, so that waiting does not use up the tool's time.


async def load_approval(pool: Pool, request: ToolRequest) -> InputRequest | None:
    """The approval of exactly this call, with which a gated call runs. None if the call is not gated."""
    if request.approval is None:
        return None
    approval = await input_requests.get(pool, request.ref.tenant, request.approval)
    own = request.approval == derive_id(request.node, RequestKind.TOOL_APPROVAL, request.index)
    if not own or approval is None or not (approval.answer or {}).get("approved"):
        raise ApplicationError("This call was not approved.", type=wire.NOT_APPROVED, non_retryable=True)
    return approval


@contextlib.asynccontextmanager
async def call_turn(pool: Pool, call: ClaimedCall, folder: Path) -> AsyncIterator[ToolResult | None]:
    """The call's turn in its workspace, or the result with the reason why it may not run.

    Calls that change the workspace share it. A command that people approved has it exclusively, from the moment its
    files are compared with what people saw, so that no other call can replace one in between.
    """
    request, tool = call.request, call.tool
    reads = tool.effect is Effect.READ and not tool.could_write
    if reads or tool.kind is None or tool.touches == (SubjectKind.HOST,):
        yield None
        return
    approval = call.approval if runs_commands(tool) else None
    async with contextlib.AsyncExitStack() as turn:
        try:
            await turn.enter_async_context(workspace_turn(folder, alone=approval is not None))
        except TimeoutError:
            yield ToolResult(BUSY.format(tool.name), failed=True)
            return
        changed: list[str] = []
        if approval is not None:
            find = partial(find_changed, pool, request.ref.tenant, request.workspace_id, folder, tool, approval)
            changed = await patiently(find, seconds=COMMIT_PATIENCE)
        yield ToolResult(CHANGED.format(", ".join(changed)), failed=True) if changed else None


@contextlib.asynccontextmanager
async def workspace_turn(folder: Path, *, alone: bool) -> AsyncIterator[None]:
    """A turn, shared or alone; TimeoutError if other calls do not end in time. The lock is on the directory, so that it
    also holds between workers of one host, and the system drops that of a worker that dies."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(TURN_PATIENCE_S):
            # no event shows when another process releases it
            while not _try_lock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        yield
    finally:
        os.close(fd)  # this releases the lock


def _try_lock(fd: int, kind: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return True
    return False


# run: a user's code has its own thread (`Tool.apart`). Errors become results, and secrets are removed from the output.


async def run_guarded(
    tool: Tool, arguments: Any, context: ToolContext, turn: AbstractAsyncContextManager[ToolResult | None]
) -> ToolResult:
    """Run a tool when its turn comes. An error before that is not the tool's: it has not begun."""
    async with turn as refusal:
        if refusal is not None:
            return refusal.redact(context.state.redactor)
        run = partial(_within, tool.timeout_s, partial(tool.answer, arguments, context), context)
        return await _caught(tool.name, tool.timeout_s, run, context)


async def stop_call(tool: Tool, context: ToolContext) -> ToolResult:
    """Let a tool stop a call that continues elsewhere. If that fails, the outcome of the call is unknown."""
    assert tool.stop is not None
    seconds = min(tool.timeout_s, STOP_SECONDS)
    run = partial(_within, seconds, partial(tool.stop, context), context)
    return await _caught(f"The stop of {tool.name}", seconds, run, context, unknown=tool.effect is not Effect.READ)


async def _within(seconds: float, run: Callable[[], Awaitable[ToolResult]], context: ToolContext) -> ToolResult:
    async def hidden() -> ToolResult:
        with hide_in_logs(context.state.redactor):  # also while it runs after it was abandoned
            return await run()

    return await run_within(seconds, hidden(), grace=GRACE_SECONDS)


async def _caught(
    what: str, seconds: float, run: Callable[[], Awaitable[ToolResult]], context: ToolContext, *, unknown: bool = False
) -> ToolResult:
    redactor = context.state.redactor
    with hide_in_logs(redactor):
        try:
            result = await run()
        except TimeoutError:
            text = f"{what} did not finish within {seconds:g} seconds."
            result = ToolResult(text, failed=True, unknown=unknown)
        except Exception:
            # An unexpected error may contain secrets, so the model only learns that it failed.
            activity.logger.exception("tool: %s failed unexpectedly", what)
            text = f"{what} failed unexpectedly; the operator's log has the details."
            result = ToolResult(text, failed=True, unknown=unknown)
    return result.redact(redactor)


async def form_answers(pool: Pool, request: ToolRequest, remote: RemoteCall) -> dict[str, JsonObject | None]:
    """People's answers to the forms of a call that continues elsewhere, by key; None if they gave none."""
    found: dict[str, JsonObject | None] = {}
    for number, form in enumerate(remote.forms, start=1):
        request_id = form_id(request.node, request.index, remote.round, number)
        asked = await input_requests.get(pool, request.ref.tenant, request_id)
        found[form.key] = asked.answer if asked and asked.status is RequestStatus.ANSWERED else None
    return found


# what is recorded of a result, and what the workflow learns


async def shorten_output(request: ToolRequest, folder: Path, text: str) -> str:
    """The text for the model. Of one that is too long it is shown both ends, and a file of the workspace has it all."""
    text = clean(text)
    short, cut = bound_text(text)
    if cut:
        path = f".outputs/{request.name}-{request.node[-8:]}-{request.index}.txt"
        await asyncio.to_thread(Workspace(folder).write, path, text.encode())
        short += f"\n[The whole output is in the file {path} of the workspace.]"
    return short


async def check_shown(result: ToolResult) -> tuple[ToolResult, list[Facts | None]]:
    """The result, and of each of its artifacts what the model is shown; the text says what it is not shown, and why."""
    facts: list[Facts | None] = [None] * len(result.artifacts)
    room, lines = MOST_BYTES, [result.text]
    for place, artifact in enumerate(result.artifacts):
        if not artifact.shown:
            continue
        try:
            found = await asyncio.to_thread(inspect, artifact.content)
            if len(artifact.content) > room or len(facts) - facts.count(None) == MOST_SHOWN:
                raise NotShown("a result shows no more")
            room -= len(artifact.content)
            facts[place] = found
        except NotShown as error:
            lines.append(f"[{clean(artifact.name)} is not shown: {error}]")
    kept = [place for place, one in enumerate(result.artifacts) if facts[place] or one.type != SHOWN]
    artifacts = [result.artifacts[place] for place in kept]
    return replace(result, text="\n".join(lines), artifacts=artifacts), [facts[place] for place in kept]


async def save_artifacts(pool: Pool, request: ToolRequest, artifacts: list[ArtifactFile]) -> list[NewFile]:
    """Store the bytes before the transaction, by content, so that a repetition stores nothing twice."""
    if not artifacts:
        return []
    digests = await files.put_blobs(pool, request.ref.tenant, [artifact.content for artifact in artifacts])
    return [
        NewFile(
            id=derive_id(request.node, "artifact", request.index, place),
            sha256=digest,
            size=len(artifact.content),
            name=artifact.name,
            media_type=artifact.media_type,
            type=artifact.type,
            description=artifact.description,
            url=artifact.url,
            path=artifact.path,
        )
        for place, (digest, artifact) in enumerate(zip(digests, artifacts, strict=True))
    ]


def state_of(request: ToolRequest, result: ToolResult) -> CallState:
    if result.unknown:
        return CallState.UNKNOWN
    if not result.failed:
        return CallState.OK
    return CallState.CANCELLED if request.cancel else CallState.FAILED


def outcome_of(request: ToolRequest, state: CallState, text: str, **more: bool) -> ToolOutcome:
    outcome = ToolOutcome(index=request.index, name=request.name, state=state.for_model, preview=preview(text, 160))
    return outcome.model_copy(update=more)


def earlier_outcome(request: ToolRequest, tool: Tool | None, claim: ToolClaimResult) -> ToolOutcome:
    """The outcome of a call that this attempt may not make: it has a result, is unknown, or nothing pays for it."""
    # an attempt whose result was lost may have changed the plan's steps: to ask once more is harmless
    planned = tool is not None and tool.plans
    state, text = claim.state or CallState.UNKNOWN, claim.text or ""
    outcome = outcome_of(request, state, text, spent=claim.spent, planned=planned, replanned=planned)
    return outcome.model_copy(update={"used": claim.usage})


def pending_outcome(request: ToolRequest, result: ToolResult) -> ToolOutcome:
    """The call continues elsewhere; there is nothing to commit yet."""
    remote = result.remote
    assert remote is not None
    pending = PendingCall(wait_ms=result.wait_ms, round=remote.round, forms=len(remote.forms))
    return ToolOutcome(index=request.index, name=request.name, pending=pending)


def repetition_digest(request: ToolRequest, tool: Tool | None, given: JsonObject, state: str, text: str) -> str | None:
    """The digest for loop detection. A recorded result has none, because it arrives sooner than the original."""
    if (tool is None and request.refusal is None) or (tool is not None and tool.polls):
        return None
    # leave out the name of the file for a long text, which differs from call to call
    text = text.replace(request.node[-8:], "")
    return call_digest(request.name, given, state, text)


def describe_span(request: ToolRequest, outcome: ToolOutcome) -> None:
    """Set attributes on the activity's span. Without telemetry this does nothing."""
    trace.get_current_span().set_attributes(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": request.name,
            "gen_ai.tool.call.id": f"{request.node}:{request.index}",
            "gen_ai.conversation.id": request.ref.conversation_id,
            "errand.session.id": request.ref.session_id,
            "errand.step": request.step,
            "errand.tool.state": outcome.state,
        }
    )
