"""The rules of tests/support/layering.py hold in the repository, and each notices a violation."""

from pathlib import Path

import pytest

from settings import ROOT
from tests.support.layering import (
    PACKAGES,
    SCRIPTS,
    environment_readers,
    modules,
    private_names,
    sql_outside_store,
    wrong_imports,
)


def test_packages_import_only_what_they_may() -> None:
    assert wrong_imports(ROOT) == []


def test_only_settings_reads_the_environment() -> None:
    assert environment_readers(ROOT) == []


def test_only_store_contains_sql() -> None:
    assert sql_outside_store(ROOT) == []


def test_nothing_private_of_a_library_is_used() -> None:
    assert private_names(ROOT) == []


def test_rules_cover_every_folder_with_code() -> None:
    """Every folder with code is covered by the rules, so that a new one cannot escape them."""
    folders = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py") if path.parent != ROOT}
    hidden_or_generated = {name for name in folders if name.startswith(".")} | {"build", "tests"}
    assert folders - hidden_or_generated <= set(PACKAGES)
    assert {path.stem for path in ROOT.glob("*.py")} == set(SCRIPTS)
    seen = [module.path for module in modules(ROOT)]
    assert len(seen) == len(set(seen)) > 50


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("domain/rules.py", "import settings"),
        ("domain/rules.py", "from store import events"),
        ("domain/rules.py", "from . import other"),
        ("domain/rules.py", "from errand.models import Task"),
        ("store/tasks.py", "from errand import models"),
        ("api/app.py", "from errand import Errand"),
        ("agents/loader.py", "from activities.tools import TOOLS"),
        ("store/events.py", "from settings import Settings"),
        ("store/events.py", "import workflows.client"),
        ("workflows/session/workflow.py", "from store import events"),
        ("workflows/session/workflow.py", "import activities.run_tool"),
        ("workflows/session/workflow.py", "from settings import Settings"),
        ("activities/sessions/sweep.py", "from workflows.session import Session"),
        ("activities/sessions/sweep.py", "from workflows import steps"),
        ("activities/sessions/sweep.py", "import workflows"),
        ("activities/sessions/sweep.py", "from api import app"),
        ("activities/tools/builtin/bash.py", "from settings import Settings"),
        ("activities/tools/builtin/bash.py", "from agents import loader"),
        ("api/app.py", "from workflows import conversation"),
        ("api/app.py", "from activities import call_model"),
        ("api/app.py", "from deploy import local"),
        ("cli/commands/run.py", "from workflows.steps import ALL"),
        ("deploy/local.py", "from store import migrate"),
        ("deploy/local.py", "import workflows.client"),
        ("offline/server.py", "from domain.message import Node"),
        ("offline/server.py", "import settings"),
        ("settings.py", "from domain.ids import new_id"),
        ("worker.py", "from api.app import app"),
        ("worker.py", "from deploy import local"),
    ],
)
def test_forbidden_import_is_noticed_even_inside_a_function(tmp_path: Path, path: str, line: str) -> None:
    for text in (line, f"def late() -> None:\n    {line}\n", f"if TYPE_CHECKING:\n    {line}\n"):
        assert len(wrong_imports(write(tmp_path, path, text))) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("domain/rules.py", "import json\nfrom domain import ids"),
        ("store/migrate.py", "from settings import Settings"),
        ("activities/sessions/sweep.py", "from workflows.client import WorkflowClient\nfrom workflows import client"),
        ("cli/commands/stack.py", "from deploy import local\nfrom errand import Errand"),
        ("api/app.py", "from errand import models"),
        ("worker.py", "from workflows.session import Session\nfrom activities import run_tool"),
    ],
)
def test_allowed_import_passes(tmp_path: Path, path: str, line: str) -> None:
    assert wrong_imports(write(tmp_path, path, line)) == []


@pytest.mark.parametrize(
    "line", ["os.environ['A']", "os.getenv('A')", "dict(os.environ)", "from os import environ", "os.putenv('A', 'b')"]
)
def test_reading_the_environment_is_noticed(tmp_path: Path, line: str) -> None:
    assert len(environment_readers(write(tmp_path, "api/app.py", f"import os\n{line}\n"))) == 1


def test_settings_may_read_the_environment_and_the_stack_may_pass_it_on(tmp_path: Path) -> None:
    write(tmp_path, "settings.py", "import os\nos.environ\n")
    write(tmp_path, "deploy/child.py", "import os\nos.putenv('A', 'b')\n")
    assert environment_readers(tmp_path) == []
    assert len(environment_readers(write(tmp_path, "deploy/child.py", "import os\nos.environ\n"))) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM sessions",
        "select pg_notify('a', 'b')",
        "\n  insert into events values (1)",
        "UPDATE sessions SET a = 1",
        "DELETE FROM files",
        "WITH gone AS (DELETE FROM files RETURNING 1) SELECT 1",
        "CREATE TABLE t (a int)",
        "LISTEN events",
    ],
)
def test_sql_is_noticed_outside_the_store_only(tmp_path: Path, sql: str) -> None:
    assert sql_outside_store(write(tmp_path, "store/events.py", f"Q = {sql!r}\n")) == []
    assert len(sql_outside_store(write(tmp_path, "api/app.py", f"Q = {sql!r}\n"))) == 1
    assert len(sql_outside_store(write(tmp_path, "api/app.py", f"x = 1\nQ = f{sql!r}\n"))) == 1


def test_plain_sentences_are_not_sql(tmp_path: Path) -> None:
    sentences = ["Select a file.", "Update the plan and set a step to done.", "Create a file", "Listen for events."]
    assert sql_outside_store(write(tmp_path, "api/app.py", f"TEXTS = {sentences!r}\n")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from temporalio.bridge import worker",
        "from anthropic._client import AsyncAnthropic",
        "from httpx2 import _models",
        "import temporalio.bridge.worker",
        "import httpx2\nhttpx2._models",
        "from temporalio import workflow as w\nw._Definition",
        "import temporalio.worker\ntemporalio.worker.decode = None",
        "from temporalio.worker import Worker\nWorker.run = None",
    ],
)
def test_private_name_of_a_library_is_noticed(tmp_path: Path, line: str) -> None:
    assert len(private_names(write(tmp_path, "api/app.py", f"{line}\n"))) == 1


def test_own_private_names_and_own_attributes_pass(tmp_path: Path) -> None:
    own = "from domain.x import _y\nfrom __future__ import annotations\nclass A:\n    _b = 1\nA._b\nA.c = 2\n"
    assert private_names(write(tmp_path, "api/app.py", own)) == []
