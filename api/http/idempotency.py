"""Idempotency keys: a request repeated with its key gets the first response again."""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Header
from pydantic import BaseModel

from api.http.auth import Call
from api.http.problems import Unreadable
from domain.errors import Unavailable
from domain.ids import new_id
from domain.sessions.writes import IdempotencyRecord
from store import idempotency
from store.database import TRANSIENT_ERRORS, Pool

LOCK_SECONDS = 22.0  # if its process dies, a repetition waits this long
HANDLED_WITHIN = 20.0  # less than the lock; a conversation that does not answer takes 15 of them
WAITS_FOR = 3.0  # a repetition waits this long for the first request
PAUSE_SECONDS = 0.1
RELEASE_SECONDS = 0.3  # short, because an unreachable database has already delayed the request

Key = Annotated[str | None, Header(description="1 to 255 printable ASCII characters; kept for at least a day")]


M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class IdempotencyKey:
    """The key of a request, and a digest of its caller, route and body; the value is None if the caller sent no key.

    With the caller in the digest, a stored response is replayed only to the API key that received it first.
    """

    value: str | None
    digest: str

    @classmethod
    def of(cls, call: Call, route: str, body: BaseModel, key: str | None) -> "IdempotencyKey":
        # only what was sent: a default that a later version adds must not make a repetition look like another request
        text = json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        return cls(check_key(key), hashlib.sha256(f"{call.caller.created_by}\n{route}\n{text}".encode()).hexdigest())

    async def find_answer(self, pool: Pool, tenant: str) -> str | None:
        """The stored response, even if the same request would be refused now; None if this is the first one."""
        return await idempotency.find(pool, tenant, self.value, self.digest) if self.value is not None else None

    async def replay(self, call: Call, response: type[M]) -> M | None:
        """The first response to this request; None if this is the first one."""
        known = await self.find_answer(call.pool, call.tenant)
        return response.model_validate_json(known) if known is not None else None

    def record(self, response: str) -> IdempotencyRecord | None:
        if self.value is None:
            return None
        return IdempotencyRecord(key=self.value, digest=self.digest, status=202, response=response)


NO_KEY = IdempotencyKey(None, "")  # of a request of which nothing is stored


@contextlib.asynccontextmanager
async def one_at_a_time(call: Call, name: str) -> AsyncIterator[None]:
    """Handle a request while no other API process handles its repetition. A caller that gave up may repeat a request
    that is still being handled, and each of the two would undo what the other has done.

    The time is limited, so that a process that was paused does not continue after its lock has passed on."""
    holder, give_up, pause = new_id(), time.monotonic() + WAITS_FOR, PAUSE_SECONDS
    while not await idempotency.acquire_lock(call.pool, call.tenant, name, holder, LOCK_SECONDS):
        if time.monotonic() + pause > give_up:
            raise Unavailable("The same request is being handled; try again.")
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)
    try:
        async with asyncio.timeout(HANDLED_WITHIN) as limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise Unavailable("The request could not be handled in time; try again.") from None
        raise
    finally:
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await idempotency.release_lock(call.pool, call.tenant, name, holder)
        except TRANSIENT_ERRORS:
            pass  # it ends by its time


def check_key(key: str | None) -> str | None:
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        detail = "An Idempotency-Key has 1 to 255 printable ASCII characters."
        raise Unreadable(400, "idempotency-key-invalid", detail)
    return key
