"""Typical uses of the console from start to end, and long lists."""

import itertools
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, Page, expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_views import define
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import async_delegate
from tests.behaviour.supervision.people import bash, waiting
from tests.support.many_rows import copy_steps, copy_task
from tests.support.stack import Stack, calls, eventually, steps

pytestmark = needs_browser

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


async def mailbox_with_an_outcome(stack: Stack) -> str:
    await stack.define(*TEAM)
    record = await stack.run(calls(async_delegate("helper", "[[script:say]]")), "lead")
    conversation_id: str = record["conversation_id"]

    async def pending() -> bool:
        mail = (await stack.http.get(f"/conversations/{conversation_id}/mailbox")).json()
        return bool(mail["pending_count"])

    await eventually(pending, what="the helper's outcome")
    return conversation_id


@pytest_asyncio.fixture(scope="module")
async def runs(stack: Stack) -> dict[str, str]:
    """Two runs with different results, and a conversation with an outcome in its mailbox."""
    await define(stack)
    found = {name: (await stack.run(calls(bash(f"echo {name}"))))["task_id"] for name in ("one", "other")}
    return found | {"conversation": await mailbox_with_an_outcome(stack)}


async def test_approve_fire_and_find_the_difference_in_nine_clicks(
    stack: Stack, opened: Opener, runs: dict[str, str]
) -> None:
    one, other, conversation_id = runs["one"], runs["other"], runs["conversation"]
    waits = await stack.submit(calls(bash("touch nine-clicks")), "careful")
    await waiting(stack, waits)
    page = await opened(stack.url)
    clicks = 0

    async def click(where: Locator) -> None:
        nonlocal clicks
        clicks += 1
        await where.click()

    await click(page.locator(f'.grow a[href="#/tasks/{waits}"]'))
    await click(page.get_by_role("button", name="Approve"))
    assert (await stack.wait(waits))["status"] == "completed"
    await click(page.get_by_role("link", name="Chats"))
    await click(page.locator(f'li a[href="#/conversations/{conversation_id}"]'))
    await click(page.locator("[data-fire]"))
    await expect(page.locator(".mailbox .badge")).to_have_text("0")
    await click(page.get_by_role("link", name="Tasks", exact=True))
    await click(page.locator(f'.grow a[href="#/tasks/{one}"]'))
    await click(page.get_by_role("button", name="Compare…"))
    await click(page.locator(f'dialog a[href="#/compare/{one}/{other}"]'))
    await expect(page.locator("main .banner")).to_contain_text("First difference: tool call in step 1")
    # the changed words
    await expect(page.locator(".difference .removed mark").first).to_have_text("one")
    await expect(page.locator(".difference .added mark").first).to_have_text("other")
    assert clicks <= 9


async def tab_to(page: Page, selector: str) -> None:
    for _ in range(300):
        await page.keyboard.press("Tab")
        if await page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with the Tab key")


async def test_same_errand_with_the_keyboard_only(stack: Stack, opened: Opener, runs: dict[str, str]) -> None:
    conversation_id = await mailbox_with_an_outcome(stack)
    waits = await stack.submit(calls(bash("touch by-tab")), "careful")
    [request] = await waiting(stack, waits)
    page = await opened(stack.url)
    await expect(page.locator(".connection")).to_have_text("live")

    async def press(selector: str, at_home: bool = False) -> None:
        if at_home:
            await press('nav a[href="#/"]')
        await expect(page.locator(selector).first).to_be_visible()
        await tab_to(page, selector)
        await page.keyboard.press("Enter")

    await press('nav a[href="#/inbox"]')
    await press(f'[data-id="{request["id"]}"] button')
    await press(f'[data-request="{request["id"]}"] [data-do="a"]')
    assert (await stack.wait(waits))["status"] == "completed"
    await press('nav a[href="#/conversations"]')
    await press(f'li a[href="#/conversations/{conversation_id}"]')
    await expect(page.locator("[data-fire]")).to_be_enabled()
    await press("[data-fire]")
    await expect(page.locator(".mailbox .badge")).to_have_text("0")
    await press(f'.grow a[href="#/tasks/{runs["one"]}"]', at_home=True)
    await press("[role=tree]")
    await expect(page.locator(".step .chip")).to_have_text("Step 1")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".step .chip")).to_have_text("Step 2")
    await page.get_by_role("button", name="Compare…").evaluate("(one) => { one.id = 'compare'; }")
    await press("#compare")
    await press(f'dialog a[href="#/compare/{runs["one"]}/{runs["other"]}"]')
    await expect(page.locator("main .banner")).to_contain_text("First difference: tool call in step 1")


