"""`errand keys` creates, lists and revokes keys in the real database."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import Result

from tests.unit.cli.conftest import Cli

Keys = Callable[..., Result]


@pytest.fixture
def keys(cli: Cli, database_url: str) -> Iterator[Keys]:
    """Run the command in a thread, because it starts its own event loop."""
    with ThreadPoolExecutor(1) as thread:

        def call(*args: str, url: str = database_url) -> Result:
            return thread.submit(cli, "keys", *args, ERRAND_DATABASE_URL=url).result(30)

        yield call


def test_key_is_created_listed_and_revoked(keys: Keys) -> None:
    made = keys("create", "ci", "--right", "read", "--expires", "30d", "--tenant", "cli")
    secret = made.stdout.strip()
    assert made.exit_code == 0 and secret.startswith("ek_")
    assert "not shown again" in made.stderr

    listed = keys("list", "--tenant", "cli", "--json")
    (key,) = json.loads(listed.stdout)["items"]
    assert (key["name"], key["rights"], key["revoked_at"]) == ("ci", ["read"], None)
    assert secret not in listed.stdout
    assert "until " in keys("list", "--tenant", "cli").stdout

    assert keys("revoke", key["id"]).exit_code == 4  # the default tenant has no such key
    assert keys("revoke", key["id"], "--tenant", "cli").exit_code == 0
    assert "revoked" in keys("list", "--tenant", "cli").stdout


def test_keys_say_why_a_database_cannot_be_used(keys: Keys, database_url: str) -> None:
    away = keys("list", url="postgresql://x:secret@127.0.0.1:9/x")
    assert away.exit_code == 6 and "secret" not in away.stderr
    bare = keys("list", url=database_url.rpartition("/")[0] + "/template1")
    assert bare.exit_code == 1 and "no schema yet" in bare.stderr
