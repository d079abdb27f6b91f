"""Retakes the pictures in the docs (`python -m tests.support.screenshots`), so that they show the current product.

With names it makes only those. It starts a separate stack, runs a few tasks in it and visits each view.
"""

import asyncio
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from playwright.async_api import Browser, ViewportSize, async_playwright

from settings import ROOT
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import Talk, agent, async_delegate, chain, say, task
from tests.behaviour.supervision.people import AGENTS, bash, waiting
from tests.support.launch import TESTER, embedded
from tests.support.stack import Stack, calls, steps

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
    "console-overview": Picture("overview", "main:has(.worker):has(.deliveries .empty) .chart svg", dark=True),
    "console-phone": Picture("tasks/{mender}", "main:has(#tab-files small) .ask [data-do=a]", phone=True),
    "console-agents": Picture("agents", ".code pre"),
    "session": Picture("session%2F{one}", "text=call_model", temporal=True),
    "conversation": Picture("conversation%2F{lead}", "text=load_conversation", temporal=True),
    "waiting": Picture("session%2F{waits}", "text=open_request", temporal=True),
    "failure": Picture("session%2F{failed}", "text=call_model", temporal=True),
}


async def define(stack: Stack, definition: dict[str, Any], script: str) -> None:
    """An agent whose prompt has its script, so that no picture shows it."""
    answer = await stack.http.put(f"/agents/{definition['name']}", json={**definition, "prompt": script})
    answer.raise_for_status()


async def ask(stack: Stack, definition: dict[str, Any], title: str, script: str, text: str = "", **spec: Any) -> str:
    await define(stack, definition, script)
    body = {"agent": definition["name"], "input": text or title, "title": title, **spec}
    answer = await stack.http.post("/tasks", json=body)
    task_id: str = answer.raise_for_status().json()["task_id"]
    return task_id


async def survey(stack: Stack) -> str:
    """A conversation with its three kinds of turns: what two subagents reported was fired, one outcome waits."""
    lead, reader = agent("analyst", "reader", "critic"), agent("reader", mode="subagent")
    found = "The index takes 41 s to build and 380 MiB; every query answers in under 20 ms."
    await define(stack, reader, chain([("list_files", {"path": "."})], text="I look at what there is.", last=found))
    critic = agent("critic", mode="subagent", limits={"steps": 1})
    await define(stack, critic, chain([("list_files", {"path": "."})], last="No source could be read."))
    parts = [async_delegate("benchmarks", "Measure all three.", agent="reader")]
    parts += [async_delegate("our repo", "How many rows do we have, and how long are they?", agent="reader")]
    first = chain(parts, last="Two subagents look at it in the background. I continue when they have reported.")
    question = "Compare the vector stores that run on one machine: speed, limits, upkeep. Our repo is the test case."
    title, limit = "Compare three vector stores", {"tree": {"max_cost_usd": 0.1}}
    talk = Talk(stack, await ask(stack, lead, title, first, question, config=limit))
    await talk.posted(2)
    await talk.rest()
    report = "For our 1.2 million rows all three answer in under 20 ms. They differ in upkeep:\n\n"
    report += "- **pgvector** needs nothing new; PostgreSQL is there already.\n"
    report += "- **LanceDB** is the fastest to build (41 s), but is one more store to back up."
    await define(stack, lead, say(report))
    await talk.fire()
    last = chain([async_delegate("limits", "Where does each end?", agent="critic")], last="About 7 GiB of disk more.")
    await define(stack, lead, last)
    said = await stack.http.post(f"/conversations/{talk.id}/messages", json={"input": "And what would it cost us?"})
    said.raise_for_status()
    await talk.posted(3)
    await talk.rest()
    return talk.id


async def prepare(stack: Stack) -> Scene:
    await stack.define(*AGENTS, *TEAM)
    scene = Scene(stack)
    talk = calls(async_delegate("helper", "[[script:say]]"), task("[[script:say]]", description="read the notes"))
    team = {definition["name"]: definition for definition in (*AGENTS, TESTER, agent("lead", "helper"))}

    async def ran(title: str, script: str, name: str = "tester", text: str = "") -> str:
        task_id = await ask(stack, team[name], title, script, text)
        await stack.wait(task_id)
        return task_id

    scene.ids["one"] = await ran("Check the certificates", calls(bash("echo valid until March")))
    scene.ids["other"] = await ran("Check the certificates again", calls(bash("echo valid until June")))
    scene.ids["failed"] = await ran("Publish the release notes", "[[script:say]]", text="[[fault:auth]]")
    scene.ids["lead"] = await ran("Ask your helpers what is still open", talk, "lead")
    scene.ids["chat"] = await survey(stack)
    release = calls(bash("touch released"))
    scene.ids["waits"] = await ask(stack, team["careful"], "Release version 2.4", release)
    await waiting(stack, scene.ids["waits"])
    question = ("ask_user", {"question": "Which of the two suppliers do you mean?", "options": ["Nord", "Süd"]})
    await waiting(stack, await ask(stack, team["asker"], "Reorder toner", steps([question])))
    title = "Fix the flaky refund test and open a pull request"
    scene.ids["mender"] = await ask(stack, MENDER, title, repair(), config={"max_cost_usd": 2})
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
    renames = await ask(stack, team["careful"], "Rename the billing folder", script, permissions=rules)
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


async def main(names: list[str]) -> None:
    async with async_playwright() as tool, embedded() as stack:
        browser = await tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        scene = await prepare(stack)
        for name in names or PICTURES:
            file = await take(browser, scene, PICTURES[name], FOLDER / f"{name}.png")
            click.echo(f"{file.name}: {file.stat().st_size // 1_000} kB")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
