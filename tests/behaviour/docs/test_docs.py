"""The commands in the README and the docs work and print what the page shows."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytest_asyncio

from activities.egress import Fetcher
from activities.handlers.registry import load_handlers
from activities.hooks.hook import load_hooks
from activities.sandbox import Refusing
from activities.tools.registry import TOOLS, load_tools
from activities.tools.tool import ToolContext
from domain.agents.definition import AgentDefinition
from domain.agents.handler import HandlerMessage, HandlerTurn, Speaker
from domain.agents.hook import BeforeTool
from domain.events import EVENTS
from domain.ids import new_id
from domain.sessions.session import SessionRef
from settings import ROOT
from store.keys import Right
from tests.support.command_server import write_program
from tests.support.launch import running
from tests.support.layering import PACKAGES
from tests.support.stack import Stack, eventually
from workflows.registry import WORKFLOWS

PAGES = [
    *("README.md", "tests/contract.md"),
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
]
RUNNABLE = [page for page in PAGES if re.search(r"^```sh$", (ROOT / page).read_text(), re.MULTILINE)]
_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]+))?\)")
_MARK = "@@ block {} @@"
SAME = ("/type", "/name")  # values that a reader will compare
WRITTEN_AT = "http://127.0.0.1:8700"


@dataclass(frozen=True)
class Block:
    info: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(match[1], match[2]) for match in _BLOCK.finditer((ROOT / page).read_text())]


def script(page: str, url: str) -> str:
    """Return all blocks to be run as one script, so that later ones can use variables of earlier ones. A refused
    request fails the script unless the page shows the refusal."""
    refused = {number for number, sample in shown(page) if isinstance(sample.get("status"), int)}
    lines = ["set -eu"]
    for number, block in enumerate(blocks(page)):
        if block.info == "sh":
            fail = "" if number in refused else "--fail-with-body"
            lines += [f'curl() {{ command curl {fail} "$@"; }}', f"echo '{_MARK.format(number)}'"]
            lines += [block.text.replace(WRITTEN_AT, url), "echo"]
    return "\n".join([*lines, f"echo '{_MARK.format('end')}'"])


def outputs(stdout: str) -> dict[int, str]:
    pieces = re.split(r"^@@ block (\d+|end) @@$", stdout, flags=re.MULTILINE)
    assert pieces[-2] == "end"
    return {int(number): text for number, text in zip(pieces[1:-2:2], pieces[2:-2:2], strict=True)}


def shown(page: str) -> Iterator[tuple[int, Any]]:
    """Return each answer that the page shows, with the number of the block that requests it."""
    for number, block in enumerate(blocks(page)):
        if block.info == "json answer":
            yield number - 1, json.loads(block.text)


def differences(sample: Any, real: Any, where: str = "") -> Iterator[str]:
    """Return the parts of the sample that the real answer lacks or has with another type; values may differ."""
    if isinstance(sample, dict) and isinstance(real, dict):
        for name, value in sample.items():
            if name not in real:
                yield f"{where}/{name} is missing"
            else:
                yield from differences(value, real[name], f"{where}/{name}")
    elif isinstance(sample, list) and isinstance(real, list):
        if sample and not real:
            yield f"{where} is empty"
        for place, value in enumerate(sample[: len(real)]):
            yield from differences(value, real[place], f"{where}/{place}")
    elif type(sample) is not type(real) or (where in SAME and sample != real):
        yield f"{where} is {real!r}"


@pytest_asyncio.fixture(scope="module")
async def commands(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The address of a server of commands. The script `./errand` itself is run by the tutorial."""
    folder = tmp_path_factory.mktemp("commands")
    argv = [sys.executable, "-m", "tests.support.command_server", str(folder / "socket")]
    async with running(argv, folder / "log", {"PATH": os.environ["PATH"]}):
        await eventually(lambda: asyncio.to_thread((folder / "socket").is_socket), what="the commands are imported")
        yield folder / "socket"


