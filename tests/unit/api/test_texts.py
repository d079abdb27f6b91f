"""Texts that take long to compute, of one tenant and of another."""

import asyncio
import time

from api.views.texts import compute
from domain.ids import current_tenant


async def test_texts_of_another_tenant_wait_for_one_of_many() -> None:
    done: list[str] = []

    async def work(tenant: str) -> None:
        current_tenant.set(tenant)
        await compute(lambda: time.sleep(0.02))
        done.append(tenant)

    await asyncio.gather(*(asyncio.create_task(work(tenant)) for tenant in ["many"] * 8 + ["other"] * 2))
    assert done[:4].count("other") == 2, done
