"""What goes wrong with repositories: kills, workers that are behind, neighbours, and repositories that attack."""

import asyncio
import hashlib
import random
import re
import time
from pathlib import Path

import pytest

from activities import trees
from activities.egress import Guard
from activities.environments import Environments
from activities.sandbox import Commands, SandboxLimits, choose
from activities.trees import Mirrors, TreeError
from activities.workspaces import Workspaces, lock_workspace
from domain.environments import Checkout, Tree, TreeSource
from domain.ids import new_id
from domain.sealing import KeyRing
from store import environments, workspaces
from tests.behaviour.repositories.conftest import Origin, artifact, define
from tests.support.git_server import git, make_repository
from tests.support.stack import Stack, calls, eventually, of_type, steps


async def exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def test_a_kill_in_the_setup_and_in_a_call_loses_nothing_of_the_tree(stack: Stack, origin: Origin) -> None:
    """One kill for two tasks: in the setup of one, and in a call of the other."""
    environment = await define(stack, origin.url, setup="echo run >> runs; sleep 3; echo finished > finished")
    working = await stack.submit(
        steps(
            [("bash", {"command": "echo more >> app.py && git commit -qam More && rm old.txt"})],
            [("bash", {"command": "echo begun > begun; sleep 60"})],
            [("bash", {"command": "git log --format=%s; git status --short"})],
        ),
        config={"environment": await define(stack, origin.url)},
    )

    await eventually(lambda: exists(stack.workspace(working) / "begun"), what="the call runs")
    look = calls(("bash", {"command": "sort -u runs finished"}))
    preparing = await stack.submit(look, config={"environment": environment})
    await eventually(lambda: exists(stack.workspace(preparing) / "runs"), what="the setup runs")
    await stack.back("worker", await stack.kill("worker"))
    for task_id in (preparing, working):
        assert (await stack.wait(task_id))["status"] == "completed"
    assert "finished\nrun" in (await stack.result(preparing))["output"]
    events = await stack.events(preparing)
    assert len(of_type(events, "tree_prepared")) == len(of_type(events, "setup_finished")) == 1
    seen = str((await stack.asked(working))[3]["body"]["messages"][-1])
    assert "More" in seen and "Add the files" in seen and " D old.txt" in seen
    patch = await artifact(stack, working, "changes.patch")
    assert b"+more" in patch and b"deleted file" in patch


async def test_a_killed_fetch_does_not_block_the_repository(stack: Stack, origin: Origin) -> None:
    """Locks of git, a bundle that nobody names, and half a pack."""
    environment = await define(stack, origin.url)
    assert (await stack.run("look", config={"environment": environment}))["status"] == "completed"
    digest = hashlib.sha256(origin.url.encode()).hexdigest()[:32]
    mirror = stack.settings.workspaces_dir.with_name("mirrors") / "default" / digest / "mirror"
    left = [mirror / name for name in ("shallow.lock", "config.lock", "incoming.bundle", "objects/pack/tmp_pack_x")]
    for path in left:
        path.write_bytes(b"left behind")
    (origin.folder / "app.py").write_text("print('newer')\n")
    git(origin.folder, "commit", "-qam", "Newer")
    record = await stack.run(calls(("bash", {"command": "cat app.py"})), config={"environment": environment})
    assert record["status"] == "completed" and "newer" in (await stack.result(record["task_id"]))["output"]
    assert not [path for path in left if path.exists()]


async def test_a_worker_behind_does_not_publish_an_older_tree(stack: Stack, tmp_path: Path) -> None:
    async def build(tenant: str, session_id: str, tree: Tree, folder: Path) -> None:
        for name in ("app.py", "old.txt", "kept.txt"):
            (folder / name).write_text("first\n")

    space, one = new_id(), Checkout(url="https://git.example.org/a", commit="0" * 40, branch="errand/x")
    tree = Tree(checkouts=[one])
    await environments.set_tree(stack.pool, "default", space, tree)
    ahead, behind, fresh = (Workspaces(stack.pool, tmp_path / name, build_tree=build) for name in "abc")
    here, there = [await one.ready("default", space, 0) for one in (ahead, behind)]
    (here / "app.py").write_text("newest\n")
    (here / "old.txt").unlink()
    await ahead.keep("default", space)
    (there / "other.txt").write_text("mine\n")
    await behind.keep("default", space)
    version, _ = await workspaces.get(stack.pool, "default", space)
    for worker in (fresh, behind, ahead):
        found = await worker.ready("default", space, version)
        texts = {path.name: path.read_text() for path in found.iterdir()}
        assert texts == {"app.py": "newest\n", "kept.txt": "first\n", "other.txt": "mine\n"}


