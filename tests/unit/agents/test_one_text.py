"""A definition that consists of several files becomes one text."""

from pathlib import Path

import pytest

from agents.loader import AgentFileError, check_agents, one_text, parse_agent
from agents.problems import Catalogue

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
    assert parse_agent(one_text(tmp_path / "pair.md"), "pair.md", KNOWN) == loaded.agents["pair"]
    (tmp_path / "prompts" / "reads.md").write_text("Nothing but text.")
    with pytest.raises(AgentFileError, match="prompts/reads.md"):
        one_text(tmp_path / "pair.md")


@pytest.mark.parametrize(
    "text",
    [
        "no front matter",
        PAIR,  # names files that do not exist
        "---\nname: pair\nside_a: {prompt: ../secret}\nside_b: human\n---\n",
        f"---\nname: pair\nside_a: {{prompt: {'x' * 5000}}}\n---\n",
        "---\nname: pair\nside_a: {prompt: 5}\nside_b: [1]\nprompts: 7\n---\n",
        "---\nname: pair\nprompts: null\nside_a: {prompt: null}\n---\n",
    ],
)
def test_text_that_names_no_prompt_is_unchanged(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret.md").write_text("---\n{}\n---\n\nNot a prompt.\n")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "pair.md").write_text(text)
    assert one_text(tmp_path / "pair.md") == text
