"""A model step, from the reference to the context to the committed reply.

`CallModel._reply` is the story: begin_step, ask, commit_step. A handler (handlers/) and the platform's own activation
of subagents (`Activate`, delegation/spawn.py) take a step in the same way and replace `ask`. Then what bounds a call,
and its span.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from errand.models import Rerun
from opentelemetry import trace
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import (
    call_attempt,
    cancel_requested,
    complete_work,
    retry_if_away,
    run_of,
    send_heartbeats,
)
from activities.events import EventWriter
from activities.hooks.run_hooks import Hooks
from activities.model import recorded, reply
from activities.model.models import MALFORMED, MOST_MALFORMED, UNAVAILABLE, Models, retry_pause
from activities.model.reply import Contexts
from activities.skills import for_tools
from activities.tools.offered import Offered, ReplyPrompt, Toolbox
from activities.tools.rules import RULES, judge_reply
from domain import events as ev
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.agents.system_prompt import system_prompt
from domain.conversations.subagents import registry_message
from domain.events import BudgetLow, CallAttempt, EventRow
from domain.limits import TTL, CallEstimate, Grant, Share, budget_note, find_anomalies, shares, time_of
from domain.messages import (
    CHECKPOINT_REQUEST,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    Node,
    TextBlock,
    files_in,
    render_messages,
    shorten_results,
)
from domain.pictures import choose_shown
from domain.policy.rules import Rule
from domain.sessions.new_session import apply_terms
from domain.sessions.session import (
    Limits,
    ModelCall,
    ModelReply,
    Purpose,
    RareFacts,
    RecordedStop,
    Scope,
    StopReason,
    ToolCall,
    Usage,
    preview,
)
from domain.sessions.writes import OnceEvent
from store import budgets, files, messages
from store.agents import load_view
from store.database import COMMIT_PATIENCE, TRANSIENT_ERRORS, Pool, patiently
from store.messages import StepFacts

LOOK_AGAIN_SECONDS = 0.3
PATIENCE = 60.0  # seconds of retries while the database is unreachable
ATTEMPTS_BEFORE_FALLBACK = 3  # that failed with one model


@dataclass
class CallModel:
    platform_alone = False  # true if replies are the platform's own, so that queued calls can be added to them

    _pool: Pool
    _models: Models
    _events: EventWriter
    _contexts: Contexts
    toolbox: Toolbox
    _bounds: "Bounds"
    _hooks: Hooks

    @activity.defn(name="call_model")
    async def call_model(self, call: ModelCall) -> ModelReply:
        return await self.reply_to(call)

    async def reply_to(self, call: ModelCall) -> ModelReply:
        by = call_attempt()
        async with send_heartbeats():
            with retry_if_away():
                agents = [await load_view(self._pool, agent) for agent in (*call.above, call.agent)]
            return await self._reply(self.show_as(call, agents[-1]), by, agents)

    async def _reply(self, call: ModelCall, by: CallAttempt, agents: list[AgentDefinition]) -> ModelReply:
        """The story of a step: begin it, read its context, ask, commit. The reply is committed with everything that it
        changes in one transaction: an attempt that dies before that leaves nothing, and the one after it asks again; if
        it dies after that, the next attempt finds the reply when it begins."""
        # Temporal's times and the time passed here: a worker's clock may be wrong.
        left = (call.cut_at - activity.info().started_time).total_seconds() if call.cut_at else None
        cut_at = asyncio.get_running_loop().time() + left if left is not None else None
        with retry_if_away():
            facts = await messages.begin_step(
                self._pool, reply.begin_write(call, by, self._models.price_list(call.model))
            )
            if facts.reply is not None:  # an earlier attempt committed it, and its result was lost
                return ModelReply.model_validate_json(facts.reply)
            if facts.cancel_requested and call.purpose is Purpose.TURN:
                stop = RecordedStop.model_validate_json(facts.cancel_requested)
                raise ApplicationError(stop.by, stop.reason, type=wire.CANCEL_REQUESTED, non_retryable=True)
            call = call.model_copy(update={"take": [message.id for message in facts.inbox]})  # the rows decide
            agent = apply_terms(agents[-1], None if call.above else facts.task_terms)
            context = await self._contexts.load(call.ref, call.line, call.head)
            opening = await messages.prompt(self._pool, call.ref.tenant, call.opening) if call.opening else ""
            layers = [*(one.rules for one in agents), *RULES.validate_json(facts.rules)]
            tools = await self.offer_tools(call, agents, layers, facts)
        prelude = reply.build_prelude(call, context, facts, opening)
        rerun = Rerun.model_validate_json(facts.rerun) if facts.rerun else None
        if rerun is not None and rerun.recorded:
            played = await recorded.play_reply(self._pool, call, rerun)
            speaker = agent.speaker(call.agent.side)
            nodes = prelude + recorded.build_nodes(call, speaker, context + prelude, played)
            calls = recorded.judge_recorded(self.toolbox.tools, tools, played, layers, rerun, facts)  # by today's rules
            rare = RareFacts(recorded=played.usage, continues=played.continues, ends=played.body.ends)
            return await self._commit(call, by, context, nodes, calls, [], played.turn, rare)
        prompt = ReplyPrompt(call, agent, context + prelude, tools, facts)
        turn = await self._ask_until(cut_at, prompt)
        if agent.hooks:
            await self._before_reply(prompt, turn)

        async def settle() -> ModelReply:
            nodes = prelude + reply.build_reply(call, agent, context + prelude, turn, facts)
            judging = (self._pool, call.ref, self.toolbox.tools, tools, layers, turn.calls, facts.may_ask)
            judged = await judge_reply(*judging) if call.purpose is Purpose.TURN else []
            once = self._bounds.once(call, facts, call.usage.plus(turn.usage))
            misfit = await reply.find_misfit(agent, call, turn)
            rare = RareFacts(misfit=misfit, ends=turn.ends, raised=self._bounds.find_raised(facts))
            return await self._commit(call, by, context, nodes, judged, once, turn, rare)

        return await complete_work(settle())  # it was paid for: a stop that arrives from here on does not lose it

    # ask

    async def _ask_until(self, cut_at: float | None, prompt: ReplyPrompt) -> ModelResponse:
        """The reply: of the platform if tools are queued, else of the model. A stop, or the time at which the call is
        cut, leaves the part that had arrived."""
        call, facts, turn = prompt.call, prompt.facts, ModelResponse()
        if prompt.agent.hooks:
            with retry_if_away():
                prompt = replace(prompt, nodes=await self._hooks.filter_messages(prompt))
        limit = asyncio.timeout_at(cut_at)
        try:
            if queued := reply.find_queued_calls(call, facts):
                turn.content += queued
                turn.immediate, turn.stop_reason = True, StopReason.TOOL_CALLS
            if not queued or self.platform_alone:
                async with limit:
                    await self.ask(prompt, turn)
        except asyncio.CancelledError:
            if not cancel_requested():
                raise
            reply.cut_reply(turn)
        except Exception as error:
            if not limit.expired():
                await self._bounds.release(call, facts)
                raise await self.failure(call, activity.info().attempt, error) from None
            reply.cut_reply(turn)
        return turn

    def show_as(self, call: ModelCall, agent: AgentDefinition) -> ModelCall:
        """The call as its events and messages describe it."""
        return call

    async def offer_tools(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        return await self.toolbox.offer_tools(call, agents, layers, facts)

    async def ask(self, prompt: ReplyPrompt, turn: ModelResponse) -> None:
        call, agent, tools, facts = prompt.call, prompt.agent, prompt.tools, prompt.facts
        compacts, takes_turn = call.purpose is Purpose.COMPACT, call.purpose is Purpose.TURN
        shown = shorten_results(prompt.nodes, 2_000) if compacts else prompt.nodes
        given = facts.arguments if call.line == "main" else None  # an inline line has no creation arguments
        system = system_prompt(agent, facts.variables, call.agent.side, given)
        if agent.hooks:
            with retry_if_away():
                system = await self._hooks.change_system(prompt, system)
        terms = facts.task_terms if takes_turn and not call.above else None
        settings = (terms and terms.model_settings) or ModelSettings()
        messages = render_messages(shown, call.model, call.agent.side)
        if facts.briefing is not None and messages and not compacts and (text := for_tools(facts.briefing, tools)):
            messages[0].content.insert(0, TextBlock(text=text))  # a request begins with the user
        request = ModelRequest(
            model=call.model,
            max_tokens=agent.max_tokens,
            system=system,
            messages=messages,
            notes=[CHECKPOINT_REQUEST] if compacts else self._notes(call, facts) if takes_turn else [],
            tools=[definition for _, definition in tools.values()] if takes_turn else [],
            settings=settings.for_reply(call.step, tools),
            thinking_tokens=settings.thinking_tokens(agent.thinking_tokens or 0) if takes_turn else 0,
            cached=not compacts,
            output_schema=agent.output_schema if takes_turn and not agent.dual else None,
        )
        if not compacts and (sent := files_in([block for message in messages for block in message.content])):
            chosen = choose_shown(sent, pdfs=self._models.vendor(call.model)[0].pdfs)
            with retry_if_away():
                contents = await files.contents(self._pool, call.ref.tenant, [file.file_id for file in chosen])
            request = replace(request, files=contents)
        request = await self._bounds.reserve(call, facts, request)

        by = call_attempt()

        def emit(event: ev.Event) -> None:
            if not compacts and not agent.whole_replies:
                self._events.put(call.ref, event, by)

        await self._models.ask(
            request,
            turn,
            on_text=lambda text: emit(ev.MessageDelta(step=call.step, text=text)),
            on_thinking=lambda text: emit(ev.ThinkingDelta(step=call.step, text=text)),
        )

    def _notes(self, call: ModelCall, facts: StepFacts) -> list[str]:
        notes = [self._bounds.budget_note(call, facts)]
        if facts.registry and call.line == "main":
            notes.append(registry_message(facts.registry))
        return notes

    # commit

    async def _before_reply(self, prompt: ReplyPrompt, turn: ModelResponse) -> None:
        """Let hooks change a reply before it is stored. A reply that a stop cut off is not shown to them. The reply was
        paid for: if the database is unreachable or a stop arrives, it is stored unchanged."""
        if prompt.call.purpose is not Purpose.TURN or turn.immediate or turn.stop_reason is StopReason.INTERRUPTED:
            return
        try:
            said = await patiently(lambda: self._hooks.change_reply(prompt, turn), seconds=COMMIT_PATIENCE)
        except asyncio.CancelledError:
            if not cancel_requested():
                raise
        else:
            turn.replace_text(said)

    async def _commit(
        self,
        call: ModelCall,
        by: CallAttempt,
        context: list[Node],
        nodes: list[Node],
        calls: list[ToolCall],
        once: list[OnceEvent],
        turn: ModelResponse,
        rare: RareFacts,
    ) -> ModelReply:
        """Write prelude, reply and their events to the tree in one statement, after the pieces of its text."""
        takes_turn = call.purpose is Purpose.TURN
        written = ModelReply(
            head=(nodes or context)[-1].id,
            stop_reason=turn.stop_reason or StopReason.ANSWERED,
            calls=calls,
            usage=turn.usage,
            full=takes_turn and not self.platform_alone and self._models.nearly_full(call.model, turn.usage),
            preview=preview(turn.answer()),
            interrupted=turn.stop_reason is StopReason.INTERRUPTED,
            **dict(rare),
        )
        describe_span(call, turn.usage)
        commit = reply.commit_write(call, by, nodes, written, turn, once)
        await self._events.flush()
        committed = await patiently(lambda: messages.commit_step(self._pool, commit), seconds=COMMIT_PATIENCE)
        if committed.head == written.head:
            self._contexts.remember(call.ref, call.line, context + nodes)
        return committed

    # fail: Temporal repeats the activity, or the workflow takes another model, or the session ends with the reason

    async def failure(self, call: ModelCall, attempt: int, error: Exception) -> ApplicationError:
        """Decide what Temporal should do about a failed call. Watchers see a retry before its pause begins."""
        failure = await self._models.failure(error, call.model)
        stuck = failure.type in UNAVAILABLE or failure.of_provider
        hopeless = failure.of_provider and self._models.same_provider(call.model, call.fallback or call.model)
        if call.fallback and not hopeless and (stuck or (failure.retryable and attempt >= ATTEMPTS_BEFORE_FALLBACK)):
            return ApplicationError(failure.message, type=wire.MODEL_UNAVAILABLE, non_retryable=True)
        if not failure.retryable or (failure.type == MALFORMED and attempt >= MOST_MALFORMED):
            return ApplicationError(failure.message, type=failure.type, non_retryable=True)
        wait = timedelta(seconds=retry_pause(attempt, failure))
        event = ev.ModelRetry(
            step=call.step,
            attempt=attempt,
            model=call.model,
            reason=failure.message,
            next_at=datetime.now(UTC) + wait,
        )
        try:
            await self._events.flush(seconds=2)
            await messages.note_retry(self._pool, EventRow.of(call.ref, event, by=call_attempt()))
        except TRANSIENT_ERRORS:
            activity.logger.warning("the retry could not be shown: the database is unavailable")
        return ApplicationError(failure.message, type=failure.type, next_retry_delay=wait)


# bounds: the tree's budget, the note about what is left, and events that a session emits once


@dataclass
class Bounds:
    _pool: Pool
    _models: Models

    async def reserve(self, call: ModelCall, facts: StepFacts, request: ModelRequest) -> ModelRequest:
        """Reserve what the call may use from the tree's budget, if there is one, and shorten the request to what is
        left. The last summary of a session is never refused, but it is counted."""
        if facts.tree is None or call.purpose is Purpose.SUMMARY:
            return request
        estimate = self._models.estimate(request)
        given = await self._reserved(call, estimate)
        while given.wait:  # other calls hold reservations that they may not need
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            given = await self._reserved(call, estimate)
        if given.spent:
            detail = f"The budget of {given.spent} that this session shares with its tree is spent."
            raise ApplicationError(detail, given.spent, type=wire.BUDGET_SPENT, non_retryable=True)
        if given.output_tokens < request.output_tokens:
            # thinking would need more than is left
            return replace(request, max_tokens=given.output_tokens, thinking_tokens=0)
        return request

    async def release(self, call: ModelCall, facts: StepFacts) -> None:
        """Release the reservation of a failed call, which may wait long for its next attempt."""
        if facts.tree is not None:
            with contextlib.suppress(*TRANSIENT_ERRORS):
                await budgets.release(self._pool, call.ref, call.line)

    async def _reserved(self, call: ModelCall, estimate: CallEstimate) -> Grant:
        place = self._pool, call.ref, call.line, estimate, run_of(call.ref)
        return await patiently(lambda: budgets.reserve(*place), seconds=PATIENCE)

    def budget_note(self, call: ModelCall, facts: StepFacts) -> str:
        """The note about what is left. It comes after everything that can be cached, and is never stored."""
        limits = _limits(facts)
        own = shares(limits, call.step - 1, call.usage, _time(call, limits, facts))
        return budget_note(own, facts.tree.shares() if facts.tree else [])

    def find_raised(self, facts: StepFacts) -> Limits | None:
        """Limits that were raised while the session was running."""
        limits = _limits(facts)
        return limits if limits.raised else None

    def once(self, call: ModelCall, facts: StepFacts, total: Usage) -> list[OnceEvent]:
        """Events that a session emits at most once each."""
        limits = _limits(facts)
        low = [
            (f"budget_low/{one.kind}", BudgetLow(scope=scope, budget=one.kind, limit=one.limit, left=one.left))
            for one in shares(limits, call.step, total, _time(call, limits, facts))
            if one.low
            for scope in (Scope.TREE if one.kind == TTL and one.limit < limits.ttl_ms else Scope.SESSION,)
        ]
        seconds = (datetime.now(UTC) - facts.started_at).total_seconds() if facts.started_at else 0.0
        odd = find_anomalies(total, call.failed_calls, call.denied_calls, seconds)
        named = [*low, *((f"anomaly/{one.kind}", one) for one in odd)]
        return [OnceEvent(name=name, event=EventRow.of(call.ref, event)) for name, event in named]


def _limits(facts: StepFacts) -> Limits:
    return Limits.model_validate_json(facts.limits) if facts.limits else Limits()


def _time(call: ModelCall, limits: Limits, facts: StepFacts) -> Share:
    return time_of(limits, facts.created_at, call.deadline, datetime.now(UTC))


def describe_span(call: ModelCall, usage: Usage) -> None:
    """Set attributes on the activity's span; the model's client has its own span inside it."""
    trace.get_current_span().set_attributes(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": call.agent.name,
            "gen_ai.agent.version": str(call.agent.version),
            "gen_ai.conversation.id": call.ref.conversation_id,
            "errand.session.id": call.ref.session_id,
            "errand.step": call.step,
            "errand.cost_usd": usage.cost_usd or 0.0,
        }
    )
