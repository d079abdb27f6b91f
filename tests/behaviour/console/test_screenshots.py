"""The screenshots of the docs can be made by their script, and there is one of each view."""

import re
from pathlib import Path

from playwright.async_api import Browser

from settings import ROOT
from tests.behaviour.console.conftest import needs_browser
from tests.support.screenshots import FOLDER, PICTURES, Scene, take
from tests.support.stack import Stack


def test_every_view_and_every_picture_of_the_docs_is_in_the_script() -> None:
    routes = re.findall(r"^  \[/\^#\\/(\w*)", (ROOT / "api/console/app.js").read_text(), re.MULTILINE)
    shown = {one.address.split("/")[0] for name, one in PICTURES.items() if name.startswith("console-")}
    assert shown == set(routes)
    assert {file.stem for file in FOLDER.glob("*.png")} == set(PICTURES)
    docs = "".join(file.read_text() for file in (ROOT / "docs").glob("*.md"))
    assert [name for name in PICTURES if f"images/{name}.png" not in docs] == []


@needs_browser
async def test_script_takes_a_picture(stack: Stack, browser: Browser, tmp_path: Path) -> None:
    scene = Scene(stack)
    file = await take(browser, scene, PICTURES["console-start"], tmp_path / "start.png")
    assert file.read_bytes().startswith(b"\x89PNG")
