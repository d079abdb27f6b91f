"""Retakes the pictures in the docs (`python -m tests.support.screenshots`), so that they show the current product.

With names it makes only those. It starts a separate stack, runs a few tasks in it and visits each view.
"""

import asyncio
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
from playwright.async_api import Browser, ViewportSize, async_playwright

from settings import ROOT
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import async_delegate, task
from tests.behaviour.supervision.people import AGENTS, bash, waiting
from tests.support.launch import embedded
from tests.support.stack import Stack, calls, eventually, steps

FOLDER = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1100, "height": 720}
TALL: ViewportSize = {"width": 1100, "height": 1300}  # the Web UI shows the important part further down
_PLAN = ("update_plan", {"steps": [{"title": "Read the notes"}, {"title": "Write the summary"}]})
_WRITE = ("write_file", {"path": "summary.md", "content": "# Summary\n\nThe release is on Friday.\n"})


@dataclass
class Scene:
    """The tasks that the pictures show, by role."""

    stack: Stack
    ids: dict[str, str] = field(default_factory=dict)

    def console(self, view: str) -> str:
        return f"{self.stack.url}/#/{view.format(**self.ids)}"

    def web_ui(self, workflow: str) -> str:
        return f"{self.stack.temporal_ui_url}/namespaces/default/workflows/{workflow.format(**self.ids)}"


@dataclass(frozen=True)
class Picture:
    """A view, and the text or selector whose presence shows that it is complete: the Web UI polls all the time, so its
    requests never end."""

    address: str
    ready: str
    temporal: bool = False


PICTURES = {
    "console-tasks": Picture("", ".task-row"),
    "console-start": Picture("start", "textarea"),
    "console-inbox": Picture("inbox", ".request"),
    "console-conversation": Picture("conversations/{lead}", "main:has(.message) .bar"),
    "console-task": Picture("tasks/{writer}", "main:has(.bar) [data-chain]"),
    "console-compare": Picture("compare/{one}/{other}", ".difference"),
    "console-operations": Picture("operations", "main:has(table) .banner"),
    "session": Picture("session%2F{writer}", "text=call_model", temporal=True),
    "conversation": Picture("conversation%2F{lead}", "text=load_conversation", temporal=True),
    "waiting": Picture("session%2F{waits}", "text=open_request", temporal=True),
    "failure": Picture("session%2F{failed}", "text=call_model", temporal=True),
}


async def prepare(stack: Stack) -> Scene:
    for definition in (*AGENTS, *TEAM):
        (await stack.http.put(f"/agents/{definition['name']}", json=definition)).raise_for_status()
    scene = Scene(stack)
    talk = calls(async_delegate("helper", "[[script:say]]"), task("[[script:say]]", description="read the notes"))

    async def ran(title: str, script: str, agent: str = "tester") -> str:
        task_id: str = (await stack.run(f"{title}. {script}", agent, title=title))["task_id"]
        return task_id

    scene.ids["writer"] = await ran("Summarise the notes of Monday", steps([_PLAN], [_WRITE]))
    scene.ids["one"] = await ran("Check the certificates", calls(bash("echo valid until March")))
    scene.ids["other"] = await ran("Check the certificates again", calls(bash("echo valid until June")))
    scene.ids["failed"] = await ran("Publish the release notes", "[[fault:auth]]")
    scene.ids["lead"] = await ran("Ask your helpers what is still open", talk, "lead")

    async def reported() -> bool:
        mail = (await stack.http.get(f"/conversations/{scene.ids['lead']}/mailbox")).json()
        return bool(mail["pending_count"])

    await eventually(reported, what="the helper's outcome")
    release = calls(bash("touch released"))
    scene.ids["waits"] = await stack.submit(f"Release it. {release}", "careful", title="Release version 2.4")
    await waiting(stack, scene.ids["waits"])
    return scene


async def take(browser: Browser, scene: Scene, name: str, folder: Path) -> Path:
    picture, file = PICTURES[name], folder / f"{name}.png"
    size = TALL if picture.temporal else SIZE
    page = await browser.new_page(viewport=size, color_scheme="light")
    address = scene.web_ui(picture.address) if picture.temporal else scene.console(picture.address)
    if picture.temporal:
        await page.goto(scene.stack.temporal_ui_link)
    await page.goto(address)
    await page.locator(picture.ready).first.wait_for(timeout=30_000)
    await page.screenshot(path=file)
    await page.close()
    return file


async def main(names: list[str]) -> None:
    async with async_playwright() as tool, embedded() as stack:
        browser = await tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        scene = await prepare(stack)
        for name in names or PICTURES:
            file = await take(browser, scene, name, FOLDER)
            click.echo(f"{file.name}: {file.stat().st_size // 1_000} kB")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
