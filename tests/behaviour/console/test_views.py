"""The console in a real browser, on the real stack."""

import asyncio
import re
import statistics
from datetime import datetime

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import async_delegate
from tests.behaviour.supervision.people import AGENTS, ask, bash, waiting
from tests.support.stack import Stack, calls, eventually

pytestmark = needs_browser


async def define(stack: Stack) -> None:
    for definition in AGENTS:
        assert (await stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success


# when each row was first seen in each state, by the clock of this machine
NOTE_ROWS = """() => {
    window.seen = {};
    const look = () => {
        for (const row of document.querySelectorAll(".task-row"))
            window.seen[`${row.querySelector("a").hash} ${row.querySelector(".status").textContent}`] ??= Date.now();
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true });
}"""


async def test_row_appears_within_a_second_of_its_event(stack: Stack, opened: Opener) -> None:
    """Measured from the time of the event to the change of the page; half of the times, as others use the machine."""
    page = await opened(stack.url)
    await expect(page.locator(".connection")).to_have_text("live")
    await page.evaluate(NOTE_ROWS)
    delays = []
    for _ in range(3):
        task_id = await stack.submit("appear by yourself [[script:say words=8 delay=0.1]]")
        row = page.locator(".task-row", has=page.locator(f'a[href="#/tasks/{task_id}"]'))
        await expect(row.locator(".status")).to_have_text("completed")
        for kind, status in (("task_started", "working"), ("task_completed", "completed")):
            at = datetime.fromisoformat((await stack.seen(task_id, kind))["at"]).timestamp()
            delays.append(await page.evaluate("(key) => window.seen[key]", f"#/tasks/{task_id} {status}") / 1_000 - at)
    assert statistics.median(delays) <= 1, delays


async def test_approval_by_keyboard_runs_the_call(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch by-keyboard")), "careful")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await expect(item).to_contain_text("touch by-keyboard")
    await expect(item).to_contain_text("ask bash")
    await chosen(page, request["id"])
    await page.keyboard.press("a")
    record = await stack.wait(task_id)
    assert record["status"] == "completed"
    await expect(item).to_have_count(0)


async def chosen(page: Page, request_id: str) -> None:
    """Move with the keyboard until this request is the current one."""
    for _ in range(200):
        if await page.locator("[aria-current=true]").get_attribute("data-id") == request_id:
            return
        await page.keyboard.press("j")
    raise AssertionError("not reached by j")


async def test_question_is_answered_by_a_form_of_its_schema(stack: Stack, opened: Opener) -> None:
    await define(stack)
    schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
    task_id = await stack.submit(calls(ask("Which port?", answer_schema=schema)), "asker")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await item.get_by_label("port").fill("8080")
    await item.get_by_role("button", name="Answer").click()
    await stack.wait(task_id)
    answered = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"][0]
    assert answered["answer"] == {"port": 8080}


async def test_second_browser_learns_who_was_first(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch two-browsers")), "careful")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await expect(item).to_be_visible()
    await page.route(
        re.compile(r"/input-requests\?"), lambda route: route.abort()
    )  # it does not see the other's answer in time
    body = {"response_to": request["id"], "input": {"approved": False}}
    assert (await stack.http.post(f"/tasks/{task_id}/input", json=body)).status_code == 202
    await item.get_by_role("button", name="Approve").click()
    await expect(page.locator("p.said")).to_contain_text("was first: denied")
    await stack.wait(task_id)


async def test_page_continues_after_the_api_was_killed(stack: Stack, opened: Opener) -> None:
    page = await opened(stack.url)
    await expect(page.locator(".connection")).to_have_text("live")
    before = await stack.kill("api")
    await expect(page.locator(".connection")).to_have_text("reconnecting…")
    await stack.back("api", before)
    await expect(page.locator(".connection")).to_have_text("live")
    task_id = await stack.submit("after the restart")
    await expect(page.locator(f'a[href="#/tasks/{task_id}"]')).to_be_visible()


async def test_mailbox_is_fired_by_a_click(stack: Stack, opened: Opener) -> None:
    for definition in TEAM:
        said = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert said.is_success, said.text
    task_id = await stack.submit(calls(async_delegate("helper", "[[script:say]]")), "lead")
    record = await stack.wait(task_id)

    async def pending() -> bool:
        mail = (await stack.http.get(f"/conversations/{record['conversation_id']}/mailbox")).json()
        return bool(mail["pending_count"])

    await eventually(pending, what="the helper's outcome")
    page = await opened(f"{stack.url}/#/conversations/{record['conversation_id']}")
    fire = page.locator("[data-fire]")
    await expect(fire).to_be_enabled()
    await fire.click()
    await expect(page.locator(".mailbox .badge")).to_have_text("0")


async def test_rerun_from_a_step_and_the_first_difference(stack: Stack, opened: Opener) -> None:
    task_id = await stack.submit(calls(bash("echo one")))
    await stack.wait(task_id)
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    await page.locator(".step-row").nth(1).click()
    await page.locator("[data-rerun]").click()
    await page.get_by_label("Result of bash, call 0 of step 1").fill("another result")
    await page.get_by_role("dialog").get_by_role("button", name="Rerun").click()
    await page.wait_for_url(lambda url: task_id not in url)
    again = page.url.rsplit("/", 1)[1]
    await stack.wait(again)
    await page.get_by_role("link", name="Compare with the original").click()
    await expect(page.locator("main .banner")).to_contain_text("difference")


async def test_replay_says_whether_the_code_decides_the_same(stack: Stack, opened: Opener) -> None:
    task_id = await stack.submit("replay me")
    await stack.wait(task_id)
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    await page.get_by_role("button", name="Replay on today's code").click()
    await expect(page.get_by_text("The same decisions")).to_be_visible(timeout=60_000)


@pytest.mark.parametrize("view", ["#/start"])
async def test_views_are_accessible(stack: Stack, opened: Opener, view: str) -> None:
    page = await opened(f"{stack.url}/{view}")
    await expect(page.locator("h1")).to_be_visible()
    await expect(page.locator(".connection")).to_have_text("live")
    await asyncio.sleep(1)
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


async def test_waiting_requests_are_in_the_title(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch badge")), "careful")
    await waiting(stack, task_id)
    page = await opened(stack.url)
    await expect(page).to_have_title(re.compile(r"\(\d+\) Errand"))
    await stack.cancel(task_id)
