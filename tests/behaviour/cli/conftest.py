"""The same fixtures as the commands' unit tests."""

from tests.unit.cli.conftest import cli, server

__all__ = ["cli", "server"]
