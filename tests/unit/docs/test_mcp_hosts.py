"""The lines for MCP hosts in docs/client.md: each is what its host accepts."""

import json
import re
import shlex

import click

from cli.main import errand
from settings import ROOT

PAGE = (ROOT / "docs/client.md").read_text()
LINES: dict[str, str] = dict(re.findall(r"^\| ([A-Za-z ]+) \| (.*) \|$", PAGE, re.MULTILINE))
URL = "http://127.0.0.1:8700/mcp"


def code(host: str) -> str:
    found: list[str] = re.findall(r"`([^`]+)`", LINES[host])
    return found[-1]


def test_claude_code_and_codex_get_the_commands_that_they_accept() -> None:
    """Both lines were run with the hosts themselves; the page names their versions."""
    claude = shlex.split(code("Claude Code"))
    assert claude[:6] == ["claude", "mcp", "add", "--transport", "http", "errand"]
    assert claude[6:] == [URL, "--header", "Authorization: Bearer $KEY"]
    codex = shlex.split(code("Codex"))
    assert codex == ["codex", "mcp", "add", "errand", "--url", URL, "--bearer-token-env-var", "ERRAND_API_KEY"]


def test_cursor_and_vs_code_get_valid_json() -> None:
    server = json.loads(code("Cursor"))["mcpServers"]["errand"]
    assert server["url"] == URL and server["headers"]["Authorization"].startswith("Bearer ")
    program, option, given = shlex.split(code("VS Code"))
    assert (program, option) == ("code", "--add-mcp")
    assert json.loads(given) == {"name": "errand", "type": "http", "url": URL}


def test_any_other_host_starts_a_command_that_exists() -> None:
    assert shlex.split(code("any host that starts a program")) == ["errand", "mcp"]
    assert "mcp" in errand.list_commands(click.Context(errand))
