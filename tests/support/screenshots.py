"""Retakes the pictures in the docs (`python -m tests.support.screenshots`), so that they show the current product.

With names it makes only those, with `--all FOLDER` each page of the console in light, in dark and on a phone. It starts
a separate stack, runs a few tasks in it and visits each view.
"""

import asyncio
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
from playwright.async_api import Browser, ViewportSize, async_playwright

from settings import ROOT
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import async_delegate, chain, task
from tests.behaviour.supervision.people import AGENTS, bash, waiting
from tests.support.launch import embedded
from tests.support.stack import Stack, calls, eventually

FOLDER = ROOT / "docs" / "images"
SIZE: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
TALL: ViewportSize = {"width": 1100, "height": 1300}  # the Web UI shows the important part further down
ITEMS = ("Reproduce the failure", "Find the cause", "Bisect the history", "Fix it", "Push and open a pull request")
_FIXTURE = "@pytest.fixture\ndef refund_window(tenant):\n    now = datetime.now()\n    return now - DAYS, now\n"
MENDER = {
    "name": "mender",
    "description": "Repairs failing tests and opens pull requests.",
    "prompt": "Repair what fails.",
    "may_ask": True,
    "tools": ["read_file", "write_file", "edit_file", "bash", "update_plan"],
    "subagents": ["helper"],
    "permissions": [{"permission": "bash", "pattern": "git push*", "action": "ask"}],
}


def _plan(current: int) -> tuple[str, dict[str, object]]:
    """The plan while this item of it is worked on; the third was skipped."""
    states = ["done" if place < current else "in_progress" if place == current else "pending" for place in range(5)]
    if current > 2:
        states[2] = "skipped"
    steps = [{"title": title, "status": state} for title, state in zip(ITEMS, states, strict=True)]
    return "update_plan", {"steps": steps}


def repair() -> str:
    """A script of a repair that ends at an approval: with a failure, a subagent, an edit and a skipped item."""
    change = {"old": "datetime.now()", "new": "clock.now(tenant.time_zone)"}
    return chain(
        [_plan(0), ("write_file", {"path": "conftest.py", "content": _FIXTURE})],
        [bash("sleep 0.6; echo '1 passed in 0.52s'")],
        [bash("sleep 1.2; echo '3 failed, 17 passed in 1.18s'; exit 1")],
        [_plan(1)],
        [task("[[script:say words=30 delay=0.02]]", description="find every use of the clock")],
        [_plan(3)],
        [("edit_file", {"path": "conftest.py", "edits": [change]})],
        [bash("sleep 0.9; echo '214 passed in 0.86s'"), _plan(4)],
        [bash("git push origin fix/refund-clock")],
        last="The fixture takes one time from the tenant's clock. **Pull request 818** is open.",
    )


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
    dark: bool = False
    phone: bool = False


PICTURES = {
    "console-tasks": Picture("", "[data-task]"),
    "console-start": Picture("start", "textarea"),
    "console-inbox": Picture("inbox/{request}", ".ask .diff mark"),
    "console-conversation": Picture("conversations/{chat}", ".thread .say"),
    "console-task": Picture("tasks/{mender}", "main:has(#tab-files small) .ask [data-do=a]"),
    "console-compare": Picture("compare/{one}/{other}", ".difference mark"),
    "console-overview": Picture("overview", ".chart svg", dark=True),
    "console-phone": Picture("tasks/{mender}", "main:has(#tab-files small) .ask [data-do=a]", phone=True),
    "console-agents": Picture("agents", ".code pre"),
    "session": Picture("session%2F{one}", "text=call_model", temporal=True),
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

    (await stack.http.put("/agents/mender", json=MENDER)).raise_for_status()
    question = "Compare the vector stores that run on one machine: speed, limits, upkeep."
    scene.ids["chat"] = (await stack.run(question, "orchestrator"))["task_id"]
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
    title = "Fix the flaky refund test and open a pull request"
    scene.ids["mender"] = await stack.submit(f"{title}. {repair()}", "mender", title=title, config={"max_cost_usd": 2})
    await waiting(stack, scene.ids["mender"])
    settings = '[paths]\ninvoices = "/srv/billing/invoices"\narchive = "/srv/archive"\n'
    rename = {"path": "settings.toml", "edits": [{"old": "/srv/billing", "new": "/srv/accounts"}]}
    script = chain(
        [("write_file", {"path": "settings.toml", "content": settings})],
        [bash("echo '88 passed'")],
        [("edit_file", rename)],
        text="The folder is renamed. One setting still points to the old path, so the backup would fail tonight.",
    )
    rules = [{"permission": "edit_file", "pattern": "*.toml", "action": "ask"}]
    renames = await stack.submit(script, "careful", title="Rename the billing folder", permissions=rules)
    scene.ids["request"] = (await waiting(stack, renames))[0]["id"]
    return scene


async def take(browser: Browser, scene: Scene, picture: Picture, file: Path) -> Path:
    size = TALL if picture.temporal else PHONE if picture.phone else SIZE
    page = await browser.new_page(viewport=size, color_scheme="dark" if picture.dark else "light")
    address = scene.web_ui(picture.address) if picture.temporal else scene.console(picture.address)
    if picture.temporal:
        await page.goto(scene.stack.temporal_ui_link)
    await page.goto(address)
    # a phone shows one pane at a time
    await page.locator(picture.ready).first.wait_for(timeout=30_000, state="attached" if picture.phone else "visible")
    await page.screenshot(path=file)
    await page.close()
    return file


def select(names: list[str]) -> dict[Path, Picture]:
    """The pictures of the docs, or those of these names; `--all FOLDER`: each page of the console three times."""
    if names[:1] != ["--all"]:
        return {FOLDER / f"{name}.png": PICTURES[name] for name in names or PICTURES}
    return {
        Path(names[1]) / f"{name}-{kind}.png": replace(picture, dark=kind == "dark", phone=kind == "phone")
        for name, picture in PICTURES.items()
        for kind in ("light", "dark", "phone")
        if not picture.temporal
    }


async def main(names: list[str]) -> None:
    async with async_playwright() as tool, embedded() as stack:
        browser = await tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        scene = await prepare(stack)
        for file, picture in select(names).items():
            await take(browser, scene, picture, file)
            click.echo(f"{file.name}: {file.stat().st_size // 1_000} kB")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
