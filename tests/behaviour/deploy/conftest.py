"""The same fixtures as the unit tests of the stack."""

from tests.unit.deploy.conftest import unused_port

__all__ = ["unused_port"]
