"""The demos call the real tools, and the results determine their next steps."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from activities.sandbox.sandbox import SandboxResult
from activities.tools.registry import TOOLS
from cli.commands.demo import REPOSITORY
from tests.behaviour.offline.demo_loop import AGENTS, LocalCommands, NoCommands, work


async def test_assistant_computes_and_replans_when_a_command_fails(tmp_path: Path) -> None:
    run = await work("assistant", "Compute the first 7 primes", tmp_path)
    assert "2, 3, 5, 7, 11, 13, 17" in run.final
    assert run.replans == 1
    assert "ermission denied" in run.reasons[0]  # a written file is not executable
    assert run.artifacts.keys() == {"result.md", "primes.py"}
    assert "2, 3, 5, 7, 11, 13, 17" in run.artifacts["result.md"]
    assert run.progress


@pytest.mark.parametrize(
    ("request_text", "numbers"),
    [("the first 5 square numbers", "1, 4, 9, 16, 25"), ("8 fibonacci numbers please", "1, 1, 2, 3, 5, 8, 13, 21")],
)
async def test_assistant_computes_what_the_request_asks_for(tmp_path: Path, request_text: str, numbers: str) -> None:
    assert numbers in (await work("assistant", request_text, tmp_path)).final


async def test_assistant_says_that_nothing_can_run(tmp_path: Path) -> None:
    run = await work("assistant", "Compute the first 6 primes", tmp_path, NoCommands())
    assert "not run" in run.final and "no sandbox" in run.final
    assert "2, 3, 5" not in run.final
    assert (tmp_path / "primes.py").exists()


async def test_assistant_does_not_claim_a_file_it_could_not_write(tmp_path: Path) -> None:
    (tmp_path / "primes.py").mkdir()  # a folder has the name of the file
    run = await work("assistant", "Compute the first 6 primes", tmp_path, NoCommands())
    assert run.final.startswith("primes.py could not be written, so there is no result: ")


async def test_assistant_looks_around_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Lighthouse log\nKept since 1871.\n")
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    run = await work("assistant", "Look around and tell me what you see", tmp_path)
    assert "Lighthouse log" in run.final and "2 files" in run.final and "data.csv" in run.final
    assert run.replans == 0
    blind = await work("assistant", "Look around and tell me what you see", tmp_path, NoCommands())
    assert blind.replans == 1
    assert "data.csv has 2 lines" in blind.final


async def test_researcher_quotes_real_lines(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "lighthouse.md").write_text("Intro\n\nThe lighthouse was built in 1871 by Ann Lee.\n")
    (tmp_path / "other.txt").write_text("Nothing to see here.\n")
    run = await work("researcher", "When was the lighthouse built?", tmp_path)
    assert "The lighthouse was built in 1871 by Ann Lee." in run.final
    assert "[notes/lighthouse.md:3]" in run.final
    assert run.artifacts["report.md"] == (tmp_path / "report.md").read_text()
    assert "[notes/lighthouse.md:3]" in run.artifacts["report.md"]
    assert run.replans == 0


async def test_researcher_replans_without_a_match_or_an_address(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("About whales.\n")
    run = await work("researcher", "When was the lighthouse built? See https://example.org/x", tmp_path)
    assert run.replans == 2
    assert "cannot be reached" in run.reasons[0]
    assert "No file mentions lighthouse" in run.reasons[1]
    assert "About whales." in run.artifacts["report.md"]
    assert "cannot be reached" in run.artifacts["report.md"]


def code(folder: Path, correct: bool = True) -> None:
    (folder / "calc.py").write_text(
        "def run(text):\n    try:\n        return eval(text)\n    except:\n        return None  # TODO\n"
        if not correct
        else "def add(a, b):\n    return a + b\n"
    )
    wrong = "import unittest\nimport calc\n\n\nclass T(unittest.TestCase):\n    def test_run(self):\n"
    wrong += (
        "        self.assertEqual(calc.run('1+1'), 3)\n"
        if not correct
        else "        self.assertEqual(calc.add(1, 1), 2)\n"
    )
    (folder / "test_calc.py").write_text(wrong)


class NoPytest(LocalCommands):
    async def run(self, command: str, **options: Any) -> SandboxResult:
        if "pytest" in command:
            return SandboxResult(1, "/usr/bin/python3: No module named pytest", self.name)
        return await super().run(command, **options)


class PytestSays(LocalCommands):
    def __init__(self, code: int, output: str) -> None:
        self._result = SandboxResult(code, output, self.name)

    async def run(self, command: str, **options: Any) -> SandboxResult:
        return self._result if "pytest" in command else await super().run(command, **options)


async def test_reviewer_finds_real_lines_and_uses_another_check_without_pytest(tmp_path: Path) -> None:
    code(tmp_path, correct=False)
    run = await work("code-reviewer", "Review this code", tmp_path, NoPytest())
    assert "cannot run here" in run.reasons[0] and "No module named pytest" in run.reasons[0]
    assert run.calls.count("bash") == 2
    review = run.artifacts["review.md"]
    assert "calc.py:3" in review and "eval" in review
    assert "calc.py:4" in review and "calc.py:5" in review
    assert "FAILED (failures=1)" in review
    assert "not ready" in run.final


async def test_reviewer_approves_good_code(tmp_path: Path) -> None:
    code(tmp_path)
    run = await work("code-reviewer", '{"path": "."}', tmp_path, PytestSays(0, "1 passed"))
    assert run.final.startswith("Verdict: ready (0 high, 0 medium, 0 low).")
    assert run.replans == 0


def material(folder: Path) -> None:
    for name, line in (
        ("a.md", "The harbour needs a crane."),
        ("b.md", "No harbour is cheap."),
        ("c.txt", "Harbour: 9 m."),
    ):
        (folder / name).write_text(f"{name}\n\n{line}\n")
    (folder / "d.md").write_text("The harbour silts up.\n")


async def test_orchestrator_lists_a_part_that_fails_twice_as_open(tmp_path: Path) -> None:
    material(tmp_path)
    run = await work(
        "orchestrator", "About the harbour", tmp_path, failing=lambda child: child in ("child-2", "child-4")
    )
    assert "Part 2 was not done: The model cannot be reached.; then again:" in run.artifacts["summary.md"]
    assert "Part 2 was not done" in run.final and "2 reports" in run.final
    assert "The harbour needs a crane." in run.final


async def test_demo_leaves_out_tools_that_are_not_offered(tmp_path: Path) -> None:
    material(tmp_path)
    run = await work("orchestrator", "About the harbour", tmp_path, without=("async_task", "task", "update_plan"))
    assert "async_task" not in run.calls and not run.plans
    assert "I read it myself" in run.final and "The harbour needs a crane." in run.final


@pytest.mark.parametrize("agent", sorted(name for name, agent in AGENTS.items() if agent.prompt))
async def test_demos_with_hardly_any_tools_still_end(tmp_path: Path, agent: str) -> None:
    only = tuple(name for name in TOOLS if name != "list_files")
    run = await work(agent, "Look at the primes and review the files", tmp_path, without=only)
    assert run.final


SHOP = "def total(prices):\n    sum = 0\n    for price in prices:\n        sum = sum - price\n    return sum\n"
SHOP_TEST = """import unittest
from shop import total

