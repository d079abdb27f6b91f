"""The rules of the house hold in the repository, and each notices a violation: what imports what, who reads the
environment, SQL, private names, the vendors' SDKs, names of tools, repeated classes, and the contract.

They are in one file so that one process reads and parses the repository once.
"""

import ast
import re
from collections.abc import Callable, Iterator
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


BROKEN: list[tuple[Callable[[Path], list[str]], str, str]] = [
    (wrong_imports, "domain/rules.py", "from store import events"),
    (wrong_imports, "domain/rules.py", "from . import other"),
    (wrong_imports, "activities/sessions/sweep.py", "def late() -> None:\n    from workflows.session import Session"),
    (wrong_imports, "worker.py", "if TYPE_CHECKING:\n    from deploy import local"),
    (environment_readers, "api/app.py", "import os\ndict(os.environ)"),
    (environment_readers, "deploy/child.py", "from os import putenv, environ"),
    (sql_outside_store, "api/app.py", "Q = f'insert into events values (1)'"),
    (sql_outside_store, "api/app.py", "Q = 'WITH gone AS (DELETE FROM files RETURNING 1) SELECT 1'"),
    (private_names, "api/app.py", "import temporalio.bridge.worker"),
    (private_names, "api/app.py", "import httpx2\nhttpx2._models"),
    (private_names, "api/app.py", "from temporalio.worker import Worker\nWorker.run = None"),
    (sdk_imports, "activities/sessions/acceptance.py", "from anthropic import AsyncAnthropic"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_break_of_a_rule_is_noticed(tmp_path: Path, rule: Callable[[Path], list[str]], path: str, text: str) -> None:
    assert len(rule(write(tmp_path, path, text))) == 1


def test_second_model_of_a_response_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, "client/errand/models.py", "class Task(Model): ...\n")
    assert len(second_models(write(tmp_path, "api/routes/tasks.py", "class Task(BaseModel): ...\n"))) == 1


def test_few_modules_import_the_sdk_of_the_vendor() -> None:
    assert sdk_imports(ROOT) == []


# repeated names

EVERY_TOOL_HAS_ONE = "Input"


def test_no_class_name_exists_twice() -> None:
    repeated = repeated_classes(ROOT)
    tools = repeated.pop(EVERY_TOOL_HAS_ONE)
    assert all(path.startswith("activities/tools/builtin/") for path in tools)
    assert repeated == {}


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
@pytest.mark.proves("D2")
def helper(): pass
class Helper:
    @proves("D2")
    def method(self): pass
@pytest.mark.proves("D1")
def test_it(): pass
"""


def test_a_proof_that_is_no_test_is_refused(tmp_path: Path) -> None:
    assert hidden_claims(ROOT / "tests") == []
    write(tmp_path, "test_x.py", MISPLACED)
    assert {one.partition("::")[2] for one in hidden_claims(tmp_path)} == {"helper", "method"}
    assert claimed(tmp_path) == {"D1"}