async def test_every_view_is_accessible_in_light_and_dark_on_a_desk_and_on_a_phone(
    stack: Stack, browser: Browser, runs: dict[str, str]
) -> None:
    long_name = "agent-with-a-name-that-is-wider-than-the-screen-of-a-phone"
    for prompt in ("Say it.", "Sing it."):
        definition = {"name": long_name, "description": "d" * 300, "prompt": prompt}
        assert (await stack.http.put(f"/agents/{long_name}", json=definition)).is_success
    await stack.run("w" * 300, long_name)
    waits = await stack.submit(calls(bash("touch " + "w" * 300)), "careful")
    [request] = await waiting(stack, waits)
    views = {
        f"tasks/{runs['one']}/1": ".step .call",
        f"tasks/{waits}": ".ask [data-do=a]",
        f"conversations/{runs['conversation']}": ".exchange .message",
        f"compare/{runs['one']}/{runs['other']}": ".difference mark",
        "": "[data-task]",
        "inbox": ".ask [data-do=a]",
        f"inbox/{request['id']}": ".ask [data-do=a]",
        "conversations": ".talks a",
        "overview": ".worker",
        f"agents/{long_name}": ".diff .added",
        "start": "textarea",
        "signed out": "#key",
    }
    everything: dict[str, Any] = {"resultTypes": ["violations"]}
    coloured = everything | {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
    context = await browser.new_context()
    page = await context.new_page()
    for view, ready in views.items():
        await page.set_viewport_size({"width": 1200, "height": 850})
        if view == "signed out":
            await context.set_extra_http_headers({"X-Forwarded-For": "203.0.113.7"})
            await page.reload()
        else:
            await page.goto(f"{stack.url}/#/{view}")
        await expect(page.locator(ready).first).to_be_visible()
        if view == "overview":  # the sentence of a chart names the agent that spent most
            await page.locator("#agent").select_option(long_name)
            await expect(page.locator(".spent caption")).to_contain_text(long_name)
        for width, scheme in itertools.product((1200, 390), SCHEMES):
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": width, "height": 850})
            found = await Axe().run(page, options=everything if scheme == "light" else coloured)
            assert found.violations_count == 0, (view, scheme, width, found.generate_report())
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{view} is wider than {width} pixels"
    await context.close()
    await stack.cancel(waits)


async def test_task_shows_its_files_audit_and_budget_which_can_be_raised(stack: Stack, opened: Opener) -> None:
    await define(stack)
    script = steps([("write_file", {"path": "notes/a.txt", "content": "x"})], [("ask_user", {"question": "Which?"})])
    kept: dict[str, Any] = {"kind": "command", "run": "test -f notes/a.txt"}
    task_id = await stack.submit(script, "asker", config={"max_steps": 2}, acceptance_criteria=[kept])
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    beside = page.locator(".side .files")
    await expect(beside).to_contain_text("Changed in the workspace so far")
    await beside.locator("details.file summary").click()
    await expect(beside.locator(".diff .added > span")).to_have_text("x")
    shows = {"Files": "notes/a.txt", "Audit": "The chain is intact", "Events": "input required: Which?"}
    for tab, text in shows.items():
        await page.get_by_role("tab", name=tab).click()
        await expect(page.locator("main")).to_contain_text(text)
    await page.get_by_role("tab", name="Files").click()
    await page.locator(".pane > .tab details.file summary").click()
    await expect(page.locator(".pane > .tab .diff .added > span")).to_have_text("x")  # since the task began
    await expect(page.locator("[data-budget=ttl]")).to_contain_text("of 1 h")
    await page.get_by_label("More").click()
    await page.locator("[data-raise]").click()
    await page.get_by_label("steps, its own").fill("9")
    await page.get_by_label("time in minutes, its own").fill("90")
    await page.get_by_role("dialog").get_by_role("button", name="Raise").click()
    await expect(page.locator("[data-budget=steps]")).to_contain_text("of 9")
    await expect(page.locator("[data-budget=ttl]")).to_contain_text("of 1 h 30 min")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Share as one file").click()
    shared = await (await download.value).path()
    assert "Which?" in shared.read_text()
    body = {"response_to": request["id"], "input": "this"}
    assert (await stack.http.post(f"/tasks/{task_id}/input", json=body)).status_code == 202
    assert (await stack.wait(task_id))["reason"] == "goal_reached"
    [verdict] = (await stack.result(task_id))["acceptance"]
    assert verdict["why"]
    await page.get_by_role("tab", name="Result").click()
    await expect(page.get_by_text(f"{verdict['criterion']}: {verdict['why']}")).to_be_visible()


@pytest_asyncio.fixture
async def many(stack: Stack) -> AsyncIterator[tuple[str, list[str], str]]:
    """A task, a thousand older copies of it, and a copy with five hundred steps; all copies are removed at the end."""
    task_id = (await stack.run(calls(("list_files", {"path": "."}))))["task_id"]
    copies = await copy_task(stack.pool, task_id, 1_000)
    long_id = await copy_steps(stack.pool, task_id, 500)
    yield task_id, copies, long_id
    await stack.pool.execute("DELETE FROM events WHERE session_id = $1", long_id)
    await stack.pool.execute("DELETE FROM sessions WHERE id = ANY($1::text[])", [*copies, long_id])


TO_END = "(box) => { box.scrollTop = box.scrollHeight; }"


async def test_a_thousand_tasks_and_five_hundred_steps_keep_the_page_small(
    stack: Stack, opened: Opener, many: tuple[str, list[str], str]
) -> None:
    task_id, copies, long_id = many
    page = await opened(stack.url)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.get_by_label("Text", exact=True).fill(
        f"of {task_id}"
    )  # filter, because the stack has tasks of other tests too
    await expect(page.locator("[data-task]").first).to_contain_text(f"of {task_id}")
    rows = page.locator(".virtual[aria-label=Tasks]")

    async def reached() -> bool:
        await rows.evaluate(TO_END)
        return await page.locator(f'a[href="#/tasks/{copies[0]}"]').count() > 0

    await eventually(reached, what="the oldest copy")
    assert await page.locator(".task-row").count() < 60
    assert await page.evaluate("document.querySelectorAll('main *').length") < 2_000
    assert sum("cursor=" in url for url in asked) <= 15  # one request for each page of a hundred
    await page.goto(f"{stack.url}/#/tasks/{long_id}")
    await expect(page.locator(".step-row").first).to_be_visible()
    assert await page.locator(".step-row").count() < 60
    await page.locator(".virtual[aria-label=Steps]").evaluate(TO_END)
    await expect(page.locator('[data-row$=":500"]')).to_be_visible()
    assert await page.evaluate("document.querySelectorAll('main *').length") < 4_000
