"""Risk triggers of missions: a call that a person has to approve pauses the mission until somebody does."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from domain.errors import Unavailable
from domain.missions import RISK, RiskTrigger, mission_of
from domain.policy.rules import Rule
from domain.schedules import Mission
from domain.sessions.session import SessionRef, ToolCall
from store import missions, schedules, tool_calls
from store.database import Pool
from workflows.client import WorkflowClient


async def judge_risks(
    pool: Pool, tenant: str, layers: list[list[Rule]], calls: list[ToolCall], arguments: list[Any]
) -> list[ToolCall]:
    """The calls; those that match a risk trigger now need an approval. Only sessions of a mission can have any."""
    mission_id = mission_of(layers)
    if mission_id is None or not calls:
        return calls
    mission = await missions.get(pool, tenant, mission_id)
    if mission is None or not mission.bounds.risks:
        return calls
    since = mission.day_start(datetime.now(UTC))
    counts = any(risk.after_calls for risk in mission.bounds.risks)
    called = await tool_calls.calls_of_mission(pool, mission, since) if counts else []
    spent = (await missions.sum_spent(pool, mission, since)).cost_usd
    found: list[ToolCall] = []
    for call, given in zip(calls, arguments, strict=True):
        risk = next((one for one in mission.bounds.risks if _hits(one, call, given, called, spent)), None)
        called.append((call.name, given))
        if risk is None or call.refusal is not None:
            found.append(call)
            continue
        reason = f"{RISK}{risk.text}: {call.name}: {call.preview}"
        if not mission.paused:  # a mission that a person paused stays paused, whatever is approved
            await schedules.set_paused(pool, tenant, mission.id, True, "errand", reason[:500])
        found.append(call.model_copy(update={"ask": True}))
    return found


def _hits(risk: RiskTrigger, call: ToolCall, arguments: Any, called: list[tuple[str, Any]], spent: float) -> bool:
    before = sum(risk.concerns(*one) for one in called)
    return risk.concerns(call.name, arguments) and before >= risk.after_calls and spent >= risk.after_usd


async def find_risk(
    pool: Pool, tenant: str, layers: list[list[Rule]], tool: str, arguments: Any
) -> tuple[Mission, RiskTrigger] | None:
    """The mission that such a call has paused, and its risk trigger; None if only a rule asks for the approval."""
    mission_id = mission_of(layers)
    mission = await missions.get(pool, tenant, mission_id) if mission_id is not None else None
    if mission is None or not mission.paused_by_risk:
        return None
    return next(((mission, one) for one in mission.bounds.risks if one.concerns(tool, arguments)), None)


async def resume_mission(pool: Pool, conversations: WorkflowClient, ref: SessionRef, layers: list[list[Rule]]) -> None:
    """Resume the mission of a session with these rules, after a person approved the call."""
    mission_id = mission_of(layers)
    woken = await missions.resume(pool, ref.tenant, mission_id, after=RISK) if mission_id is not None else []

    async def reopen(conversation_id: str) -> None:
        with suppress(Unavailable):  # a sweep reopens it later
            await conversations.reopen(ref.tenant, conversation_id, reload=True)

    await asyncio.gather(*map(reopen, woken))