class Totals(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([1, 2]), 3)
"""
MEND = "Mend what makes `python3 -m unittest -q` fail."


async def test_mender_reverts_changes_that_do_not_help(tmp_path: Path) -> None:
    broken = SHOP.replace("return sum", "return 7 - 1 + 1")
    (tmp_path / "shop.py").write_text(broken)
    (tmp_path / "test_shop.py").write_text(SHOP_TEST)
    run = await work("mender", MEND, tmp_path)
    assert run.final.startswith("I could not mend it.") and run.artifacts == {}
    assert (tmp_path / "shop.py").read_text() == broken


async def test_coder_mends_the_repository_of_the_demo(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY, tmp_path, dirs_exist_ok=True)
    run = await work("coder", "A test of this project fails. Find the cause and mend it.", tmp_path)
    assert "passes now" in run.final and "return sunrise - 24 - sunset" in run.final
    assert "return sunrise + 24 - sunset" in (tmp_path / "lights.py").read_text()
    (tmp_path / "lights.py").write_text("def hours_lit(a, b):\n    return 1\n\ndef cost(**given):\n    return 2\n")
    lost = await work("coder", "A test of this project fails. Find the cause and mend it.", tmp_path)
    assert lost.final.startswith("I could not mend it.") and lost.replans == 1
    (tmp_path / "test_lights.py").write_text("")
    fine = await work("coder", "Run `true`, and mend what fails.", tmp_path)
    assert "there is nothing to mend" in fine.final
