"""Apply the SQL migrations, each once, the functions that changed, and the roles: `python -m store.migrate`."""

import asyncio
import base64
import hashlib
import hmac
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import asyncpg

from settings import Settings, SettingsError
from store.database import patiently

FOLDER = Path(__file__).parent / "migrations"
FUNCTIONS = Path(__file__).parent / "functions"  # one file each; a changed file replaces its earlier definition
ROLES = Path(__file__).parent / "roles.sql"
LOGINS = {"errand_api": "ERRAND_API_DATABASE_URL", "errand_worker": "ERRAND_WORKER_DATABASE_URL"}
ITERATIONS = 4_096
LOCK = 0x65727261  # an arbitrary advisory lock: two processes that start together take turns

_TABLE = """
CREATE TABLE IF NOT EXISTS migrations (
    name text PRIMARY KEY, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())
"""

_RECORD = """
INSERT INTO migrations (name, digest) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, applied_at = now()
"""


class MigrationChanged(RuntimeError):
    """The file of an applied migration was changed: write a new migration instead."""


async def migrate(url: str, logins: Sequence[str] = ()) -> list[str]:
    """Bring the schema up to date; returns the names of the files applied now. `logins`: database addresses whose roles
    may log in."""
    connection = await patiently(lambda: asyncpg.connect(url), seconds=30)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        await connection.execute(_TABLE)
        known = {row["name"]: row["digest"] for row in await connection.fetch("SELECT name, digest FROM migrations")}
        for name, sql in _files(FOLDER):
            if known.get(name, digest := _digest(sql)) != digest:
                raise MigrationChanged(f"{name} was applied with other contents; write a new migration instead")
        applied = [name for name, sql in _files(FOLDER) if await _apply(connection, name, sql, known)]
        # Functions and rights change together: a new function may use a table on which nobody has rights yet.
        async with connection.transaction():
            applied += [name for name, sql in _files(FUNCTIONS) if await _apply(connection, name, sql, known)]
            await connection.execute(ROLES.read_text())
            for login in logins:
                await _let_in(connection, login)
        return applied
    finally:
        await connection.close()


def _files(folder: Path) -> list[tuple[str, str]]:
    return [(file.name, file.read_text()) for file in sorted(folder.glob("*.sql"))]


def _digest(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


async def _apply(connection: "asyncpg.Connection[asyncpg.Record]", name: str, sql: str, known: dict[str, str]) -> bool:
    """Run a file, unless it was applied before."""
    if known.get(name) == _digest(sql):
        return False
    async with connection.transaction():
        await connection.execute("SET LOCAL check_function_bodies = off")  # they call each other
        await connection.execute(sql)
        await connection.execute(_RECORD, name, _digest(sql))
    return True


async def _let_in(connection: "asyncpg.Connection[asyncpg.Record]", login: str) -> None:
    """Let the role of an address log in with the address's password. The server only sees its hash."""
    role, password = urlsplit(login).username or "", unquote(urlsplit(login).password or "")
    if role not in LOGINS or not password:
        raise SettingsError(f"{' and '.join(LOGINS.values())}: must have the role {' or '.join(LOGINS)} and a password")
    await connection.execute(f"ALTER ROLE {role} LOGIN PASSWORD '{_scram_verifier(password)}'")


def _scram_verifier(password: str) -> str:
    """A password in the form in which PostgreSQL stores it (RFC 5803)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    client_key, server_key = (hmac.digest(salted, name, "sha256") for name in (b"Client Key", b"Server Key"))
    texts = [base64.b64encode(part).decode() for part in (salt, hashlib.sha256(client_key).digest(), server_key)]
    return f"SCRAM-SHA-256${ITERATIONS}:{texts[0]}${texts[1]}:{texts[2]}"


def main() -> None:
    settings = Settings.from_env()
    if not settings.database_url:
        sys.exit("ERRAND_DATABASE_URL is not set")
    logins = [url for url in (settings.api_database_url, settings.worker_database_url) if url]
    for name in asyncio.run(migrate(settings.database_url, logins)):
        sys.stdout.write(f"applied {name}\n")


if __name__ == "__main__":
    main()
