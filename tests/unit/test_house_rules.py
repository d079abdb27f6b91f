"""The rules of the house hold in the repository, and each notices a violation: what imports what, who reads the
environment, SQL, private names, the vendors' SDKs, names of tools, repeated classes, and the contract.

They are in one file so that one process reads and parses the repository once.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.tools.registry import TOOLS
from settings import ROOT
from tests.support.contract import claimed, hidden_claims, page_of, read_items, with_marks
from tests.support.layering import (
    PACKAGES,
    SCRIPTS,
    environment_readers,
    modules,
    parsed,
    private_names,
    repeated_classes,
    sdk_imports,
    second_models,
    sql_outside_store,
    wrong_imports,
)


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


def test_packages_import_only_what_they_may() -> None:
    assert wrong_imports(ROOT) == []


def test_only_settings_reads_the_environment() -> None:
    assert environment_readers(ROOT) == []


def test_only_store_contains_sql() -> None:
    assert sql_outside_store(ROOT) == []


def test_nothing_private_of_a_library_is_used() -> None:
    assert private_names(ROOT) == []


def test_a_response_has_one_definition_for_api_client_and_command_line() -> None:
    assert second_models(ROOT) == []


def test_no_module_uses_pipes_of_the_event_loop() -> None:
    """They close a descriptor twice; the sandbox has its own end of a pipe."""
    assert [module.path for module in modules(ROOT) if re.search(r"connect_(read|write)_pipe", module.text)] == []


def test_rules_cover_every_folder_with_code() -> None:
    """Every folder with code is covered by the rules, so that a new one cannot escape them."""
    folders = {path.parent.relative_to(ROOT).parts[0] for path in ROOT.glob("*/**/*.py") if path.parent != ROOT}
    hidden_or_generated = {name for name in folders if name.startswith(".")} | {"build", "tests"}
    assert folders - hidden_or_generated <= set(PACKAGES)
    assert {path.stem for path in ROOT.glob("*.py")} == set(SCRIPTS)
    seen = [module.path for module in modules(ROOT)]
    assert len(seen) == len(set(seen)) > 50


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("domain/rules.py", "from store import events"),
        ("domain/rules.py", "from . import other"),
        ("store/events.py", "import workflows.client"),
        ("workflows/session/workflow.py", "import activities.run_tool"),
        ("activities/sessions/sweep.py", "from workflows.session import Session"),
        ("activities/tools/builtin/bash.py", "from settings import Settings"),
        ("api/app.py", "from activities import call_model"),
        ("cli/commands/run.py", "from workflows.steps import ALL"),
        ("offline/server.py", "import settings"),
        ("settings.py", "from domain.ids import new_id"),
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
        "select pg_notify('a', 'b')",
        "\n  insert into events values (1)",
        "WITH gone AS (DELETE FROM files RETURNING 1) SELECT 1",
        "CREATE TABLE t (a int)",
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


@pytest.mark.parametrize(
    ("path", "line", "count"),
    [
        ("cli/commands/tasks.py", "class TaskInfo(BaseModel): ...", 1),
        ("api/routes/tasks.py", "class Task(BaseModel): ...", 1),
        ("api/routes/tasks.py", "class TaskQuery(BaseModel): ...", 0),
    ],
)
def test_second_model_of_a_response_is_noticed(tmp_path: Path, path: str, line: str, count: int) -> None:
    write(tmp_path, "client/errand/models.py", "class Task(Model): ...\n")
    assert len(second_models(write(tmp_path, path, f"{line}\n"))) == count


def test_own_private_names_and_own_attributes_pass(tmp_path: Path) -> None:
    own = "from domain.x import _y\nfrom __future__ import annotations\nclass A:\n    _b = 1\nA._b\nA.c = 2\n"
    assert private_names(write(tmp_path, "api/app.py", own)) == []


def test_few_modules_import_the_sdk_of_the_vendor() -> None:
    assert sdk_imports(ROOT) == []


@pytest.mark.parametrize("line", ["import anthropic", "from anthropic import AsyncAnthropic", "import anthropic.types"])
def test_imports_of_the_sdk_elsewhere_are_found(tmp_path: Path, line: str) -> None:
    assert len(sdk_imports(write(tmp_path, "activities/sessions/acceptance.py", line))) == 1


# repeated names

EVERY_TOOL_HAS_ONE = "Input"


def test_no_class_name_exists_twice() -> None:
    repeated = repeated_classes(ROOT)
    tools = repeated.pop(EVERY_TOOL_HAS_ONE)
    assert all(path.startswith("activities/tools/builtin/") for path in tools)
    assert repeated == {}


def test_repeated_class_names_are_found(tmp_path: Path) -> None:
    write(tmp_path, "api/app.py", "class Same: pass")
    write(tmp_path, "cli/main.py", "class Same: pass\nclass Other: pass")
    assert repeated_classes(tmp_path) == {"Same": ["api/app.py", "cli/main.py"]}


# names of tools: only a tool's own module contains its name; other code uses the tool's traits

NAMES = {*TOOLS} - {"bash", "task"}  # these two are also words for a shell and for what people submit
THEIR_OWN = (
    *("activities/tools/builtin/", "bench/", "client/", "offline/"),
    "domain/agents/definition.py",  # a test compares these names with the traits
    "domain/skills.py",  # for the loader of agents, which knows no tools
    *("activities/model/anthropic.py", "activities/model/openai.py"),  # the tool of the vendor that has the same name
    "domain/conversations/subagents.py",  # the enum that defines the names of these tools
)


def texts(nodes: list[ast.AST]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def texts_of_sql(source: str) -> list[str]:
    return re.findall(r"'(\w+)'", source)


def test_no_name_of_a_tool_is_a_literal_outside_its_tool() -> None:
    others = [module for module in modules(ROOT) if not module.path.startswith(THEIR_OWN)]
    assert [(module.path, text) for module in others for text in texts(module.nodes) if text in NAMES] == []
    statements = list((ROOT / "store").rglob("*.sql"))
    assert statements
    assert [(file, text) for file in statements for text in texts_of_sql(file.read_text()) if text in NAMES] == []


def test_name_of_a_tool_is_found(tmp_path: Path) -> None:
    file = write(tmp_path, "a.py", "if call.name == 'ask_user':\n    pass\n") / "a.py"
    assert NAMES & {*texts(parsed(tmp_path, file).nodes)} == {"ask_user"}
    assert NAMES & {*texts_of_sql("IF n.tool = 'ask_user' THEN")} == {"ask_user"}


# the contract

PAGE = page_of(ROOT)
DECISIONS = re.findall(r"^\| (C-\d+) \| .+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)


def test_each_line_of_the_contract_says_whether_a_test_proves_it() -> None:
    page, proved = PAGE.read_text(), claimed(ROOT / "tests")
    assert page == with_marks(page, proved), "run python -m tests.support.contract --write"
    assert set(read_items(PAGE)) >= proved and len(read_items(PAGE)) == 318  # none is dropped
    assert "✓\n" in page and "✗\n" in page


def test_every_decision_cites_items_that_are_proved() -> None:
    assert [decision for decision, _ in DECISIONS] == [f"C-{number:02}" for number in range(1, 21)]
    proved = read_items(PAGE).keys() & claimed(ROOT / "tests")
    assert {decision: cited for decision, cited in DECISIONS if not set(cited.split()) <= proved} == {}


MISPLACED = """
@pytest.mark.proves("S0-01")
def helper(): pass
class Helper:
    @proves("S0-01")
    def method(self): pass
def test_outer():
    @pytest.mark.proves("S0-01")
    def test_nested(): pass
@pytest.mark.proves("D1")
def test_it(): pass
"""


def test_a_proof_that_is_no_test_is_refused(tmp_path: Path) -> None:
    assert hidden_claims(ROOT / "tests") == []
    write(tmp_path, "helpers.py", "@pytest.mark.proves('D2')\ndef test_imported(): pass\n")
    write(tmp_path, "test_x.py", MISPLACED)
    assert {one.partition("::")[2] for one in hidden_claims(tmp_path)} == {
        "helper",
        "method",
        "test_nested",
        "test_imported",
    }
    assert claimed(tmp_path) == {"D1"}
