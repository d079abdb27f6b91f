"""A folder of agent files is read again when, and only when, a file in it was added, changed or removed."""

from pathlib import Path

from agents.loader import AgentFolder
from agents.problems import Catalogue

GOOD = "---\nname: {0}\ndescription: x\n---\nx\n"


def test_folder_is_read_again_when_a_file_changes(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path, Catalogue(frozenset()))
    (tmp_path / "one.md").write_text(GOOD.format("one"))
    first = folder.changes()
    assert first is not None and set(first.agents) == {"one"} and folder.changes() is None
    (tmp_path / "two.md").write_text("---\nname: two\n---\n")
    second = folder.changes()
    assert second is not None and set(second.agents) == {"one"}  # the bad file does not hide the good one
    assert [error.file for error in second.errors] == ["two.md"] and second.names == {"one", "two"}
    (tmp_path / "two.md").write_text(GOOD.format("two"))
    third = folder.changes()
    assert third is not None and set(third.agents) == {"one", "two"} and third.errors == []
    (tmp_path / "one.md").unlink()
    fourth = folder.changes()
    assert fourth is not None and fourth.names == {"two"} and folder.changes() is None


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "nothing.md").symlink_to(tmp_path / "gone")
    loaded = AgentFolder(tmp_path, Catalogue(frozenset())).changes()
    assert loaded is not None and sorted(error.file for error in loaded.errors) == ["folder.md", "nothing.md"]
    missing = AgentFolder(tmp_path / "gone", Catalogue(frozenset())).changes()
    assert missing is not None and "does not exist" in str(missing.errors[0]) and missing.names == frozenset()
