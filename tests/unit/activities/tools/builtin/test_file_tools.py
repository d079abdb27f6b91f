"""The file tools, with the arguments and results that the model sees."""

import asyncio
from pathlib import Path

import pytest

from activities.tools.registry import TOOLS
from activities.tools.tool import ToolContext, ToolResult


async def call(tool_name: str, context: ToolContext, **arguments: object) -> ToolResult:
    tool = TOOLS[tool_name]
    return await tool.answer(tool.input.model_validate(arguments), context)


async def test_search_fits_code(context: ToolContext, workspace: Path) -> None:
    for name, text in {
        "src/a.ts": "one\n  two\nthree\nfour\nfive\n  two\n",
        "src/deep/b.tsx": "two\n",
        "c.py": "two\n",
        "build/out.ts": "two\n",
        "build/kept.ts": "two\n",
        ".git/two.ts": "two\n",
        ".git/info/exclude": "/notes/\n",
        "notes/two.ts": "two\n",
        ".gitignore": "build/*\n",
        "build/.gitignore": "!kept.ts\n",
    }.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    found = await call("search_files", context, pattern="two", glob="src/**/*.{ts,tsx}")
    assert found.text == "src/a.ts:2:   two\nsrc/a.ts:6:   two\nsrc/deep/b.tsx:1: two"
    # git decides what is source, unless the path names something else
    everything = (await call("search_files", context, pattern="^two")).text
    assert everything == "build/kept.ts:1: two\nc.py:1: two\nsrc/deep/b.tsx:1: two"
    assert "build/out.ts" in (await call("search_files", context, pattern="two", path="build/out.ts")).text
    assert ".git/two.ts" in (await call("search_files", context, pattern="two", path=".git")).text
    listed = (await call("list_files", context, recursive=True)).text
    assert "build/kept.ts" in listed and ".git/" not in listed and "out.ts" not in listed
    assert ".git/" in (await call("list_files", context)).text


async def test_rules_of_a_repository_cannot_stall_a_search(context: ToolContext, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".gitignore").write_text("*a*a*a*a*a*a*a*a*a*a*b\n" * 100)
    (workspace / ("a" * 200)).write_text("here\n")
    async with asyncio.timeout(10):
        assert "here" in (await call("search_files", context, pattern="here")).text


async def test_no_pattern_and_no_size_keeps_a_search_running(
    context: ToolContext, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("a" * 1_000_000 + "!")
    async with asyncio.timeout(10):
        assert (await call("search_files", context, pattern="(a+)+$")).text == "Nothing matches."
    monkeypatch.setattr("activities.tools.builtin.search_files._TIME_S", 0.0)
    assert "stopped after 0 seconds" in (await call("search_files", context, pattern="a")).text


@pytest.mark.parametrize(
    "url",
    ["/etc/passwd", "file:///etc/passwd", "javascript:alert(1)", "https://", "https://me:pw@x.org", "https://x y"],
)
async def test_other_addresses_are_refused(context: ToolContext, url: str) -> None:
    refused = await call("save_artifact", context, url=url)
    assert refused.failed and refused.artifacts == []


@pytest.mark.parametrize(
    "name",
    ["a/b", "a\\b", "..", "a..b", "a\0b", "a\nb", "a\u202eb", "a\u200fb", "-rf", " ", "é" * 128, "\x1b"],
)
async def test_an_artifact_has_a_harmless_name(context: ToolContext, workspace: Path, name: str) -> None:
    (workspace / "f").write_text("x")
    result = await call("save_artifact", context, path="f", name=name)
    assert result.failed and result.artifacts == []
