"""A worker that runs as root gives the sandbox account the workspace, and nothing else."""

import os
from pathlib import Path

import pytest

from activities.sandbox import SandboxLimits
from activities.sandbox.bubblewrap import candidates
from activities.sandbox.supervise import adopt_files, unused_uid

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def test_links_and_shared_files_are_left_alone(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (workspace / "folder").mkdir()
    (workspace / "folder/file").touch()
    (workspace / "link").symlink_to(outside)
    (workspace / "folder/link").symlink_to(outside / "file")
    os.link(outside / "file", workspace / "shared")
    adopt_files(workspace, 64_000)
    owners = {path.name: path.lstat().st_uid for path in (workspace, *workspace.rglob("*"))}
    assert owners == {"workspace": 64_000, "folder": 64_000, "file": 64_000, "link": 64_000, "shared": 0}
    assert {outside.stat().st_uid, (outside / "file").stat().st_uid} == {0}


async def test_a_workspace_below_a_closed_folder_is_usable(tmp_path: Path) -> None:
    """A folder that only root may read, like one below /root."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    workspace = closed / "workspace"
    workspace.mkdir()
    for back_end in candidates():
        result = await back_end.run(
            "id -u; echo x > made; ls ..", workspace=workspace, network=None, timeout_s=10, limits=SandboxLimits()
        )
        assert result.output.startswith("1000\n") and "closed" not in result.output
    assert (workspace / "made").stat().st_uid == unused_uid()
