"""The fixtures of the stack's unit tests."""

from tests.unit.deploy.conftest import unused_port

__all__ = ["unused_port"]
