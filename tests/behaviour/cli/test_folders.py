"""The real command on the real stack sends folders to a workspace and fetches their changes."""

import asyncio
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.stack import Stack, steps
from tests.support.terminal import Terminal

WORK = steps(
    [
        (
            "bash",
            {"command": "sed -i s/two/three/ src/words.txt && rm old.txt && mkdir -p new && echo fresh > new/file.txt"},
        ),
        ("bash", {"command": "mkdir -p .git/hooks src/.GIT && echo no | tee .git/config .git/hooks/x src/.GIT/config"}),
        ("bash", {"command": "mkdir -p bare/objects bare/refs; cd bare; echo no | tee HEAD config objects/x refs/x"}),
    ],
    [("save_artifact", {"name": "report.txt", "path": "new/file.txt"})],
)


@pytest.fixture
def environment(stack: Stack, tmp_path: Path) -> dict[str, str]:
    return {**stack.env, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with files that git ignores."""
    folder = tmp_path / "project"
    for name, text in {
        "src/words.txt": "one\ntwo\n",
        "old.txt": "old\n",
        "run.sh": "echo hi\n",
        ".gitignore": "*.log\nbuild/\n!keep.log\n",
        "a.log": "ignored",
        "keep.log": "kept",
        "build/out.bin": "ignored",
        "src/.gitignore": "secret.txt\n",
        "src/secret.txt": "ignored",
        ".git/config": "ignored",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "run.sh").chmod(0o755)
    return folder


async def errand(environment: dict[str, str], *args: str, cwd: Path) -> tuple[int, str]:
    def run() -> tuple[int, str]:
        with Terminal(*args, env=environment, cwd=cwd, bound_by_modes=True) as shown:
            return shown.exit_code(), shown.text

    return await asyncio.to_thread(run)


async def test_folder_is_sent_without_ignored_files_and_its_changes_are_pulled(
    stack: Stack, environment: dict[str, str], project: Path, tmp_path: Path
) -> None:
    code, shown = await errand(environment, "run", "tester", WORK, "--dir", ".", "--title", "tree", cwd=project)
    assert code == 0, shown
    task_id = (await stack.http.get("/tasks?limit=1&text=tree")).json()["items"][0]["task_id"]
    listed = (await stack.http.get(f"/tasks/{task_id}/workspace")).json()["items"]
    files = {one["path"]: one["change"] for one in listed if one["kind"] == "file"}
    assert files == {
        **{"src/words.txt": "modified", "old.txt": "removed", "new/file.txt": "added", "run.sh": None},
        **{".gitignore": None, "keep.log": None, "src/.gitignore": None},
        **dict.fromkeys((".git/config", ".git/hooks/x", "src/.GIT/config"), "added"),
        **dict.fromkeys(("bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x"), "added"),
    }
    assert {one["path"]: one["mode"] for one in listed}["run.sh"] == 0o755
    code, patch = await errand(environment, "pull", "last", "--patch", cwd=project)
    assert code == 0 and "-two\n+three\n" in patch and "--- /dev/null\n+++ b/new/file.txt" in patch
    await asyncio.to_thread(_apply, patch, project, copy := tmp_path / "patched")
    assert (copy / "new/file.txt").read_text() == "fresh\n" and not (copy / "old.txt").exists()
    # if a file was changed here in the meantime, nothing is pulled
    (project / "src/words.txt").write_text("mine\n")
    (project / "new").symlink_to(".git")
    code, shown = await errand(environment, "pull", task_id, cwd=project)
    assert code == 1 and "src/words.txt: changed here" in shown and not (project / ".git/file.txt").exists()
    assert "new/file.txt: something else is in its place" in shown
    (project / "new").unlink()
    (project / "src/words.txt").write_text("one\ntwo\n")
    code, shown = await errand(environment, "pull", task_id, cwd=project)
    assert code == 0 and "M src/words.txt" in shown and "D old.txt" in shown and "A new/file.txt" in shown
    assert (project / "src/words.txt").read_text() == "one\nthree\n" and not (project / "old.txt").exists()
    # hooks and settings of git would be obeyed outside the sandbox
    assert "left out: what the task has changed in .git" in shown and not (project / "src/.GIT").exists()
    assert (project / ".git/config").read_text() == "ignored" and not (project / ".git/hooks").exists()
    assert not (project / "bare").exists()
    code, shown = await errand(environment, "result", task_id, "--artifacts", "out", cwd=tmp_path)
    assert code == 0 and (tmp_path / "out/report.txt").read_text() == "fresh\n"


AWKWARD = steps(
    [
        ("bash", {"command": "touch empty.txt 'with space.txt' && chmod +x old.txt && printf 'a\\0b' > image.bin"}),
        ("bash", {"command": "printf 'one\\ftwo\\342\\200\\250three' > feed.txt && rm run.sh"}),
        ("bash", {"command": "printf '\\303\\251' > 'with space.txt' && printf x > 'a\"b.txt'"}),
    ],
)


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
async def test_patch_of_awkward_files_is_applied_by_git(
    stack: Stack, environment: dict[str, str], project: Path, tmp_path: Path
) -> None:
    (project / "feed.txt").write_text("one\x0ctwo\n")
    code, shown = await errand(environment, "run", "tester", AWKWARD, "--dir", ".", cwd=project)
    assert code == 0, shown
    code, shown = await errand(environment, "pull", "-", "--patch", "--json", cwd=project)
    assert code == 0, shown
    await asyncio.to_thread(_apply, json.loads(shown)["patch"], project, copy := tmp_path / "patched")
    assert (copy / "image.bin").read_bytes() == b"a\0b"
    assert (copy / "empty.txt").read_bytes() == b"" and not (copy / "run.sh").exists()
    assert (copy / "with space.txt").read_text() == "é" and (copy / 'a"b.txt').read_text() == "x"
    assert (copy / "feed.txt").read_text() == "one\x0ctwo\u2028three" and os.access(copy / "old.txt", os.X_OK)


def _apply(patch: str, project: Path, copy: Path) -> None:
    subprocess.run(["cp", "-r", str(project), str(copy)], check=True)
    subprocess.run(["rm", "-rf", str(copy / ".git")], check=True)
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=copy, check=True)


async def test_folder_that_cannot_be_used_is_refused_with_all_reasons(
    stack: Stack, environment: dict[str, str], project: Path
) -> None:
    before = (await stack.http.get("/tasks?limit=1")).json()["items"]
    (project / "passwords").symlink_to("/etc/passwd")
    (project / "inside.txt").symlink_to("run.sh")
    os.mkfifo(project / "pipe")
    (project / "big.bin").write_bytes(b"x" * 2_000)
    small = {**environment, "ERRAND_WORKSPACE_FILE_BYTES": "1000", "ERRAND_WORKSPACE_BYTES": "10"}
    code, shown = await errand(small, "run", "tester", "x", "--dir", str(project), cwd=project)
    assert code == 2
    for part in ("passwords: a link out of the folder", "pipe: not a file", "big.bin: 2.0 kB", "a workspace holds 10"):
        assert part in shown.replace("\n", " "), shown
    assert "inside.txt" not in shown
    few = {**environment, "ERRAND_WORKSPACE_FILES": "3"}  # a folder that is too large is not read to its end
    code, shown = await errand(few, "run", "tester", "x", "--dir", str(project), cwd=project)
    assert code == 2 and "too many files; a workspace holds 3" in shown and "passwords" not in shown, shown
    assert (await stack.http.get("/tasks?limit=1")).json()["items"] == before  # nothing was submitted


def archive(*members: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for member in members:
            made.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return packed.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 1) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size if kind == tarfile.REGTYPE else 0, "/etc/passwd"
    return info


@pytest.mark.parametrize(  # explicit ids: ids made from an archive's bytes would differ between two processes
    ("content", "code"),
    [
        pytest.param(b"no archive", "not_an_archive", id="no archive"),
        pytest.param(archive(member("a"))[:20], "not_an_archive", id="cut off"),
        pytest.param(archive(member("../a")), "file_name", id="parent"),
        pytest.param(archive(member("/etc/a")), "file_name", id="absolute"),
        pytest.param(archive(member("a", tarfile.SYMTYPE)), "kind", id="symlink"),
        pytest.param(archive(member("a", tarfile.LNKTYPE)), "kind", id="hard link"),
        pytest.param(archive(member("a", tarfile.CHRTYPE)), "kind", id="device"),
        pytest.param(archive(member("a", size=30_000_000)), "too_large", id="too large"),
        pytest.param(archive(member("a"), member("a/b")), "duplicate_name", id="file and folder"),
    ],
)
async def test_hostile_archive_is_refused(stack: Stack, content: bytes, code: str) -> None:
    file_id = (await stack.http.post("/files?name=tree.tar", content=content)).json()["file_id"]
    spec = {"agent": "tester", "input": "x", "context": {"archives": [file_id]}}
    refused = await stack.http.post("/tasks", json=spec)
    assert refused.status_code == 422, refused.text
    assert json.loads(refused.text)["errors"][0]["code"] == code
