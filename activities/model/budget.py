"""Bounds of a model call: the tree's budget, the note about the remaining budget, and events that are emitted once."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from activities.model.anthropic import Model
from domain import wire
from domain.events import BudgetLow, EventRow
from domain.limits.anomalies import Thresholds, anomalies
from domain.limits.budget import TTL, CallEstimate, Grant, Share, budget_note, shares, time_of
from domain.model_exchange import ModelRequest
from domain.sessions.session import Limits, Scope, Usage
from domain.sessions.step import ModelCall, Purpose
from domain.sessions.step_writes import OnceEvent
from store import budgets
from store.database import TRANSIENT_ERRORS, Pool, patiently
from store.messages import StepFacts

LOOK_AGAIN_SECONDS = 0.3
PATIENCE = 60.0  # seconds of retries while the database is unreachable


class Bounds:
    def __init__(self, pool: Pool, model: Model, low_percent: int, thresholds: Thresholds) -> None:
        self._pool = pool
        self._model = model
        self._low_percent = low_percent
        self._thresholds = thresholds

    async def reserve(self, call: ModelCall, facts: StepFacts, request: ModelRequest) -> ModelRequest:
        """Reserve what the call may use from the tree's budget, if there is one, and shorten the request to what is
        left. The last summary of a session is never refused, but it is counted."""
        if facts.tree is None or call.purpose is Purpose.SUMMARY:
            return request
        estimate = self._model.estimate(request)
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
        return await patiently(lambda: budgets.reserve(self._pool, call.ref, call.line, estimate), seconds=PATIENCE)

    def budget_note(self, call: ModelCall, facts: StepFacts) -> str:
        """The note about what is left. It comes after everything that can be cached, and is never stored."""
        limits = _limits(facts)
        own = shares(limits, call.step - 1, call.usage, _time(call, limits, facts))
        return budget_note(own, facts.tree.shares() if facts.tree else [])

    def raised(self, facts: StepFacts) -> Limits | None:
        """Limits that were raised while the session was running."""
        limits = _limits(facts)
        return limits if limits.raised else None

    def once(self, call: ModelCall, facts: StepFacts, total: Usage) -> list[OnceEvent]:
        """Events that a session emits at most once each."""
        limits = _limits(facts)
        low = [
            (f"budget_low/{one.kind}", BudgetLow(scope=scope, budget=one.kind, limit=one.limit, left=one.left))
            for one in shares(limits, call.step, total, _time(call, limits, facts))
            if one.low(self._low_percent)
            for scope in (Scope.TREE if one.kind == TTL and one.limit < limits.ttl_ms else Scope.SESSION,)
        ]
        seconds = (datetime.now(UTC) - facts.started_at).total_seconds() if facts.started_at else 0.0
        odd = anomalies(total, call.failed_calls, call.denied_calls, seconds, self._thresholds)
        named = [*low, *((f"anomaly/{one.kind}", one) for one in odd)]
        return [OnceEvent(name=name, event=EventRow.of(call.ref, event)) for name, event in named]


def _limits(facts: StepFacts) -> Limits:
    return Limits.model_validate_json(facts.limits) if facts.limits else Limits()


def _time(call: ModelCall, limits: Limits, facts: StepFacts) -> Share:
    return time_of(limits, facts.created_at, call.deadline, datetime.now(UTC))
