"""The rules of the house hold in the repository, and each notices a violation: what imports what, who reads the
environment, SQL, private names, the vendor's terms, names of tools, retired words, counted things, and the contract.

They are in one file so that one process reads and parses the repository once.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from activities.tools.registry import TOOLS
from domain.amounts import format_count
from settings import ROOT
from tests.support.contract import claimed, page_of, read_items, with_marks
from tests.support.layering import (
    PACKAGES,
    SCRIPTS,
    Module,
    environment_readers,
    modules,
    parsed,
    private_names,
    second_models,
    sql_outside_store,
    wrong_imports,
)
from tests.support.vendor import TRANSLATE, sdk_imports, vendor_terms
from tests.support.vocabulary import repeated_classes, retired_uses, too_many


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
        ("domain/rules.py", "import settings"),
        ("domain/rules.py", "from store import events"),
        ("domain/rules.py", "from . import other"),
        ("domain/rules.py", "from errand.client import Errand"),
        ("store/tasks.py", "from errand import client"),
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


# the vendor's terms


def test_one_module_knows_the_terms_of_the_vendor() -> None:
    assert vendor_terms(ROOT) == []


def test_few_modules_import_the_sdk_of_the_vendor() -> None:
    assert sdk_imports(ROOT) == []


def test_every_exception_is_needed() -> None:
    assert all("tool_calls" in (ROOT / path).read_text().replace("tool_use", "tool_calls") for path in TRANSLATE)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("domain/messages.py", 'calls = [block for block in content if block["type"] == "tool_use"]'),
        ("store/messages.py", 'body["tool_use_id"]'),
        ("activities/model/call_model.py", 'request["cache_control"] = {}'),
        ("domain/limits.py", 'reply.stop_reason == "pause_turn"'),
    ],
)
def test_terms_of_the_vendor_elsewhere_are_found(tmp_path: Path, path: str, line: str) -> None:
    assert len(vendor_terms(write(tmp_path, path, line))) == 1


@pytest.mark.parametrize("line", ["import anthropic", "from anthropic import AsyncAnthropic", "import anthropic.types"])
def test_imports_of_the_sdk_elsewhere_are_found(tmp_path: Path, line: str) -> None:
    assert len(sdk_imports(write(tmp_path, "activities/sessions/acceptance.py", line))) == 1


@pytest.mark.parametrize("path", ["offline/wire.py", "bench/bare_worker.py", *TRANSLATE])
def test_modules_of_the_protocol_may_use_its_terms(tmp_path: Path, path: str) -> None:
    root = write(tmp_path, path, 'import anthropic\nkind = "tool_use"')
    assert vendor_terms(root) == sdk_imports(root) == []


# retired words and repeated names

# How many retired words each package may still contain: none.
ALLOWANCE: dict[str, int] = {}
REPEATED: set[str] = set()
EVERY_TOOL_HAS_ONE = "Input"


def test_no_file_uses_retired_words() -> None:
    found = too_many(retired_uses(ROOT), ALLOWANCE)
    assert not found, "retired words (tests/support/vocabulary.py lists them):\n" + "\n".join(map(str, found))


def test_no_class_name_exists_twice() -> None:
    repeated = repeated_classes(ROOT)
    tools = repeated.pop(EVERY_TOOL_HAS_ONE)
    assert all(path.startswith("activities/tools/builtin/") for path in tools)
    assert repeated.keys() <= REPEATED


def found_in(root: Path, path: str, source: str) -> list[str]:
    return [use.text for use in retired_uses(write(root, path, source))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def send(wish): pass", ["wish"]),
        ("request_words = 1", ["request_words"]),
        ("class ApprovalWords: pass", ["ApprovalWords"]),
        ("class Later: pass", ["Later"]),
        ("AWAY = ()", ["AWAY"]),
        ("from workflows import client as door", ["door"]),
        ("async def run(parts: ServicesDep): pass", ["parts: ServicesDep"]),
        ("self.heard = 1", ["heard"]),
        ("goes_on: bool = False", ["goes_on"]),
        ("async def tasks_at_work(): on, goes, at_worker = x", ["tasks_at_work"]),
        ("stands = whoever = standing = 1", ["stands", "whoever"]),
        ("def reword(parts: list[str], sword, later): pass", []),
        ("from json import loads as tell_all", ["tell_all"]),
        ("call.told", []),  # the name is only used here; its definition is reported
    ],
)
def test_retired_names_are_found_where_they_are_defined(tmp_path: Path, source: str, found: list[str]) -> None:
    assert found_in(tmp_path, "api/app.py", source) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""The session at work\ngoes on by itself."""', ["at work", "goes on", "by itself"]),
        ("x = 1  # whoever hears of it is told", ["whoever", "hears", "told"]),
        ('raise ValueError(f"the task {x} goes on")', ["goes on"]),
        ("x = 1  # it went on; what stood there has gone on", ["went on", "stood", "gone on"]),
        ("x = 1  # the user's words; search words of a standard", ["r's words"]),
        ("x = 1  # begun anew while the server is away; held up for good", ["anew", "is away", "held up", "for good"]),
        ("x = 1  # it has a session of its own, in the folder of its own stack", ["session of its own"]),
        ('x = "let me tell you: I told you"', []),
        ('"""Continues the running session; the stand-in understands it."""', []),
    ],
)
def test_retired_phrases_are_found_in_docstrings_comments_and_texts(
    tmp_path: Path, source: str, found: list[str]
) -> None:
    assert found_in(tmp_path, "api/app.py", source) == found


