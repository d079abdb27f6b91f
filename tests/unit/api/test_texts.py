"""Texts that take long to compute, of one tenant and of another."""

import asyncio
import time

from api.routes.triggers import fulfils
from api.views.texts import compute
from domain.ids import current_tenant
from domain.triggers import MAX_SEARCHED_CHARS, Condition, ExternalEvent


async def test_texts_of_another_tenant_wait_for_one_of_many() -> None:
    done: list[str] = []

    async def work(tenant: str) -> None:
        current_tenant.set(tenant)
        await compute(lambda: time.sleep(0.02))
        done.append(tenant)

    await asyncio.gather(*(asyncio.create_task(work(tenant)) for tenant in ["many"] * 8 + ["other"] * 2))
    assert done[:4].count("other") == 2, done


async def test_slow_patterns_of_a_trigger_leave_the_event_loop_free() -> None:
    slow = Condition.model_validate({"path": "payload.text", "matches": "[ab]{1,1000}[ab]{1,400}c"})
    text = "ab" * (MAX_SEARCHED_CHARS // 2)
    event = ExternalEvent(id="e", payload={"text": text + "c" * 900_000, "other": text[:-1] + "c"})
    longest, looking = 0.0, asyncio.create_task(fulfils([slow], event))
    while not looking.done():
        began = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - began)
    assert not await looking  # it would match only behind what is searched
    assert longest < 0.3
    there = slow.model_copy(update={"path": "payload.other"})
    other = Condition(path="payload.other", equals="another")
    assert await fulfils([there], event) and not await fulfils([there, other], event) and await fulfils([], event)
