"""Tasks that work in a repository: the tree comes before the first step, travels between workers, leaves a patch."""

import asyncio
import json
import shutil
from pathlib import Path

from domain.ids import new_id
from tests.behaviour.repositories.conftest import Origin, artifact, define
from tests.support.git_server import git
from tests.support.stack import Stack, calls, eventually, of_type, steps


async def test_a_task_works_in_a_repository_and_leaves_a_patch(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    url, folder = origin.url, origin.folder
    environment = await define(stack, url, setup="echo prepared > ignored.txt; echo the setup ran")
    record = await stack.run(
        steps(
            [("bash", {"command": "cat app.py ignored.txt; git log --format=%s; git status --short; git branch"})],
            [("write_file", {"path": "app.py", "content": "print('two')\n"})],
            [("bash", {"command": "git rm -q old.txt && git commit -qam 'Remove the old file' && echo new > new.txt"})],
        ),
        config={"environment": environment},
    )
    assert record["status"] == "completed"
    task_id = record["task_id"]
    seen = str((await stack.asked(task_id))[1]["body"]["messages"][-1])
    assert "print('one')" in seen and "prepared" in seen and "Add the files" in seen and "* errand/" in seen
    events = await stack.events(task_id)
    [prepared], [setup] = of_type(events, "tree_prepared"), of_type(events, "setup_finished")
    assert prepared["commit"] == git(folder, "rev-parse", "HEAD")
    assert setup["ok"] and "the setup ran" in setup["log"]
    assert setup["seq"] < of_type(events, "step_started")[0]["seq"]
    # the patch applies elsewhere, without what git ignores, and the commit is in the bundle
    copy = tmp_path / "copy"
    git(tmp_path, "clone", "-q", str(folder), str(copy))
    (tmp_path / "c.bundle").write_bytes(await artifact(stack, task_id, "commits.bundle"))
    git(copy, "fetch", "-q", str(tmp_path / "c.bundle"), "HEAD")
    assert git(copy, "log", "-1", "--format=%s", "FETCH_HEAD") == "Remove the old file"
    patch = await artifact(stack, task_id, "changes.patch")
    (tmp_path / "changes.patch").write_bytes(patch)
    git(copy, "apply", str(tmp_path / "changes.patch"))
    assert (copy / "app.py").read_text() == "print('two')\n" and (copy / "new.txt").read_text() == "new\n"
    assert not (copy / "old.txt").exists() and not (copy / "ignored.txt").exists()


async def test_a_tree_travels_to_a_worker_that_has_nothing_of_it(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    url = origin.url
    environment, ledger = await define(stack, url, setup="echo prepared > ignored.txt"), tmp_path / "ledger"
    task_id = await stack.submit(
        steps(
            [("bash", {"command": "echo changed > app.py && git commit -qam Mine && rm old.txt && rm -r lib"})],
            [("bash", {"command": "echo late > late.txt && git add late.txt && mkdir lib && echo again > lib/other"})],
            [("ledger_again", {"path": str(ledger), "seconds": 3})],
            [("bash", {"command": "git log --format=%s; git status --short; cat app.py ignored.txt; ls lib"})],
        ),
        config={"environment": environment},
    )

    await eventually(lambda: asyncio.to_thread(ledger.exists))
    # as on another worker: neither the workspace nor the mirror is there
    await asyncio.to_thread(shutil.rmtree, stack.workspace(task_id).parent)
    await asyncio.to_thread(shutil.rmtree, stack.settings.workspaces_dir.with_name("mirrors") / "default")
    assert (await stack.wait(task_id))["status"] == "completed"
    seen = str((await stack.asked(task_id))[4]["body"]["messages"][-1])
    assert "Mine" in seen and "Add the files" in seen and "changed" in seen and "prepared" in seen
    assert " D old.txt" in seen and " D lib/deep.txt" in seen and "A  late.txt" in seen and "?? lib/other" in seen


async def test_a_later_turn_continues_in_the_same_tree(stack: Stack, origin: Origin) -> None:
    url, folder = origin.url, origin.folder
    environment = await define(stack, url, setup="echo ran >> count.txt")
    first = await stack.run(calls(("bash", {"command": "echo mine > mine.txt"})), config={"environment": environment})
    (folder / "app.py").write_text("print('later')\n")
    git(folder, "commit", "-qam", "Later")
    answer = await stack.http.post(
        f"/conversations/{first['conversation_id']}/messages",
        json={"input": calls(("bash", {"command": "cat app.py mine.txt count.txt"}))},
    )
    assert answer.status_code == 202, answer.text
    second = await stack.wait(answer.json()["session_id"])
    output = (await stack.result(second["task_id"]))["output"]
    assert "print('one')" in output and "mine" in output and output.count("ran") == 1
    assert b"mine.txt" in await artifact(stack, second["task_id"], "changes.patch")
    # a rerun and a fork begin with the same commit and the same changes
    look = calls(("bash", {"command": "cat app.py"}))
    for path, body in (
        (f"/tasks/{second['task_id']}/rerun", "{}"),
        ("/conversations/run", json.dumps({"fork_from": second["task_id"], "input": look, "transport": "stream"})),
    ):
        answer = await stack.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (201, 202), answer.text
        copy = await stack.wait(answer.json().get("session_id") or answer.json()["task_id"])
        assert copy["status"] == "completed"
        assert "print('one')" in (await stack.result(copy["task_id"]))["output"]
        assert b"mine.txt" in await artifact(stack, copy["task_id"], "changes.patch")


async def test_a_repository_that_cannot_be_used_ends_the_task_before_it_costs_anything(
    stack: Stack, origin: Origin
) -> None:
    url = origin.url
    gone, wrong = await define(stack, f"{url}-gone"), await define(stack, url, setup="echo why it failed; exit 3")
    for config, reason in (
        ({"environment": gone}, "not found"),
        ({"environment": wrong}, "why it failed"),
        ({"environment": wrong, "ref": "no-such-branch"}, "no-such-branch"),
    ):
        record = await stack.run("do", config=config)
        assert (record["status"], record["error"]["type"]) == ("failed", "repository")
        assert reason in record["error"]["message"] and record["usage"]["llm_calls"] == 0
    for config, pointer in (
        ({"environment": "nothing"}, "/config/environment"),
        ({"ref": "main"}, "/config/ref"),
        ({"repository": new_id()}, "/config/repository"),
        ({"environment": "UPPER"}, "/config/environment"),
        ({"environment": wrong, "ref": "--upload-pack=x"}, "/config/ref"),
    ):
        answer = await stack.http.post("/tasks", json={"agent": "tester", "input": "x", "config": config})
        assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer, answer.text


async def test_nothing_of_a_repository_runs_on_the_worker(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    """Hooks, filters and configuration that the task leaves behind run in the sandbox at most."""
    url = origin.url
    canary = tmp_path / "canary"
    program = f"#!/bin/sh\ntouch {canary}\necho ran >> /tmp/ran; cat\n"
    script = (
        "printf '%s' \"$PROGRAM\" > .git/hooks/post-index-change; cp .git/hooks/post-index-change evil; chmod +x evil "
        ".git/hooks/*; git config core.fsmonitor ./evil; git config filter.x.clean ./evil; git config core.hooksPath "
        "$PWD; echo '* filter=x' > .gitattributes; echo change >> app.py; ln -s / out; ln -s .git .GIT"
    )
    environment = await define(stack, url)
    record = await stack.run(
        calls(("bash", {"command": f"PROGRAM='{program}'; {script}"})), config={"environment": environment}
    )
    assert record["status"] == "completed" and not canary.exists()
    assert b"change" in await artifact(stack, record["task_id"], "changes.patch")


async def test_contents_that_are_not_checked_out_are_not_fetched(stack: Stack, origin: Origin, tmp_path: Path) -> None:
    """A rebuild, a patch and a bundle need none of them. Commands without a network cannot fetch them."""
    git(origin.folder, "config", "uploadpack.allowFilter", "true")
    before = git(origin.folder, "rev-parse", "HEAD:lib/deep.txt")
    (origin.folder / "lib/deep.txt").write_text("deeper\n")
    git(origin.folder, "commit", "-qam", "Deeper")
    ledger = tmp_path / "ledger"
    task_id = await stack.submit(
        steps(
            [("bash", {"command": "echo more >> lib/deep.txt; git commit -qam Mine; git status --short"})],
            [("ledger_again", {"path": str(ledger), "seconds": 3})],
            [("bash", {"command": "git rev-list --objects --all --missing=print; ls; git show HEAD~2:lib/deep.txt"})],
        ),
        config={"environment": await define(stack, origin.url, {"filter": "blob:none", "sparse": ["lib"]})},
    )

    await eventually(lambda: asyncio.to_thread(ledger.exists))
    mirrors = stack.settings.workspaces_dir.with_name("mirrors") / "default"
    for folder in (stack.workspace(task_id).parent, mirrors):
        await asyncio.to_thread(shutil.rmtree, folder)
    record = await stack.wait(task_id)
    seen = str((await stack.asked(task_id))[3]["body"]["messages"][-1])
    assert f"?{before}" in seen and "could not fetch" in seen
    assert seen.count("?") == 2, seen  # and the file in docs
    assert record["status"] == "completed"
    assert b"+more" in await artifact(stack, task_id, "changes.patch")
    (tmp_path / "c.bundle").write_bytes(await artifact(stack, task_id, "commits.bundle"))
    git(origin.folder, "fetch", "-q", str(tmp_path / "c.bundle"), "HEAD")
    assert git(origin.folder, "show", "FETCH_HEAD:lib/deep.txt") == "deeper\nmore"
