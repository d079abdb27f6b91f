"""Several repositories in one task: each in a folder of the workspace, and each with all that a single one has."""

import asyncio
import shutil
from pathlib import Path

import pytest

from domain.ids import new_id
from tests.behaviour.repositories.conftest import Origin, artifact, store_credential
from tests.support.git_server import git, make_repository
from tests.support.stack import Stack, eventually, of_type, steps

PARTS = {"AGENTS.md": "Parts are sorted.\n", "parts.txt": "wheel\n", ".gitignore": "built.txt\n"}


@pytest.fixture
def parts(origin: Origin) -> Path:
    folder = origin.folder.with_name("parts")
    make_repository(folder, PARTS)
    git(folder, "config", "http.receivepack", "true")
    return folder


async def define(stack: Stack, origin: Origin, git: dict[str, object] | None = None, **more: object) -> str:
    name = f"e-{new_id()}"
    sources = {"web": {"url": origin.url, **(git or {})}, "parts": {"url": f"{origin.place}/parts", **(git or {})}}
    answer = await stack.http.put(f"/environments/{name}", json={"repositories": sources, **more})
    assert answer.status_code == 201, answer.text
    return name


def clone_both(origin: Origin, parts: Path, folder: Path) -> None:
    folder.mkdir()
    git(folder, "clone", "-q", str(origin.folder), "web")
    git(folder, "clone", "-q", str(parts), "parts")


async def test_a_task_changes_two_repositories_and_leaves_the_changes_of_each(
    stack: Stack, origin: Origin, parts: Path, tmp_path: Path
) -> None:
    """Also on a worker that has nothing of them, after the one that had was killed."""
    environment = await define(stack, origin, setup="ls > parts/built.txt")
    mend = "echo more >> web/app.py; cd parts; echo seat >> parts.txt; git rm -q AGENTS.md; git commit -qam Seats"
    task_id = await stack.submit(
        steps(
            [("bash", {"command": mend})],
            [("bash", {"command": "touch web/begun; sleep 4"})],
            [("list_files", {"path": ".", "recursive": True})],
            [("bash", {"command": "cat parts/built.txt; for one in web parts; do git -C $one log --format=%s; done"})],
        ),
        config={"environment": environment},
    )

    await eventually(lambda: asyncio.to_thread((stack.workspace(task_id) / "web/begun").exists))
    await stack.back("worker", await stack.kill("worker"))
    await asyncio.to_thread(shutil.rmtree, stack.workspace(task_id).parent)
    await asyncio.to_thread(shutil.rmtree, stack.settings.workspaces_dir.with_name("mirrors") / "default")
    assert (await stack.wait(task_id, seconds=120))["status"] == "completed"
    asked = await stack.asked(task_id)
    briefing = str(asked[0]["body"]["messages"][0])
    assert "parts/AGENTS.md" in briefing and "Parts are sorted." in briefing
    listed, seen = (str(one["body"]["messages"][-1]) for one in asked[-2:])
    assert "web/lib/deep.txt" in listed and ".git/" not in listed and "built.txt" not in listed
    assert "parts\\nweb" in seen and "Seats" in seen and seen.count("Add the files") == 2
    prepared = of_type(await stack.events(task_id), "tree_prepared")
    heads = {"web": git(origin.folder, "rev-parse", "HEAD"), "parts": git(parts, "rev-parse", "HEAD")}
    assert {one["folder"]: one["commit"] for one in prepared} == heads
    # one patch for a folder with both checkouts, and one for each
    both = tmp_path / "both"
    clone_both(origin, parts, both)
    for name, where in (("changes.patch", both), ("changes-parts.patch", None), ("changes-web.patch", None)):
        (tmp_path / name).write_bytes(await artifact(stack, task_id, name))
        if where:
            git(where, "apply", str(tmp_path / name))
    assert (both / "web/app.py").read_text().endswith("more\n") and not (both / "parts/AGENTS.md").exists()
    assert (both / "parts/parts.txt").read_text() == "wheel\nseat\n"
    for one in ("web", "parts"):
        git(both / one, "apply", "--check", "-R", str(tmp_path / f"changes-{one}.patch"))
    (tmp_path / "c.bundle").write_bytes(await artifact(stack, task_id, "commits-parts.bundle"))
    git(both / "parts", "fetch", "-q", str(tmp_path / "c.bundle"), "HEAD")
    assert git(both / "parts", "log", "-1", "--format=%s", "FETCH_HEAD") == "Seats"
    found = {one["name"]: one["description"] for one in (await stack.result(task_id))["artifacts"]}
    assert found.keys() == {"changes.patch", "changes-web.patch", "changes-parts.patch", "commits-parts.bundle"}
    assert found["changes.patch"].startswith("web: 1 file changed") and "; parts: 2 files" in found["changes.patch"]