def test_comments_of_sql_and_prompts_of_agents_are_checked_too(tmp_path: Path) -> None:
    found_in(tmp_path, "store/functions/add.sql", "SELECT 'whoever';  -- it stands here, told\n")
    found_in(tmp_path, "store/migrations/0001_first.sql", "-- whoever\n")  # an applied migration cannot change
    assert found_in(tmp_path, "agents/helper.md", "Tell me more, and go on.") == ["stands", "told", "go on"]


def test_module_and_sql_names_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "store" / "functions").mkdir(parents=True)
    (tmp_path / "store" / "functions" / "tell.sql").write_text("")
    assert found_in(tmp_path, "api/told.py", "") == ["api.told", "tell"]


def test_scripts_of_the_console_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "api" / "console").mkdir(parents=True)
    script = "// tells whoever asks\nconst words = 'it goes on: I told you'; let shown = `//x`;\n"
    (tmp_path / "api" / "console" / "app.js").write_text(script)
    assert [use.text for use in retired_uses(tmp_path)] == ["whoever", "tells", "words", "goes on"]


def test_allowance_covers_its_package_only_and_must_be_needed(tmp_path: Path) -> None:
    found_in(tmp_path, "api/app.py", "wish = 1\ndoor = 2\n")
    uses = retired_uses(tmp_path)
    assert too_many(uses, {"api": 2}) == []
    assert too_many(uses, {"api": 1}) == ["api/app.py:1: wish", "api/app.py:2: door"]
    assert too_many(uses, {"api": 2, "cli": 1}) == ["cli: needs no allowance"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_it_is_sent(): pass", ["test_it_is_sent"]),
        ("def test_the_caller_is_told(): pass", ["test_the_caller_is_told"]),
        ("def test_nobody_is_asked(): pass", ["test_nobody_is_asked"]),
        ("def test_items_are_sent(): pass", []),
        ("class Told: pass", ["Told"]),
        ("class Gate: pass", []),
        ("x = 1  # whoever asks", ["whoever"]),
        ('x = "Go on."', []),  # a caller may say that
    ],
)
def test_tests_are_checked_for_names_and_prose(tmp_path: Path, source: str, found: list[str]) -> None:
    assert found_in(tmp_path, "tests/unit/test_x.py", source) == found


@pytest.mark.parametrize("path", ["README.md", "docs/deep/page.md", "tests/contract.md"])
@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("The task goes\non.", []),
        ("# Heading\n\nThe task goes on; whoever asks is told.", ["goes on", "whoever", "told"]),
        ("Send `Go on.`\n\n```\nerrand run 'Go on.'\n```\n", []),
        ("```\ngoes on\n```\n\nat work `x`\n\n  ```sh\n  go on\n  ```\n", ["at work"]),
    ],
)
def test_documents_are_checked_for_prose_outside_of_code(
    tmp_path: Path, path: str, source: str, found: list[str]
) -> None:
    assert found_in(tmp_path, path, source) == found


def test_repeated_class_names_are_found(tmp_path: Path) -> None:
    found_in(tmp_path, "api/app.py", "class Same: pass")
    found_in(tmp_path, "cli/main.py", "class Same: pass\nclass Other: pass")
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


# counts: no text says "1 steps"

NOUNS = (
    *("agent", "approval", "attempt", "call", "change", "conversation", "event", "file", "folder", "hour", "item"),
    *("key", "line", "mark", "message", "minute", "outcome", "question", "run", "schedule", "session", "step"),
    *("subagent", "task", "time", "turn", "version"),
)
LIMITS = (" of ", "more than ", "beyond ")
PLURAL = re.compile(rf"^ (?:(?!(?:of|in|to|and|at|for)\b)[a-z]+ ){{0,2}}(?:{'|'.join(NOUNS)})s\b")


def test_counted() -> None:
    assert (format_count(0, "step"), format_count(1, "step"), format_count(1_200, "tool call")) == (
        *("0 steps", "1 step", "1,200 tool calls"),
    )


def test_every_number_of_things_is_counted() -> None:
    files = [module for module in modules(ROOT) if not module.path.startswith(("bench/", "connectors/", "deploy/"))]
    found = [one for module in files for one in uncounted(module)]
    assert not found, "\n".join(found)


def uncounted(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for value, text in zip(node.values, [*node.values[1:], None], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
            elif isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                match = PLURAL.match(str(text.value))
                if match and not before.endswith(LIMITS) and not no_count(value):
                    yield f"{module.path}:{value.lineno}: {{{ast.unparse(value.value)}}}{match[0]}"


def no_count(value: ast.FormattedValue) -> bool:
    """A constant, a limit of the settings, a name, or a number with decimals."""
    names = [part.id if isinstance(part, ast.Name) else part.attr for part in ast.walk(value.value) if named(part)]
    spec = ast.unparse(value.format_spec) if value.format_spec else ""
    return "settings" in names or names[0] in ("name", "role") or "." in spec or names[0].isupper()


def named(part: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(part, ast.Name | ast.Attribute)


# the contract

PAGE = page_of(ROOT)
DECISIONS = re.findall(r"^\| (C-\d+) \| .+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)


def test_each_line_of_the_contract_says_whether_a_test_proves_it() -> None:
    page, proved = PAGE.read_text(), claimed(ROOT / "tests")
    assert page == with_marks(page, proved), "run python -m tests.support.contract --write"
    assert set(read_items(PAGE)) >= proved
    assert "✓\n" in page and "✗\n" in page


def test_every_decision_cites_items_that_are_proved() -> None:
    assert [decision for decision, _ in DECISIONS] == [f"C-{number:02}" for number in range(1, 21)]
    proved = read_items(PAGE).keys() & claimed(ROOT / "tests")
    assert {decision: cited for decision, cited in DECISIONS if not set(cited.split()) <= proved} == {}
