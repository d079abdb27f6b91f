"""`errand agents check`: problems and warnings of the files of a folder."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli


def test_agents_check_warns_of_a_dual_agent_without_a_limit_of_its_turns(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/other.md").write_text("---\nname: other\n---\n\nReview.\n")
    for name, more in {
        "endless": "side_b: {prompt: other}",
        "ends": "side_b: {prompt: other}\nmax_session_turns: 4",
        "one": "",
    }.items():
        (tmp_path / f"{name}.md").write_text(f"---\nname: {name}\n{more}\n---\n\nHelp.\n")
    done = cli("agents", "check", str(tmp_path))
    assert done.exit_code == 0 and done.stdout.count("Warning") == 1, done.stdout
    assert "Warning: endless.md: max_session_turns should be set" in done.stdout
    [warning] = json.loads(cli("agents", "check", str(tmp_path), "--json").stdout)["warnings"]
    assert (warning["file"], warning["field"]) == ("endless.md", "max_session_turns")


def test_agents_check_warns_of_a_search_that_is_not_configured(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "finder.md").write_text("---\nname: finder\ntools: [web_search]\n---\n\nFind.\n")
    assert "Warning" not in cli("agents", "check", str(tmp_path)).stdout  # Anthropic searches itself
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1")
    monkeypatch.setenv("ERRAND_DEFAULT_MODEL", "ollama/llama3")
    done = cli("agents", "check", str(tmp_path))
    assert done.exit_code == 0
    assert (
        "Warning: finder.md: tools lists web_search, which needs ERRAND_SEARCH_URL, ERRAND_BRAVE_KEY or" in done.stdout
    )
    monkeypatch.setenv("ERRAND_SEARCH_URL", "http://searx.lan")
    assert "Warning" not in cli("agents", "check", str(tmp_path)).stdout
    monkeypatch.setenv("ERRAND_SEARCH_URL", "http://me:secret@searx.lan")
    assert "without a password" in cli("agents", "check", str(tmp_path)).stderr
