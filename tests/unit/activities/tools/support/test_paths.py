"""No path leads out of the workspace: every attack that we could think of, for every kind of access."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from activities.tools.support import paths as workspace_path
from activities.tools.support.paths import Workspace
from domain.policy.rules import PathError

SECRET = b"the secret outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_bytes(SECRET)
    return place


@pytest.fixture
def traps(workspace: Path, outside: Path) -> Iterator[Path]:
    """A workspace in which a hostile command left every kind of file that it can create."""
    (workspace / "plain").write_text("plain")
    (workspace / "folder").mkdir()
    links: dict[str, str | Path] = {
        "link": outside / "secret",
        "link_dir": outside,
        "dangling": outside / "new",
        "relative": "../outside/secret",
        "to_root": "/",
        "to_proc": "/proc/self/environ",
        "to_fd": "/proc/self/root",
        "loop": "loop",
        "second": "link",
        "inside": "plain",
        "folder/up": "..",
        "folder/out": "../../outside",
    }
    for name, target in links.items():
        os.symlink(target, workspace / name)
    os.mkfifo(workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(workspace)  # the path of a socket has at most 107 bytes
        listener.bind("socket")
        os.chdir(here)
        yield workspace


VECTORS = [
    "../outside/secret",
    "..",
    "folder/../../outside/secret",
    "folder/../../workspace/plain",
    "./../outside/secret",
    "folder/./../../outside/secret",
    "....//outside/../../outside/secret",
    "/etc/passwd",
    "//etc/passwd",
    "/workspace/../outside/secret",
    "/workspace//../../etc/passwd",
    "/workspacex/plain",
    "/".join(["", "proc", "self", "root", "etc", "passwd"]),
    "link",
    "link/",
    "link_dir/secret",
    "link_dir/new",
    "link_dir/../outside/secret",
    "dangling",
    "relative",
    "to_root/etc/passwd",
    "to_proc",
    "to_fd/etc/passwd",
    "loop",
    "loop/secret",
    "second",
    "inside",
    "folder/up/plain",
    "folder/up/link",
    "folder/out/secret",
    "folder/out/new",
    "fifo",
    "fifo/x",
    "socket",
    "plain/x",
    "folder",
    ".",
    "",
    "plain\0/../../outside/secret",
    "\0",
    "a" * 256,
    "/".join(["a"] * 100),
    "\ud800",
]


@pytest.mark.parametrize("path", VECTORS)
def test_paths_outside_the_workspace_are_not_read_or_written(traps: Path, outside: Path, path: str) -> None:
    workspace = Workspace(traps)
    with pytest.raises(PathError):
        workspace.read(path, 1000)
    with pytest.raises(PathError):
        workspace.write(path, b"escaped")
    with suppress(PathError):
        assert not [entry for entry in workspace.walk(path, recursive=True) if "secret" in entry.path]
    assert {item.name: item.read_bytes() for item in outside.iterdir()} == {"secret": SECRET}
    assert not (traps.parent / "new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_refused(workspace: Path) -> None:
    try:
        os.mknod(workspace / "device", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this host forbids devices")
    with pytest.raises(PathError, match="special file"):
        Workspace(workspace).read("device", 10)
    with pytest.raises(PathError, match="special file"):
        Workspace(workspace).write("device", b"x")


def _for_a_while(action: Callable[[], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        action()


def test_a_link_swapped_in_while_we_look_gains_nothing(workspace: Path, outside: Path) -> None:
    target, folder = workspace / "target", workspace / "swap"
    os.symlink(outside / "secret", workspace / "evil")
    os.symlink(outside, workspace / "evil_dir")
    folder.mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):
                target.write_bytes(b"harmless") if not target.is_symlink() else target.unlink()
                os.link(workspace / "evil", workspace / "e2", follow_symlinks=False)
                os.rename(workspace / "e2", target)
            shutil.rmtree(workspace / "aside", ignore_errors=True)
            with suppress(OSError):
                os.rename(folder, workspace / "aside")
                os.link(workspace / "evil_dir", folder, follow_symlinks=False)
                os.unlink(folder)
                os.rename(workspace / "aside", folder)

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen: set[bytes] = set()
    files = Workspace(workspace)

    def attempt() -> None:
        with suppress(PathError):
            seen.add(files.read("target", 100))
        with suppress(PathError):
            seen.add(files.read("swap/secret", 100))
        with suppress(PathError):
            files.write("swap/secret", b"harmless")
        with suppress(PathError):
            files.write("target", b"harmless")

    try:
        _for_a_while(attempt, 1.5)
    finally:
        stop.set()
        attacker.join()
    assert seen <= {b"harmless", b""}
    assert {item.name: item.read_bytes() for item in outside.iterdir()} == {"secret": SECRET}


def test_a_link_swapped_in_between_look_and_open_is_not_followed(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same race, in which the attacker always wins."""
    target = workspace / "target"
    target.write_bytes(b"harmless")
    look = workspace_path._check_plain

    def look_then_swap(path: str, mode: int) -> None:
        look(path, mode)
        target.unlink()
        target.symlink_to(outside / "secret")

    monkeypatch.setattr(workspace_path, "_check_plain", look_then_swap)
    with pytest.raises(PathError):
        Workspace(workspace).read("target", 100)


def test_a_write_never_changes_a_file_that_has_another_name_elsewhere(workspace: Path, outside: Path) -> None:
    os.link(outside / "secret", workspace / "hard")
    Workspace(workspace).write("hard", b"mine")
    assert (outside / "secret").read_bytes() == SECRET
