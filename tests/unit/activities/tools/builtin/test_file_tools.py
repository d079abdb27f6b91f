"""The file tools, with the arguments and results that the model sees."""

import asyncio
from pathlib import Path

import pytest

from activities.tools.registry import TOOLS
from activities.tools.tool import ToolContext, ToolResult
from domain.sessions.session import Effect


async def call(tool_name: str, context: ToolContext, **arguments: object) -> ToolResult:
    tool = TOOLS[tool_name]
    return await tool.run(tool.input.model_validate(arguments), context)


async def test_list_files_shows_the_tree(context: ToolContext, workspace: Path) -> None:
    assert (await call("list_files", context)).text == "The folder is empty."
    (workspace / "src").mkdir()
    (workspace / "src/main.py").write_text("x = 1\n")
    (workspace / "link").symlink_to("/etc/passwd")
    assert (await call("list_files", context)).text == "link  (link, not followed)\nsrc/"
    assert "src/main.py  (6 bytes)" in (await call("list_files", context, recursive=True)).text
    assert (await call("list_files", context, path="nowhere")).failed


async def test_read_file_pages(context: ToolContext, workspace: Path) -> None:
    (workspace / "long").write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    first = (await call("read_file", context, path="long")).text
    assert first.splitlines()[0] == "     1  line 1"
    assert first.splitlines()[-1] == "… there is more: continue with offset=401."
    last = (await call("read_file", context, path="long", offset=999)).text
    assert last == "   999  line 999\n  1000  line 1000"
    behind = await call("read_file", context, path="long", offset=2000)
    assert behind.failed and "only 1,000 lines" in behind.text


async def test_read_file_refuses_binary_and_reads_the_empty_file(context: ToolContext, workspace: Path) -> None:
    (workspace / "binary").write_bytes(b"\x7fELF\0\0")
    (workspace / "empty").touch()
    refused = await call("read_file", context, path="binary")
    assert refused.failed and "binary" in refused.text
    empty = await call("read_file", context, path="empty")
    assert (empty.text, empty.failed) == ("(empty file)", False)


async def test_search_files_finds_lines(context: ToolContext, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src/a.py").write_text("import os\nos.environ\n")
    (workspace / "src/b.txt").write_text("os.environ\n")
    (workspace / "blob").write_bytes(b"os.environ\0")
    (workspace / "secret").symlink_to("/etc/passwd")
    assert (await call("search_files", context, pattern=r"os\.e\w+")).text == (
        "src/a.py:2: os.environ\nsrc/b.txt:1: os.environ"
    )
    assert (await call("search_files", context, pattern="environ", glob="*.py")).text == "src/a.py:2: os.environ"
    assert (await call("search_files", context, pattern="root")).text == "Nothing matches."
    bad = await call("search_files", context, pattern="(")
    assert bad.failed and "not a regular expression" in bad.text
    assert (await call("search_files", context, pattern="x", path="../")).failed
    assert (await call("search_files", context, pattern="\0")).text == "Nothing matches."


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


async def test_search_stops_after_enough_hits(context: ToolContext, workspace: Path) -> None:
    for number in range(30):
        (workspace / f"{number:03}").write_text("hit\n" * 50_000)
    lines = (await call("search_files", context, pattern="hit")).text.splitlines()
    assert len(lines) == 201
    assert lines[-1].startswith("… more than 200 lines match")


async def test_no_pattern_and_no_size_keeps_a_search_running(
    context: ToolContext, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "f").write_text("a" * 1_000_000 + "!")
    async with asyncio.timeout(10):
        assert (await call("search_files", context, pattern="(a+)+$")).text == "Nothing matches."
    monkeypatch.setattr("activities.tools.builtin.search_files._TIME_S", 0.0)
    assert "stopped after 0 seconds" in (await call("search_files", context, pattern="a")).text


async def test_save_artifact_stores_the_file(context: ToolContext, workspace: Path) -> None:
    (workspace / "out").mkdir()
    (workspace / "out/report.md").write_text("# Report")
    result = await call("save_artifact", context, path="out/report.md", type="report", description="What I found")
    [artifact] = result.artifacts
    assert (artifact.name, artifact.content, artifact.type) == ("report.md", b"# Report", "report")
    assert artifact.media_type == "text/markdown"
    (workspace / "link").symlink_to("/etc/passwd")
    refused = await call("save_artifact", context, path="link")
    assert refused.failed and refused.artifacts == []


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


def test_every_tool_describes_its_arguments_to_the_model() -> None:
    for tool in TOOLS.values():
        schema = tool.definition.input_schema
        assert schema["additionalProperties"] is False
        assert all("description" in field for field in schema["properties"].values()), tool.name
    once = [name for name, tool in TOOLS.items() if tool.effect is Effect.ONCE]
    assert once == ["bash", "push_branch", "open_pull_request"]