async def test_a_stalled_command_that_ends_after_its_step_was_closed_writes_nothing(
    stack: Stack, origin: Origin
) -> None:
    """Its worker was believed dead, so another one has recorded that nobody knows how far it came."""
    command = "echo begun > begun; sleep 3; echo late > app.py; touch late.txt"
    task_id = await stack.submit(
        calls(("bash", {"command": command})), config={"environment": await define(stack, origin.url)}
    )

    begun = stack.workspace(task_id) / "begun"
    await eventually(lambda: exists(begun))
    closed = "UPDATE tool_calls SET state = 'unknown', result = 'unknown', ended_at = now() WHERE session_id = $1"
    await stack.pool.execute(closed, task_id)
    assert (await stack.wait(task_id))["status"] == "completed"
    _, manifest = await workspaces.get(stack.pool, "default", task_id)
    assert not {"begun", "app.py", "late.txt"} & manifest.keys()

    async def left() -> bool:
        return not await exists(begun)

    await eventually(left)  # the next call does not work in what came too late, and does not keep it
    look = {"input": calls(("bash", {"command": "cat app.py; ls; echo new > new.txt"}))}
    answer = await stack.http.post(f"/conversations/{task_id}/messages", json=look)
    seen = (await stack.result((await stack.wait(answer.json()["session_id"]))["task_id"]))["output"]
    assert "print('one')" in seen and "late" not in seen and "begun" not in seen, seen
    _, manifest = await workspaces.get(stack.pool, "default", task_id)
    assert not {"begun", "app.py", "late.txt"} & manifest.keys() and "new.txt" in manifest


async def test_two_tasks_in_one_repository_see_nothing_of_each_other(stack: Stack, origin: Origin) -> None:
    environment = await define(stack, origin.url, setup="echo prepared > ignored.txt")
    config = {"environment": environment}
    mine = [
        ("bash", {"command": "echo mine > mine.txt; git add -A; git commit -qm Mine; git log -1 --format=commit=%H"})
    ]
    first = await stack.run(steps(mine), config=config)
    [commit] = re.findall(
        r"commit=([0-9a-f]{40})", str((await stack.asked(first["task_id"]))[1]["body"]["messages"][-1])
    )
    head = git(origin.folder, "rev-parse", "HEAD")
    look = "ls; git branch -a; git log --all --format=%s; git cat-file --batch-all-objects --batch-check; echo end"
    second = await stack.run(calls(("bash", {"command": look})), config=config)
    seen = str((await stack.asked(second["task_id"]))[1]["body"]["messages"][-1])
    assert "end" in seen and head in seen and "ine.txt" not in seen and "Mine" not in seen and commit not in seen


async def test_a_setup_is_taken_over_by_tasks_with_the_same_inputs(stack: Stack, origin: Origin) -> None:
    environment = await define(
        stack,
        origin.url,
        setup="mkdir made && echo $RANDOM$RANDOM > made/number && echo changed > app.py",
        maintenance="echo kept >> made/number",
        setup_inputs=["lib"],
    )
    outputs = []
    for change in (None, "app.py", "lib/deep.txt"):
        if change is not None:
            (origin.folder / change).write_text(f"{change} is new\n")
            git(origin.folder, "commit", "-qam", "More")
        look = calls(("bash", {"command": "echo number=$(cat made/number); cat app.py"}))
        record = await stack.run(look, config={"environment": environment})
        [done] = of_type(await stack.events(record["task_id"]), "setup_finished")
        seen = str((await stack.asked(record["task_id"]))[1]["body"]["messages"][-1])
        outputs.append((done["reused"], *re.findall(r"number=(\d+)( kept)?", seen), "app.py is new" in seen))
    (_, (first, _), _), (_, (second, _), _), (_, (third, _), _) = outputs
    assert second == first != third
    # the newer commit's file, not the one that the setup had changed
    assert outputs == [(False, (first, ""), False), (True, (first, " kept"), True), (False, (third, ""), False)]