async def test_each_repository_has_its_branch_and_its_pull_request(
    stack: Stack, origin: Origin, parts: Path, committer: str
) -> None:
    credential = await store_credential(stack, origin, access="write")
    environment = await define(stack, origin, {"credential": credential, "forge": "gitea"})
    commit = "for one in web parts; do cd $one; echo more >> more.txt; git add -A; git commit -qm $one; cd ..; done"
    opened = {"title": "More", "body": "Missing."}
    allowed = [{"permission": one, "action": "allow"} for one in ("push_branch", "open_pull_request")]
    record = await stack.run(
        steps(
            [("bash", {"command": commit})],
            [("push_branch", {})],
            [("push_branch", {"repository": "web"}), ("push_branch", {"repository": "parts"})],
            [("open_pull_request", {**opened, "repository": one}) for one in ("web", "parts")],
        ),
        agent=committer,
        config={"environment": environment},
        permissions=allowed,
    )
    assert record["status"] == "completed", record
    unnamed = str((await stack.asked(record["task_id"]))[2]["body"]["messages"][-1])
    assert "web, parts" in unnamed
    for name, folder in (("web", origin.folder), ("parts", parts)):
        [branch] = [one for one in git(folder, "branch", "--format=%(refname:short)").split() if "errand" in one]
        assert git(folder, "log", "-1", "--format=%s", branch) == name
    saved = [one for one in (await stack.result(record["task_id"]))["artifacts"] if one["type"] == "pull_request"]
    assert {one["name"]: one["url"] for one in saved} == {
        "pull-request-web-1": "https://forge.example.org/shop/pull/1",
        "pull-request-parts-1": "https://forge.example.org/parts/pull/1",
    }


async def test_a_repository_that_nothing_names_is_refused(stack: Stack, origin: Origin) -> None:
    environment, source = await define(stack, origin), {"url": origin.url}
    uploaded = (await stack.http.post("/files", params={"name": "r.bundle"}, content=b"x")).json()["file_id"]
    for config, pointer in (
        ({"environment": environment, "ref": "main"}, "/config/ref"),
        ({"environment": environment, "refs": {"wep": "main"}}, "/config/refs/wep"),
        ({"environment": environment, "repositories": {"web": uploaded}}, "/config/repositories"),
        ({"refs": {"web": "main"}}, "/config/refs/web"),
    ):
        answer = await stack.http.post("/tasks", json={"agent": "tester", "input": "x", "config": config})
        assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer, answer.text
    for body, pointer in (
        ({"git": source, "repositories": {"web": source}}, ""),
        ({"repositories": {"../web": source}}, "/repositories"),
        ({"repositories": {".git": source}}, "/repositories/.git"),
        ({"git": {"url": "https:///x"}}, "/git/url"),
        ({"repositories": {f"r{one}": source for one in range(9)}}, "/repositories"),
        ({"repositories": {"web": source}, "setup_inputs": ["web/lib", "lib"]}, ""),
    ):
        answer = await stack.http.put(f"/environments/e-{new_id()}", json=body)
        assert answer.status_code == 422 and answer.json()["errors"][0]["pointer"] == pointer, answer.text
