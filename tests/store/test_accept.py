"""Sessions of one conversation that are accepted at the same time wait for each other, and none is refused for it."""

import asyncio
from datetime import UTC, datetime, timedelta

from domain.ids import new_id
from domain.session import Limits
from store import accepting
from store.accepting import Accepted
from store.database import Pool
from tests.store.conftest import Accept


async def test_many_at_once(pool: Pool, accept: Accept) -> None:
    root = await accept()

    async def queue() -> Accepted:
        document = {
            "id": new_id(),
            "conversation_id": root.conversation_id,
            "thread_id": root.conversation_id,
            "workspace_id": root.conversation_id,
            "session_type": "agent",
            "trigger": "api",
            "agent_owner": "*",
            "agent": "tester",
            "agent_version": 1,
            "models": ["offline"],
            "title": "one of many",
            "spec": "{}",
            "limits": Limits().model_dump_json(),
            "deadline": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
            "created_by": "test",
        }
        return await accepting.accept(pool, root.tenant, document, [], [], None, None, queue=True)

    assert await asyncio.gather(*(queue() for _ in range(40))) == [Accepted()] * 40