async def test_a_repository_that_attacks_reaches_nothing(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    canary, folder = tmp_path / "canary", origin.folder
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (folder / ".gitmodules").write_text(f'[submodule "s"]\n path = s\n url = "ext::sh -c touch% {canary}"\n')
    (folder / ".gitconfig").write_text(f"[core]\n fsmonitor = touch {canary}\n hooksPath = hooks\n")
    (folder / "hooks").mkdir()
    for hook in ("post-checkout", "post-merge", "reference-transaction"):
        (folder / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {canary}\n")
        (folder / "hooks" / hook).chmod(0o755)
    (folder / "out").symlink_to("/")
    git(folder, "add", "-A")
    head = git(folder, "rev-parse", "HEAD")
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{head},s")
    git(folder, "commit", "-qm", "Attack")
    # names that some file systems take for .git and for a folder above
    entries = "".join(
        f"100644 blob {git(folder, 'rev-parse', 'HEAD:app.py')}\t{name}\n" for name in (".GIT", "..", ".git\u200c")
    )
    evil = git(folder, "commit-tree", git(folder, "mktree", given=entries), "-m", "Names")
    git(folder, "update-ref", "refs/heads/names", evil)
    environment = await define(stack, origin.url)
    reads = [("read_file", {"path": "out/etc/passwd"}), ("write_file", {"path": "out/tmp/x", "content": "x"})]
    record = await stack.run(
        steps(reads, [("bash", {"command": "git -c protocol.ext.allow=always submodule update --init; echo end"})]),
        config={"environment": environment},
    )
    assert record["status"] == "completed" and not canary.exists()
    replies = await stack.asked(record["task_id"])
    assert "root:" not in str(replies) and "end" in str(replies[2]["body"]["messages"][-1])
    began = time.monotonic()
    record = await stack.run("look", config={"environment": environment, "ref": "names"})
    assert (record["status"], record["error"]["type"]) == ("failed", "repository")
    assert time.monotonic() - began < 30  # its changes would be asked for during a minute


async def make_mirrors(stack: Stack, tmp_path: Path, limits: SandboxLimits | None = None) -> Mirrors:
    """Those of another worker."""
    commands, guard = (
        Commands(await choose("auto"), limits or SandboxLimits()),
        Guard(stack.settings.allow_private_hosts),
    )
    return Mirrors(stack.pool, tmp_path / "mirrors", commands, guard, Environments(stack.pool, KeyRing()))


async def choose_commit(mirrors: Mirrors, source: TreeSource) -> Tree:
    commit = await mirrors.find_commit("default", "", source)
    return Tree(checkouts=[Checkout(**source.model_dump(), commit=commit, branch="errand/x")])


@pytest.mark.parametrize(
    ("limits", "why"), [(SandboxLimits(files=2_000), "files"), (SandboxLimits(disk_bytes=4_000_000), "grew beyond")]
)
async def test_a_repository_that_unpacks_to_too_much_is_stopped(
    stack: Stack, origin: Origin, tmp_path: Path, limits: SandboxLimits, why: str
) -> None:
    """A few objects that check out as 10,000 files of 10 kB."""
    (origin.folder / "zeros").write_bytes(bytes(10_000))
    below = git(origin.folder, "hash-object", "-w", "zeros")
    kind, mode = "blob", "100644"
    for _ in range(4):
        entries = "".join(f"{mode} {kind} {below}\t{name}\n" for name in range(10))
        below, kind, mode = git(origin.folder, "mktree", given=entries), "tree", "040000"
    git(origin.folder, "update-ref", "refs/heads/bomb", git(origin.folder, "commit-tree", below, "-m", "Bomb"))
    mirrors = await make_mirrors(stack, tmp_path, limits)
    spaces = Workspaces(stack.pool, tmp_path / "spaces", build_tree=mirrors.build)
    tree, space = await choose_commit(mirrors, TreeSource(url=origin.url, ref="bomb", depth=1)), new_id()
    await environments.set_tree(stack.pool, "default", space, tree)
    with pytest.raises(TreeError, match=why):
        await spaces.ready("default", space, 0)
    left = await asyncio.to_thread(lambda: [one for one in (tmp_path / "spaces").rglob("*") if one.is_file()])
    assert len(left) <= 1, left[:5]  # the lock: nothing of it stays on the disk


async def test_mirrors_are_bounded_by_their_bytes(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    """Those that were not used for longest go, but neither the newest nor one that somebody works in."""
    mirrors = await make_mirrors(stack, tmp_path)

    async def fetch(name: str) -> Path:
        folder = origin.folder.with_name(name)
        if not folder.exists():
            make_repository(folder, {"large.bin": name})
            (folder / "large.bin").write_bytes(random.randbytes(2_000_000))
            git(folder, "add", "-A")
            git(folder, "commit", "-qm", "Large")
        source = TreeSource(url=f"{origin.place}/{name}")
        await mirrors.find_commit("default", "", source)
        return tmp_path / "mirrors/default" / hashlib.sha256(source.place.encode()).hexdigest()[:32]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "MIRROR_BYTES", 5_000_000)
        first, second = await fetch("first"), await fetch("second")
        assert first.exists() and second.exists()
        await fetch("first")
        async with lock_workspace(second):
            third = await fetch("third")
            assert first.exists() and second.exists() and third.exists()
        fourth = await fetch("fourth")
        assert [one.exists() for one in (first, second, third, fourth)] == [False, False, True, True]
        patch.setattr(trees, "MIRROR_BYTES", 1_000)
        assert (await fetch("third")).exists() and not fourth.exists()
