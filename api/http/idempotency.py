"""Idempotency keys: a request repeated with its key gets the first response again."""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from api.auth import Call
from api.http.problems import Unreadable
from domain.errors import Invalid
from domain.sessions.session_writes import IdempotencyRecord
from store import idempotency
from store.database import Pool

Key = Annotated[str | None, Header(description="1 to 255 printable ASCII characters; kept for at least a day")]


def reused() -> Invalid:
    return Invalid("This Idempotency-Key was used for another request before.", type="idempotency-key-reused")


@dataclass(frozen=True)
class IdempotencyKey:
    """The key of a request, and a digest of its caller, route and body; the value is None if the caller sent no key.

    With the caller in the digest, a stored response is replayed only to the API key that received it first.
    """

    value: str | None
    digest: str

    @classmethod
    def of(cls, call: Call, route: str, body: BaseModel, key: str | None) -> "IdempotencyKey":
        text = json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
        return cls(check_key(key), hashlib.sha256(f"{call.caller.created_by}\n{route}\n{text}".encode()).hexdigest())

    async def answered(self, pool: Pool, tenant: str) -> str | None:
        """The stored response, even if the same request would be refused now; None if this is the first one."""
        known = await idempotency.find(pool, tenant, self.value) if self.value is not None else None
        if known is not None and known.digest != self.digest:
            raise reused()
        return known.response if known else None

    def record(self, response: str) -> IdempotencyRecord | None:
        if self.value is None:
            return None
        return IdempotencyRecord(key=self.value, digest=self.digest, status=202, response=response)


def check_key(key: str | None) -> str | None:
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        detail = "An Idempotency-Key has 1 to 255 printable ASCII characters."
        raise Unreadable(400, "idempotency-key-invalid", detail)
    return key
