"""The inbox: open requests, and answers to them."""

import asyncio
import json
import re
from typing import Any

from playwright.async_api import Browser, Locator, Page, expect

from store import keys
from store.keys import Right
from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_views import define
from tests.behaviour.conversations.talk import chain
from tests.behaviour.supervision.people import answer, ask, bash, waiting
from tests.support.many_rows import copy_request
from tests.support.stack import Stack, calls, eventually, steps

pytestmark = needs_browser


async def test_approval_by_keyboard_runs_the_call(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch by-keyboard")), "careful")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await expect(item.locator(".kind")).to_have_text(re.compile(r"careful v\d+ · tool approval · bash"))
    await expect(item.locator(".whose")).to_contain_text("[[script:tools")  # the title of the task
    await expect(page).to_have_title(re.compile(r"\(\d+\) Errand"))
    await by_keyboard(page, request["id"])
    await expect(page.locator(".ask")).to_contain_text("touch by-keyboard")
    await expect(page.locator(".ask")).to_contain_text("ask bash")
    for _ in range(3):  # a key pressed right after Escape reaches the page, not the closing dialog
        await page.keyboard.press("d")
        await expect(page.get_by_role("dialog", name="Deny")).to_be_visible()
        await page.keyboard.press("Escape")
    await page.wait_for_timeout(450)  # a key approves only what has been in view for a moment
    await page.keyboard.press("a")
    record = await stack.wait(task_id)
    assert record["status"] == "completed"
    await expect(item).to_have_count(0)


async def test_denial_with_a_reason_after_seeing_all_that_it_is_about(stack: Stack, opened: Opener) -> None:
    written = ("write_file", {"path": "notes.md", "content": "Bring bread.\n"})
    rules = [{"permission": "write_file", "action": "ask"}]
    script = chain([written], text="I am going to write the notes.", last="Then not.")
    task_id = await stack.submit(script, permissions=rules)
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await expect(item.locator(".countdown")).to_have_text(re.compile(r"^\d+ (min|s|h)"))
    before = await item.locator(".countdown").inner_text()
    await by_keyboard(page, request["id"])
    await expect(page.locator(".ask .diff .added span").last).to_have_text("Bring bread.\n")
    await expect(page.locator(".so-far")).to_contain_text("1 step")
    await expect(page.locator(".before")).to_have_text("I am going to write the notes.")
    await expect(item.locator(".countdown")).not_to_have_text(before)  # it counts down
    await page.keyboard.press("d")
    await page.get_by_label("Why? The agent reads it").fill("No bread, please.")
    await page.get_by_role("dialog").get_by_role("button", name="Deny").click()
    await expect(item).to_have_count(0)
    await stack.wait(task_id)
    assert any("No bread, please." in json.dumps(node["body"]) for node in await stack.nodes(task_id))
    decided = page.locator(".decided li", has=page.locator(f'a[href="#/tasks/{task_id}"]'))
    await expect(decided).to_contain_text("denied by")


async def chosen(page: Page, request: dict[str, Any]) -> Locator:
    """Choose a request in the list; return its decision."""
    await page.locator(f'[data-id="{request["id"]}"] .question').click()
    return page.locator(f'[data-request="{request["id"]}"]')


async def by_keyboard(page: Page, request_id: str) -> None:
    """Move with the keyboard until this request is the current one."""
    for _ in range(200):
        if await page.locator(".request[aria-current=true]").get_attribute("data-id") == request_id:
            return
        await page.keyboard.press("j")
    raise AssertionError("not reached by j")


async def test_question_is_answered_by_a_form_of_its_schema(stack: Stack, opened: Opener) -> None:
    await define(stack)
    deep = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
    optional = {"mode": {"enum": ["fast", "safe"]}, "again": {"type": "boolean"}, "deep": deep}
    properties = {"port": {"type": "integer"}, "color": {"enum": ["red", "green"]}, **optional}
    schema = {"type": "object", "properties": properties, "required": ["port", "color"]}
    task_id = await stack.submit(calls(ask("Which port?", answer_schema=schema)), "asker")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = await chosen(page, request)
    await item.get_by_label("port").fill("8080")
    await item.get_by_role("button", name="Answer").click()
    await expect(item.get_by_role("alert")).to_have_text("color is required.")  # and no error for the first field
    await item.get_by_label("color").select_option("green")
    await item.get_by_role("button", name="Answer").click()
    await stack.wait(task_id)
    answered = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"][0]
    assert answered["answer"] == {"port": 8080, "color": "green"}  # no value that nobody chose


async def test_edited_call_becomes_a_rule_only_if_its_box_is_ticked(stack: Stack, opened: Opener) -> None:
    await define(stack)
    same = bash("touch as-asked")
    task_id = await stack.submit(steps([same], [same], [same]), "careful")
    page = await opened(f"{stack.url}/#/inbox")
    sent = []
    for tick in (False, True):
        [request] = await waiting(stack, task_id)
        box = await chosen(page, request)
        await box.locator('[data-do="e"]').click()
        await box.get_by_label("command").fill("touch as-changed")
        await expect(box.locator(".change .added mark")).to_have_text("changed")  # what differs from the request
        if tick:
            await box.get_by_label("without asking").check()
            await expect(box.get_by_label("one pattern a line")).to_have_value("touch as-asked")
        async with page.expect_request(lambda asked: asked.method == "POST") as posted:
            await box.get_by_role("button", name="Approve as edited").click()
        sent.append(json.loads((await posted.value).post_data or "")["input"])
        await expect(page.locator(f'[data-id="{request["id"]}"]')).to_have_count(0)
    changed = {"approved": True, "arguments": {"command": "touch as-changed"}}
    assert sent == [changed, {**changed, "always": ["touch as-asked"]}]
    assert (await stack.wait(task_id))["status"] == "completed"  # the third call matches the rule


async def test_key_approves_only_what_was_in_view_to_its_end(stack: Stack, opened: Opener) -> None:
    lines = "".join(f"line {number}\n" for number in range(80))
    rules = [{"permission": "write_file", "action": "ask"}]
    task_id = await stack.submit(calls(("write_file", {"path": "long.txt", "content": lines})), permissions=rules)
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    card = page.locator(f'[data-request="{request["id"]}"]')
    more = page.locator(".toast", has_text="There is more of it")
    await expect(card.locator(".diff .line")).to_have_count(30)
    await page.wait_for_timeout(450)
    await page.keyboard.press("a")
    await expect(more).to_have_count(1)
    await card.get_by_role("button", name="Show all").click()
    await page.keyboard.press("a")
    await expect(more).to_have_count(2)  # its end is not in view yet
    await expect(card.get_by_role("button", name="Approve")).to_be_in_viewport()
    await card.locator(".body").evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
    await page.wait_for_timeout(450)
    await page.keyboard.press("a")
    assert (await stack.wait(task_id))["status"] == "completed"


async def test_slower_of_two_browsers_sees_who_answered_first(stack: Stack, browser: Browser) -> None:
    """Both browsers show the request and then receive no events; both press a button."""
    await define(stack)
    task_id = await stack.submit(calls(bash("touch two-browsers")), "careful")
    [request] = await waiting(stack, task_id)

    async def browse(name: str) -> Page:
        _, secret = await keys.create(stack.pool, "default", name, list(Right))
        context = await browser.new_context(extra_http_headers={"X-Forwarded-For": "203.0.113.7"})
        page = await context.new_page()
        await page.goto(f"{stack.url}/#/inbox")
        await page.get_by_label("Key").fill(secret)
        await page.get_by_role("button", name="Sign in").click()
        await (await chosen(page, request)).locator("[data-do=a]").hover()
        await page.route(re.compile(r"/input-requests\?"), lambda route: route.abort())
        return page

    names = ("Anna", "Ben")
    pages = dict(zip(names, await asyncio.gather(*map(browse, names)), strict=True))
    buttons = [page.locator(f'[data-request="{request["id"]}"] [data-do="a"]') for page in pages.values()]
    await asyncio.gather(*(button.click() for button in buttons))
    await stack.wait(task_id)
    [settled] = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    first = settled["answered_by"]
    for name, page in pages.items():
        said = f"Approved: {request['question']}" if name == first else f"{first} was first: approved at "
        await expect(page.locator("p.said")).to_contain_text(said)
        await expect(page.locator(f'[data-id="{request["id"]}"]')).to_have_count(0)
        await page.context.close()
    assert first in pages


async def test_inbox_shows_all_requests_nearest_deadline_first(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch many")), "careful")
    [request] = await waiting(stack, task_id)
    copies = await copy_request(stack.pool, request["id"], 230)  # the oldest ids have the nearest deadlines
    try:
        page = await opened(f"{stack.url}/#/inbox")
        cards = page.locator(".request")
        assert (await cards.nth(0).get_attribute("data-id"), await cards.count()) == (copies[0], 50)
        waits: int = (await stack.http.get("/summary")).json()["open_requests"]
        assert waits > 230
        await expect(page.locator("[data-waiting]")).to_have_text(str(waits))

        for _ in range(60):  # move by keyboard beyond the end of the first page
            await page.keyboard.press("j")
        await expect(page.locator(".request[aria-current=true]")).to_have_attribute("data-id", copies[60])

        async def all_shown() -> bool:
            await page.locator(".two .scroll").first.evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
            # counted each time: requests that other tests left behind may expire meanwhile
            shown: int = (await stack.http.get("/summary")).json()["open_requests"]
            return await cards.count() == shown

        await eventually(all_shown, what="all requests")
        ids = await cards.evaluate_all("(all) => all.map((one) => one.dataset.id)")
        assert ids[:230] == copies
        sent: list[str] = []
        page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
        await page.locator(f'[data-id="{copies[100]}"] .question').click()
        await page.wait_for_timeout(450)
        await page.keyboard.down("a")
        await expect(page.locator(f'[data-id="{copies[100]}"]')).to_have_count(0)
        assert await cards.count() >= len(copies)  # the other requests are still listed
        current = page.locator(".request[aria-current=true]")
        await expect(current).to_have_attribute("data-id", copies[101])  # the next request is the current one
        await page.wait_for_timeout(450)
        await page.keyboard.down("a")  # the key is still held, but it was meant for one request
        await page.keyboard.up("a")
        # answered by somebody else
        assert (await answer(stack, task_id, copies[101], {"approved": False})).status_code == 202
        await expect(page.locator("p.said")).to_contain_text("Settled elsewhere: copy 102 of")
        await expect(current).to_have_count(0)
        await page.keyboard.press("a")  # the key was meant for the request that somebody else answered
        await page.keyboard.press("j")
        await expect(current).to_have_attribute("data-id", copies[102])
        assert len(sent) == 1
        await expect(page.locator(".decided li").first).to_contain_text("copy 102 of")
        await stack.cancel(task_id)  # this withdraws its requests
        await stack.wait(task_id)
        await expect(page.locator(f'[data-id="{request["id"]}"]')).to_have_count(0)
        left = (await stack.http.get("/summary")).json()["open_requests"]
        assert left < waits
        await expect(page.locator("[data-waiting]")).to_have_text(str(left) if left else "")
    finally:
        await stack.pool.execute("DELETE FROM input_requests WHERE id = ANY($1::text[])", copies)
