"""The command line with a checkout: send it, look at the changes, apply them; environments."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from cli.errors import Exit
from domain.ids import new_id
from tests.behaviour.repositories.conftest import user
from tests.support.command import cli
from tests.support.git_server import git, make_repository
from tests.support.stack import Stack, of_type, steps

WORK = steps([("bash", {"command": "cat notes.txt && seq 2 10 >> numbers.txt && git commit -qam Numbers"})])


def list_demos(folder: Path) -> list[Path]:
    return list(folder.glob("errand-demo-*"))


async def errand(stack: Stack, state: Path, *args: str, given: str = "", **env: str) -> tuple[int, str]:
    said = await cli(stack, *args, input=given, state=state, **env)
    return said.exit_code, said.output


async def test_a_checkout_is_sent_changed_compared_and_applied(stack: Stack, tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    make_repository(shop, {"numbers.txt": "1\n", "below/x.txt": "x\n"})
    (shop / "notes.txt").write_text("not committed\n")
    code, said = await errand(stack, tmp_path, "run", "tester", WORK, "--repo", str(shop))
    assert code == 0 and "repository ready: " in said, said
    twice = ("run", "tester", WORK, "--repo", str(shop), "--ref", "main", "--ref", "next")
    assert (await errand(stack, tmp_path, *twice))[0] == Exit.USAGE
    assert "not committed" in said and git(shop, "status", "--short") == "?? notes.txt"
    code, patch = await errand(stack, tmp_path, "diff", "last")
    assert code == 0 and "+10" in patch and "notes.txt" not in patch
    apply = ("apply", "last", str(shop / "below"))  # anywhere in the checkout
    assert (await errand(stack, tmp_path, *apply, "--check"))[0] == 0
    assert (shop / "numbers.txt").read_text() == "1\n"
    code, said = await errand(stack, tmp_path, *apply)
    assert (
        code == 0 and "numbers.txt" in said and (shop / "numbers.txt").read_text().split() == [*map(str, range(1, 11))]
    )
    code, said = await errand(stack, tmp_path, *apply)  # a second time it does not fit, and changes nothing
    assert code == 1 and "nothing was changed" in said and len((shop / "numbers.txt").read_text().split()) == 10


async def test_credentials_are_set_listed_and_removed(stack: Stack, tmp_path: Path) -> None:
    name = f"c-{new_id()}"
    set_it = ["credentials", "set", name, "--host", "git.example.org", "--write"]
    code, said = await errand(stack, tmp_path, *set_it, given="token-0123456789\n")
    assert code == 0 and "git.example.org" in said and "write" in said, said
    listed = (await errand(stack, tmp_path, "credentials"))[1]
    assert name in listed and "token-0123456789" not in said + listed
    assert (await errand(stack, tmp_path, "credentials", "remove", name))[0] == 0
    assert name not in (await errand(stack, tmp_path, "credentials"))[1]
    async with user(stack) as alice:
        key = {"ERRAND_API_KEY": alice.http.headers["Authorization"].removeprefix("Bearer ")}
        code, said = await errand(stack, tmp_path, *set_it, "--mine", given="token-0123456789\n", **key)
        assert code == 0 and said.splitlines()[-1].split()[:2] == [name, "user"], said
        assert name not in (await errand(stack, tmp_path, "credentials"))[1]
        assert (await errand(stack, tmp_path, "credentials", "remove", name, **key))[0] == Exit.REFUSED  # the tenant's
        assert (await errand(stack, tmp_path, "credentials", "remove", name, "--mine", **key))[0] == 0
        assert name not in (await errand(stack, tmp_path, "credentials", **key))[1]


async def test_environments_are_set_shown_and_removed(stack: Stack, tmp_path: Path) -> None:
    name, url = f"e-{new_id()}", "https://git.example.org/shop.git"
    said = (await errand(stack, tmp_path, "environments", "set", name, url, "--ref", "main", "--setup", "make deps"))[1]
    assert url in said and "make deps" in said
    assert name in (await errand(stack, tmp_path, "environments"))[1]
    assert (await errand(stack, tmp_path, "environments", "show", name))[1] == said
    assert (await errand(stack, tmp_path, "environments", "remove", name))[0] == 0
    assert (await errand(stack, tmp_path, "environments", "show", name))[0] == 4
    code, said = await errand(stack, tmp_path, "run", "tester", "x", "--environment", name)
    assert code == 5 and "no such environment" in said, (code, said)


async def test_the_demo_mends_a_repository_and_its_patch_makes_the_test_pass(stack: Stack, tmp_path: Path) -> None:
    env = {**os.environ, **stack.env, "TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "here").mkdir()
    command = [sys.executable, "-m", "cli", "demo", "fix"]  # a process reads TMPDIR once
    demo = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path / "here", env=env, capture_output=True, text=True, timeout=120
    )
    said = demo.stdout + demo.stderr
    assert demo.returncode == 0 and "24 - sunset" in said, said
    [folder] = list_demos(tmp_path)
    assert f"apply last {folder}" in said

    def tested() -> int:
        command = [sys.executable, "-B", "-m", "unittest", "-q"]
        return subprocess.run(command, cwd=folder, capture_output=True).returncode

    assert await asyncio.to_thread(tested) != 0
    code, patch = await errand(stack, tmp_path / "state", "diff", "last")
    assert "+    return sunrise + 24 - sunset" in patch and patch.count("diff --git") == 1
    assert (await errand(stack, tmp_path / "state", "apply", "last", str(folder)))[0] == 0
    assert await asyncio.to_thread(tested) == 0
    # the files of the repository had their say
    [task] = (await stack.http.get("/tasks", params={"text": "A test of this project fails"})).json()["items"][:1]
    tools = [one.get("tool") for one in of_type(await stack.events(task["task_id"]), "tool_called")]
    assert {"load_skill", "search_files", "edit_file"} <= set(tools), tools
