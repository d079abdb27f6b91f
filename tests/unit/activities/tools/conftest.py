"""A context for tools: a real workspace, a real Fetcher, and a sandbox that refuses unless a test replaces it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from activities.egress import Fetcher
from activities.sandbox import Refusing
from activities.tools.tool import ToolContext
from domain.sessions.session import SessionRef

MakeContext = Callable[..., ToolContext]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def make_context(workspace: Path) -> MakeContext:
    def make(**changes: Any) -> ToolContext:
        given: dict[str, Any] = {
            "ref": SessionRef(tenant="default", session_id="s1", conversation_id="s1"),
            "agent": "tester",
            "workspace": workspace,
            "key": "k",
            "again": False,
            "plan": None,
            "sandbox": Refusing("no sandbox in this test", "Give one"),
            "fetcher": Fetcher(),
            "network": None,
            "subagents": None,
            "state": None,
        }
        return ToolContext(**(given | changes))

    return make


@pytest.fixture
def context(make_context: MakeContext) -> ToolContext:
    return make_context()
