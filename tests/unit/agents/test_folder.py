"""Agent files: read again when one was added, changed or removed; one text for each."""

from pathlib import Path

import pytest

from agents.loader import AgentFolder, check_agents, one_text, read_agent, to_markdown
from agents.problems import AgentFileError, Catalogue

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


KNOWN = Catalogue(tools=["read_file"], handlers=[], hooks=[])
PAIR = "---\nname: pair\nsideA: {prompt: writes}\nside_b: {prompt: reads}\nmaxSessionTurns: 4\n---\n"


def test_prompts_beside_the_file_are_in_its_text(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "pair.md").write_text(PAIR)
    (tmp_path / "prompts" / "writes.md").write_text("---\nmodel: careful\n---\n\nYou write: é\n")
    (tmp_path / "prompts" / "reads.md").write_text("---\ntools: [read_file]\n---\n\nYou read.\n")
    (tmp_path / "prompts" / "other.md").write_text("---\n{}\n---\n\nOf another agent.\n")
    loaded = check_agents(tmp_path, KNOWN)
    assert loaded.errors == [] and loaded.agents["pair"].prompts.keys() == {"writes", "reads"}
    assert read_agent(one_text(tmp_path / "pair.md"), "pair.md", KNOWN) == (loaded.agents["pair"], [])
    (tmp_path / "prompts" / "reads.md").write_text("Nothing but text.")
    with pytest.raises(AgentFileError, match="prompts/reads.md"):
        one_text(tmp_path / "pair.md")


def test_skills_are_folders_beside_their_agent(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path, Catalogue(frozenset({"load_skill"})))
    skill = tmp_path / "one/skills/release"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: release\ndescription: How we release.\n---\n\nTag it.\n")
    (skill / "scripts/tag.sh").write_text("git tag\n")
    (tmp_path / "one.md").write_text("---\nname: one\ntools: [load_skill]\n---\nx\n")
    first = folder.changes()
    assert first is not None and not first.errors and folder.changes() is None
    found = first.agents["one"].skills["release"]
    assert (found.description, found.text, found.files) == (
        "How we release.",
        "Tag it.",
        {"scripts/tag.sh": "git tag\n"},
    )
    again, _ = read_agent(to_markdown(first.agents["one"]), "one.md", Catalogue(frozenset({"load_skill"})))
    assert again == first.agents["one"]
    (skill / "scripts/tag.sh").write_text("git tag --sign\n")
    changed = folder.changes()
    assert changed is not None and "--sign" in changed.agents["one"].skills["release"].files["scripts/tag.sh"]
    for file, text, problem in (
        (skill / "SKILL.md", "---\nname: other\ndescription: x\n---\nx", "one/skills/release/SKILL.md"),
        (tmp_path / "one.md", "---\nname: one\n---\nx\n", "load_skill"),
    ):
        before = file.read_text()
        file.write_text(text)
        refused = folder.changes()
        assert refused is not None and not refused.agents and problem in str(refused.errors[0])
        file.write_text(before)
