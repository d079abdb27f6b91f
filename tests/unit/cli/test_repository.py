"""A checkout as a bundle: with what is not committed, and without a change of the checkout."""

import time
from pathlib import Path

import click
import pytest

from cli.repository import bundle_checkout
from settings import Settings
from tests.support.git_server import git, make_repository

SETTINGS = Settings()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _await_next_second() -> None:
    time.sleep(1 - time.time() % 1)


def unpack(content: bytes, folder: Path) -> Path:
    (folder / "sent.bundle").write_bytes(content)
    git(folder, "clone", "-q", "sent.bundle", "copy")
    return folder / "copy"


def test_a_checkout_is_sent_with_its_history_and_what_is_not_committed(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    _await_next_second()  # git takes a file of the same second and size for unchanged if its index is younger
    make_repository(checkout, {"kept.txt": "kept\n", "changed.txt": "one\n", "gone.txt": "gone\n", ".gitignore": "x\n"})
    (checkout / "changed.txt").write_text("two\n")
    (checkout / "gone.txt").unlink()
    (checkout / "new ü.txt").write_text("new\n")
    (checkout / "x").write_text("ignored\n")
    (checkout / ".git/hooks/post-commit").write_text("#!/bin/sh\ntouch ran\n")
    (checkout / ".git/hooks/post-commit").chmod(0o755)
    before = snapshot(checkout)
    _await_next_second()
    (tmp_path / "out").mkdir()
    copy = unpack(bundle_checkout(checkout / ".git" / "..", SETTINGS), tmp_path / "out")
    assert snapshot(checkout) == before
    assert git(copy, "log", "--format=%s").splitlines() == ["Changes that were not committed", "Add the files", "Begin"]
    assert (copy / "changed.txt").read_text() == "two\n" and (copy / "new ü.txt").exists()
    assert not (copy / "gone.txt").exists() and not (copy / "x").exists()


def test_a_history_that_is_too_large_stays_here(tmp_path: Path) -> None:
    make_repository(tmp_path / "checkout", {"a": "small"})
    (tmp_path / "checkout/large").write_bytes(bytes(range(256)) * 40)
    git(tmp_path / "checkout", "add", "-A")
    git(tmp_path / "checkout", "commit", "-qm", "Large")
    git(tmp_path / "checkout", "rm", "-q", "large")
    git(tmp_path / "checkout", "commit", "-qm", "Small again")
    limited = Settings(max_file_bytes=500)
    copy = unpack(bundle_checkout(tmp_path / "checkout", limited), tmp_path)
    assert git(copy, "log", "--format=%s") == "The files without their history"
    with pytest.raises(click.UsageError, match="an upload has at most"):
        bundle_checkout(tmp_path / "checkout", Settings(max_file_bytes=10))


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="not a git repository"):
        bundle_checkout(tmp_path, SETTINGS)
