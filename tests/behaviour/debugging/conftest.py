"""The agents of these tests are those of the tests of conversations."""

from tests.behaviour.conversations.conftest import team

__all__ = ["team"]
