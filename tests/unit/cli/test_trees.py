"""Which files of a folder are sent: `.gitignore` files decide, including those of the repository around it."""

import io
import tarfile
from pathlib import Path

import pytest

from cli.trees import pack_folder
from settings import Settings


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name, text in {
        ".gitignore": "__pycache__/\n*.log\n/part/top.txt\n/out/\n",
        "part/code.py": "1",
        "part/top.txt": "ignored",
        "part/__pycache__/code.pyc": "ignored",
        "part/deep/a.log": "ignored",
        "part/deep/kept.log": "kept",
        "part/deep/.gitignore": "!kept.log\n",
        "out/result.txt": "wanted by name",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def packed(folder: Path) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(pack_folder(folder, Settings()))) as archive:
        return set(archive.getnames())


def test_repository_around_a_folder_decides_what_is_ignored_in_it(repository: Path) -> None:
    assert packed(repository / "part") == {"code.py", "deep/.gitignore", "deep/kept.log"}


def test_ignored_folder_is_sent_when_it_is_named_explicitly(repository: Path) -> None:
    assert packed(repository / "out") == {"result.txt"}


def test_nested_repository_has_its_own_ignore_rules(repository: Path) -> None:
    (repository / "part" / ".git").mkdir()
    assert "top.txt" in packed(repository / "part")
