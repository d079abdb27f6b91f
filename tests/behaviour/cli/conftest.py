"""The fixtures of the commands' unit tests, and the database of the API's tests."""

from tests.behaviour.api.conftest import database_url, pool
from tests.unit.cli.conftest import cli, server

__all__ = ["cli", "database_url", "pool", "server"]
