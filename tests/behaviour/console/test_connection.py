"""The pages while the server is unavailable, slow or refuses; and what a reader keeps in view."""

import asyncio
import re

from playwright.async_api import Route, expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_inbox import chosen
from tests.behaviour.console.test_views import define
from tests.behaviour.supervision.people import answer, bash, waiting
from tests.support.stack import Stack, calls

pytestmark = needs_browser


async def test_answer_given_while_the_server_is_away_is_kept_and_sent_once(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch again"), bash("touch and-again")), "careful")
    first, second = await waiting(stack, task_id, 2)
    page = await opened(f"{stack.url}/#/inbox")
    card = await chosen(page, first)
    keys: list[str] = []
    taken = asyncio.Event()

    async def lost(route: Route) -> None:
        """The second of them arrives, but the page does not learn it."""
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 2:
            assert (await route.fetch()).status == 202
            taken.set()
        await route.abort()

    await page.route(re.compile("/input$"), lost)
    await card.locator("[data-do=a]").click()
    kept = card.get_by_text("Your answer is kept, and sent when the server is back.")
    await expect(kept).to_be_visible()
    await card.locator("[data-do=d]").click()
    await page.get_by_role("dialog").get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("Your answer is on its way.")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Overview").click()  # it is sent from any page
    await asyncio.wait_for(taken.wait(), 20)
    await page.unroute_all()
    await expect(page.locator(".toast")).to_contain_text(f"Approved: {first['question']}")
    assert len(set(keys)) == 1
    sent = [one for one in await stack.events(task_id) if one["type"] == "input_received"]
    assert [one["request_id"] for one in sent] == [first["id"]]
    await page.get_by_role("link", name="Inbox").click()
    await expect(page.locator(f'[data-id="{second["id"]}"]')).to_be_visible()
    await expect(page.locator(f'[data-id="{first["id"]}"]')).to_have_count(0)

    assert (await answer(stack, task_id, second["id"], {"approved": True})).status_code == 202
    assert (await stack.wait(task_id))["status"] == "completed"
