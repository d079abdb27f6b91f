"""Short ids, the filters of `tasks`, and completion in a real shell."""

import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from settings import ROOT
from store.keys import Right
from tests.behaviour.supervision.people import bearer
from tests.support.command import cli
from tests.support.stack import Stack
from tests.support.terminal import TAB, Terminal


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    return {**stack.env, "XDG_STATE_HOME": str(tmp_path), "NO_COLOR": "1"}


Errand = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def errand(stack: Stack, tmp_path: Path) -> Errand:
    async def run(*args: str, state: Path = tmp_path) -> tuple[int, str]:
        said = await cli(stack, *args, state=state, input=None, **stack.env)
        return said.exit_code, said.output

    return run


async def test_prefix_last_and_dash_name_a_task(stack: Stack, errand: Errand) -> None:
    first = await stack.submit("[[script:say words=3]]", title="the first of two")
    await stack.wait(first)
    second = await stack.submit("[[script:say words=3]]", title="the second of two")
    await stack.wait(second)
    listed = (await stack.http.get("/tasks?limit=200&text=OF+two&top_level=true&own=true")).json()["items"]
    short = {one["task_id"]: one["short_id"] for one in listed}
    assert set(short) == {first, second}
    code, shown = await errand("show", short[first])
    assert code == 0 and first in shown and "the first of two" in shown
    code, shown = await errand("show", "-")
    assert code == 0 and first in shown
    foreign = {"agent": "tester", "input": "[[script:say words=3]]"}
    submitted = await stack.http.post("/tasks", json=foreign, headers=await bearer(stack, Right.SUBMIT))
    assert submitted.status_code == 202
    code, shown = await errand("show", "last")
    assert code == 0 and second in shown  # the caller's newest task, not the newest of all
    code, shown = await errand("show", short[first].upper())
    assert code == 0 and first in shown


async def test_unknown_and_ambiguous_prefixes_are_named(stack: Stack, errand: Errand, tmp_path: Path) -> None:
    ids = [await stack.submit("[[script:say words=3]]", title=f"number {n}") for n in range(2)]
    code, shown = await errand("show", "zzzz")
    assert code == 4 and "no id begins with 'zzzz'" in shown
    code, shown = await errand("cancel", "0")
    assert code == 2 and "several ids begin with '0'" in shown and "number 1" in shown and "number 0" in shown
    for task_id in ids:
        assert (await stack.wait(task_id))["status"] == "completed"  # nothing was cancelled
    code, shown = await errand("show", "a b")
    assert code == 4 and "is not the beginning of an id" in shown
    code, shown = await errand("show", "-", state=tmp_path / "fresh")
    assert code == 4 and "no task was used here before" in shown


async def test_tasks_shows_top_level_tasks_and_a_subagent_names_its_parent(stack: Stack, errand: Errand) -> None:
    parent = await stack.submit("Ask the researcher to look for lighthouses", "assistant", title="lead of the ids test")
    child = str((await stack.seen(parent, "subagent_started"))["child_session_id"])
    await stack.wait(parent)
    await stack.wait(child)
    record = await stack.record(child)
    assert (record["spawned_by"], record["parent_session_id"]) == (parent, None)
    own = json.loads((await errand("tasks", "--limit", "200", "--json"))[1])["items"]
    everything = json.loads((await errand("tasks", "--all", "--limit", "200", "--json"))[1])["items"]
    assert parent in {one["task_id"] for one in own} and child not in {one["task_id"] for one in own}
    assert {parent, child} <= {one["task_id"] for one in everything}
    code, shown = await errand("tasks", "--text", "LEAD of the ids")
    assert code == 0 and shown.count("lead of the ids test") == 1


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(./errand completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(./errand completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "./errand completion fish | source"),
}


@pytest.mark.parametrize("name", SHELLS)
async def test_shells_complete_commands_ids_and_agents(
    stack: Stack, environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    task_id = await stack.submit("[[script:say words=3]]", title="to be completed")
    await stack.wait(task_id)
    command = tmp_path / "errand"  # not on the path, as in a checkout
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cli "$@"\n')
    command.chmod(0o755)
    env = {**environment, "PS1": "$ ", "HISTFILE": "/dev/null", "HOME": str(tmp_path)}
    argv, setup = SHELLS[name]

    def complete() -> None:
        with Terminal(env=env, argv=argv, cwd=tmp_path) as shell:
            shell.type(f"{setup}; echo rea''dy")
            shell.expect("ready")
            # completion is checked by the result of the command, because shells redraw a line in pieces
            shell.type("./errand conver", TAB)
            shell.type("--help")
            shell.expect("Usage: ")
            shell.type("~/errand run resear", TAB)
            shell.type("'[[script:say words=2]]' --detach --json")
            shell.expect('{"task_id":"')
            shell.type(f"./errand show {task_id[:20]}", TAB)
            shell.type("; echo sh''own")
            shell.expect("to be completed")
            shell.expect("shown")
            # with invalid settings, commands are still completed, ids are not, and no error is printed
            shell.type("export ERRAND_PORT=many; echo s''et")
            shell.expect("set")
            shell.type(f"./errand show {task_id[:20]}", TAB)
            shell.type("")
            assert "Traceback" not in shell.expect("ERRAND_PORT: 'many' is not a valid int")
            shell.type("./errand conver", TAB)
            shell.type("--help; echo do''ne")
            shell.expect("Usage: ")
            assert "Traceback" not in shell.expect("done")

    await asyncio.to_thread(complete)


async def test_models_shows_who_answers_and_what_it_costs(errand: Errand) -> None:
    code, shown = await errand("models", "--json")
    assert code == 0, shown
    found = {one["provider"]: one for one in json.loads(shown)["items"]}
    assert found["anthropic"]["default"] and found["anthropic"]["problem"] is None
    assert found["anthropic"]["prices"] == "anthropic" and found["openai"]["prices"] is None  # on this machine
    assert "Set a valid key of [providers.locked]" in found["locked"]["problem"]
    assert "seems to speak another one" in found["mistaken"]["problem"]
    assert "invalid" not in json.dumps([one["endpoint"] for one in found.values()])
    code, shown = await errand("models", "claude-opus-4-5", "openai/gpt-4o", "openai/mystery")
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    assert rows["claude-opus-4-5"][:2] == ["$5", "$25"] and rows["openai/mystery"][:2] == ["unknown", "unknown"]
    assert rows["openai/gpt-4o"][:2] == ["$2.5", "$10"]
    code, shown = await errand("models", "nobody/x")
    assert code == 1 and "there is no provider 'nobody'; there are anthropic, " in shown
    assert "locked, mistaken, openai" in shown