@pytest.mark.parametrize("page", RUNNABLE)
async def test_commands_in_docs_work_and_print_what_is_shown(
    stack: Stack, commands: Path, tmp_path: Path, page: str
) -> None:
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.name != "errand":
            (tmp_path / entry.name).symlink_to(entry)
    write_program(tmp_path / "errand", commands)
    command = await asyncio.create_subprocess_exec(
        *("sh", "-c", script(page, stack.url)),
        cwd=tmp_path,
        env={**os.environ, **stack.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = await asyncio.wait_for(command.communicate(), 180)
    finally:
        if command.returncode is None:  # a page may wait in a loop, which would continue after its shell has ended
            os.killpg(command.pid, signal.SIGKILL)
    assert command.returncode == 0, stdout.decode()[-2_000:] + stderr.decode()[-2_000:]
    answered = outputs(stdout.decode())
    for number, sample in shown(page):
        real = json.loads(answered[number])
        assert list(differences(sample, real)) == [], real


@pytest.mark.parametrize("page", PAGES)
def test_samples_that_are_not_run_name_the_test_that_runs_them(page: str) -> None:
    for block in blocks(page):
        assert block.info in ("sh", "json answer", "text", "mermaid") or block.info.startswith(
            ("sh norun=", "python file=")
        )
        if block.info.startswith("sh norun="):
            assert (ROOT / block.info.removeprefix("sh norun=")).is_file(), block.info


@pytest.mark.parametrize("page", PAGES)
def test_links_in_docs_lead_somewhere(page: str) -> None:
    for target, place in _LINK.findall((ROOT / page).read_text()):
        led = (ROOT / page).parent.joinpath(target) if target else ROOT / page
        assert led.exists(), target
        headings = re.findall(r"^#+ (.+)$", led.read_text(), re.MULTILINE) if place else [place]
        assert place in [re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings], place


def first_cells(page: str, heading: str) -> list[str]:
    """Return the names in code type in the first column of the table under a heading."""
    section = (ROOT / page).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_map_names_every_folder_and_only_what_exists() -> None:
    mapped = first_cells("docs/contributing.md", "The tree")
    assert all((ROOT / path).exists() for path in mapped)
    assert {*(f"{package}/" for package in (*PACKAGES, "tests", "docs")), "settings.py", "worker.py"} <= set(mapped)


def test_architecture_page_names_every_workflow() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|.*`workflows/[\w/]+\.py` \|$", text, re.MULTILINE)
    assert sorted(named) == sorted(workflow.__name__ for workflow in WORKFLOWS)


def test_files_where_changes_land_exist() -> None:
    section = (ROOT / "docs/contributing.md").read_text().split("## Where common changes land")[1].split("\n## ")[0]
    for path in re.findall(r"`([a-z_/.]+)`", section):
        assert (ROOT / path).exists(), path


def test_files_on_the_path_of_a_request_exist() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+(?:\.py|\.sql|/))`", (ROOT / "docs/architecture.md").read_text())
    assert [path for path in named if not (ROOT / path).exists()] == [] and len(named) > 10


def test_tables_name_every_event_field_right_and_tool() -> None:
    assert set(first_cells("docs/api.md", "Follow")) == {event.type for event in EVENTS}
    assert set(first_cells("docs/agents.md", "Fields")) == set(AgentDefinition.model_fields) - {"prompt"}
    assert set(first_cells("docs/operations.md", "Keys")) == set(Right)
    page = (ROOT / "docs/tools.md").read_text()
    rows = [re.findall(r"`([a-z_]+)`", line) for line in page.split("## The effect")[0].splitlines()]
    documented = {name: effect for *names, effect in filter(None, rows) for name in names}
    assert documented == {name: tool.effect for name, tool in TOOLS.items()}


async def test_sample_tool_loads_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = [block for block in blocks("docs/tools.md") if block.info.startswith("python file=")]
    (tmp_path / sample.info.removeprefix("python file=")).write_text(sample.text)
    monkeypatch.syspath_prepend(tmp_path)
    tool = load_tools("my_tools").found["look_up_order"]
    monkeypatch.delitem(sys.modules, "my_tools")
    context = ToolContext(
        ref=SessionRef(tenant="default", session_id=new_id(), conversation_id=new_id()),
        agent="tester",
        workspace=tmp_path,
        key="node:0",
        again=False,
        plan=None,
        sandbox=Refusing("not here", ""),
        fetcher=Fetcher(()),
        network=None,
        subagents=cast(Any, None),
        state=cast(Any, None),
    )
    result = await tool.run(tool.input.model_validate({"order": "123456"}), context)
    assert not result.failed and (tmp_path / "123456.txt").read_text() == "on its way"
    assert tool.call_summary({"order": "123456"}) == "order 123456"


async def test_sample_handler_loads_and_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = [block for block in blocks("docs/graphs.md") if block.info == "python file=my_handlers.py"]
    (tmp_path / sample.info.removeprefix("python file=")).write_text(sample.text)
    monkeypatch.syspath_prepend(tmp_path)
    handler = load_handlers("my_handlers").found["accept_short"]
    monkeypatch.delitem(sys.modules, "my_handlers")
    for text, ends in (("Short.", "stop"), ("Long. " * 100, None)):
        said = [HandlerMessage(speaker=Speaker.OTHER, text=text)]
        turn = HandlerTurn(key="k", session_id=new_id(), agent="x", side="b", step=2, messages=said)
        assert (await handler(turn)).ends == ends


async def test_sample_hooks_load_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample,) = [block for block in blocks("docs/graphs.md") if block.info == "python file=my_hooks.py"]
    (tmp_path / sample.info.removeprefix("python file=")).write_text(sample.text)
    monkeypatch.syspath_prepend(tmp_path)
    hooks = load_hooks("my_hooks").found
    monkeypatch.delitem(sys.modules, "my_hooks")
    about = {"session_id": "s", "conversation_id": "s", "agent": "x", "step": 1, "key": "k", "arguments": {}}
    state = cast(Any, SimpleNamespace(variables={"WEEKEND": "yes"}))
    for tool, refused in (("deploy", True), ("look", False)):
        reply = await hooks["no_weekend_deploys"].run(BeforeTool.model_validate({**about, "tool": tool}), state)
        assert bool(reply and reply.refusal) == refused
    assert set(hooks) == {"no_weekend_deploys", "report"}
