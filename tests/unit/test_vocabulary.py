"""Product, tests and documents use no retired names or phrases, and no class name of the product means two things."""

from pathlib import Path

import pytest

from settings import ROOT
from tests.support.vocabulary import repeated_classes, retired_uses, too_many

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
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return [use.text for use in retired_uses(root)]


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
