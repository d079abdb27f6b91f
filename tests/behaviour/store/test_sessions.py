"""Sessions: they end once, and an accepted cancel leaves no other end."""

import asyncio
from typing import Any

import pytest

from domain.events import ENDED, CancelRequested
from domain.sessions.session import Reason, SessionRef, Usage
from store import endings, sessions
from store.database import Pool
from store.events import to_row
from tests.behaviour.store.conftest import Accept


def ending(ref: SessionRef, reason: Reason) -> dict[str, Any]:
    event = ENDED[reason.status](status=reason.status, reason=reason, partial=False, usage=Usage())
    return {
        "tenant": ref.tenant,
        "session_id": ref.session_id,
        "status": reason.status,
        "reason": reason,
        "partial": False,
        "output": f"ended by {reason}",
        "head": None,
        "version": 9,
        "nodes": [],
        "events": [to_row(ref, event)],
    }


async def cancel(pool: Pool, ref: SessionRef) -> bool:
    wish = {"reason": "caller_cancel", "by": "x", "note": "", "at": "2026-01-01T00:00:00Z"}
    event = to_row(ref, CancelRequested(reason=Reason.CALLER_CANCEL, by="x"))
    return await sessions.request_cancel(pool, ref, wish, event)


@pytest.mark.proves("F-14", "S1-18")
async def test_a_session_ends_once(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    reasons = [Reason.GOAL_REACHED, Reason.ERROR, Reason.LOST, Reason.TTL]
    stands = await asyncio.gather(*(endings.finish(pool, ending(ref, reason)) for reason in reasons))
    assert len({answer["reason"] for answer in stands}) == 1
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and row.reason == stands[0]["reason"] and row.output == f"ended by {row.reason}"
    assert not await cancel(pool, ref)


@pytest.mark.proves("F-14")
async def test_an_accepted_cancel_leaves_one_end(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    assert await cancel(pool, ref)
    assert not await cancel(pool, ref)  # noted once
    assert "cancel_requested" in await endings.finish(pool, ending(ref, Reason.GOAL_REACHED))
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and not row.status.terminal
    assert (await endings.finish(pool, ending(ref, Reason.CALLER_CANCEL)))["status"] == "cancelled"


async def test_tenants_do_not_see_each_other(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    assert await sessions.get(pool, "somebody else", ref.session_id) is None
    assert ref.session_id not in [row.id for row in await sessions.find(pool, "somebody else")]
