"""Encrypt the stored secrets of all tenants again with the current key, so that an older key can be removed."""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from domain.redaction import PREFIX, is_sealed
from domain.sealing import KeyRing, SealingError
from store import connectors, credentials, notifications, triggers
from store.database import Pool

BATCH = 200
PASSES = 5  # a running process may copy values that are still encrypted with an older key

Reseal = Callable[[str, str, str], str]  # tenant, id of the row and its column -> the new value of the column


class Resealer:
    """Each change concerns one row and is made only if the row still holds the value that was read. So it may be
    interrupted or repeated."""

    def __init__(self, pool: Pool, keys: KeyRing) -> None:
        self._pool = pool
        self._keys = keys
        self.changed: Counter[str] = Counter()  # by column
        self.unreadable: Counter[str] = Counter()  # the key is missing, or the value is damaged; left as it is

    async def run(self) -> None:
        for _ in range(PASSES):
            before = self.changed.total()
            self.unreadable.clear()
            for column in ("target", "secret", "old_secret"):
                await self._column("subscriptions", "id", column, self._text(notifications.SEALED_FOR))
            await self._column("connectors", "name", "secrets", self._text(connectors.SEALED_FOR))
            await self._column("triggers", "name", "secret", self._text(triggers.SEALED_FOR))
            await self._column("credentials", "owner || '/' || name", "secret", self._text(credentials.SEALED_FOR))
            await self._column("tenant_variables", "name", "value", self._text("variable"))
            columns = (
                ("sessions", "variables"),
                ("sessions", "spec"),
                ("threads", "variables"),
                ("variable_requests", "spawn"),
                ("schedules", "session"),
                ("triggers", "session"),
            )
            for table, column in columns:
                await self._column(table, "id", column, self._variables)
            await self._column("input_requests", "id", "answer", self._variables)
            if self.changed.total() == before:
                return

    async def _column(self, table: str, key: str, column: str, reseal: Reseal) -> None:
        older = rf"{PREFIX}(?!{re.escape(self._keys.current)}:)"
        tenant = row_id = ""
        while True:
            sql = f"""SELECT tenant, {key} AS id, {column}::text AS value FROM {table}
                       WHERE (tenant, {key}) > ($1, $2) AND {column}::text ~ $3 ORDER BY tenant, {key} LIMIT {BATCH}"""
            rows = await self._pool.fetch(sql, tenant, row_id, older)
            for row in rows:
                tenant, row_id = row["tenant"], row["id"]
                try:
                    new = reseal(tenant, row_id, row["value"])
                except SealingError:
                    self.unreadable[f"{table}.{column}"] += 1
                    continue
                done = await self._pool.execute(
                    f"UPDATE {table} SET {column} = $4 WHERE tenant = $1 AND {key} = $2 AND {column} = $3 AND $3 <> $4",
                    tenant,
                    row_id,
                    row["value"],
                    new,
                )
                self.changed[f"{table}.{column}"] += int(done.split()[-1])
            if len(rows) < BATCH:
                return

    def _text(self, purpose: str) -> Reseal:
        """The whole column is one sealed text."""
        return lambda tenant, row_id, value: self._again(value, tenant, purpose, row_id)

    def _variables(self, tenant: str, row_id: str, value: str) -> str:
        """The column is JSON that holds sealed values of variables under their names."""
        return json.dumps(self._walk(tenant, "", json.loads(value)))

    def _walk(self, tenant: str, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._walk(tenant, key, one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._walk(tenant, name, one) for one in value]
        # the name may have a prefix: the agent for which the value is held
        return self._again(value, tenant, "variable", name.rpartition(":")[2]) if is_sealed(value) else value

    def _again(self, value: str, *context: str) -> str:
        if value.startswith(f"{PREFIX}{self._keys.current}:"):
            return value
        return self._keys.seal(self._keys.unseal(value, *context), *context)
