"""These tests use the agents of the conversation tests."""

from tests.behaviour.conversations.conftest import team

__all__ = ["team"]
