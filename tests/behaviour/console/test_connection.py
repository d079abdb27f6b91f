"""The pages while the server is unavailable, slow or refuses; and what a reader keeps in view."""

import asyncio
import re
from urllib.parse import urlsplit

from playwright.async_api import Route, expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_inbox import chosen
from tests.behaviour.console.test_views import define
from tests.behaviour.supervision.people import answer, bash, waiting
from tests.support.stack import Stack, calls

pytestmark = needs_browser

ANY_REQUESTS = re.compile(r"/input-requests")


async def test_request_of_the_time_before_the_feed_is_connected_is_shown(stack: Stack, opened: Opener) -> None:
    await define(stack)
    connect = asyncio.Event()

    async def late(route: Route) -> None:
        if "event-stream" in route.request.headers["accept"]:
            await connect.wait()
        await route.continue_()

    pages = {view: await opened("about:blank") for view in ("", "inbox")}
    for view, page in pages.items():
        await page.add_init_script("window.setInterval = () => 0")  # views read again for the feed alone
        await page.route(re.compile("/notifications"), late)
        path = "/input-requests" if view else "/figures"
        async with page.expect_response(lambda found, path=path: urlsplit(found.url).path == path):  # type: ignore[misc]
            await page.goto(f"{stack.url}/#/{view}")
    task_id = await stack.submit(calls(bash("touch between")), "careful")
    [request] = await waiting(stack, task_id)
    connect.set()
    await expect(pages[""].locator(f'[data-task="{task_id}"]')).to_be_visible()
    await expect(pages["inbox"].locator(f'[data-id="{request["id"]}"]')).to_be_visible()
    waits = str((await stack.http.get("/summary")).json()["open_requests"])
    figure = pages[""].locator(".stats div", has_text="Waiting for people")
    await expect(figure.locator("dd span").first).to_have_text(waits)
    await stack.cancel(task_id)


async def test_view_whose_first_read_fails_is_shown_when_the_server_is_back(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(calls(bash("touch later")), "careful")
    await waiting(stack, task_id)
    page = await opened("about:blank")
    await page.clock.install()
    await page.goto(stack.url)
    views = {
        "inbox": ".request",
        "overview": ".worker",
        "agents": ".agent-list li",
        "start": "textarea",
        f"compare/{task_id}/{task_id}": ".banner",
        f"tasks/{task_id}": ".step-row",
        "": "[data-task]",
    }
    for view, ready in views.items():
        await page.route(re.compile(r"//[^/]+/(?!console)."), lambda route: route.abort())
        await page.goto(f"{stack.url}/#/{view}")
        await expect(page.get_by_text("The server does not answer. The console keeps trying.").first).to_be_visible()
        await page.unroute_all()
        await page.clock.run_for(5_000)  # on the clock of the page
        await expect(page.locator(ready).first).to_be_visible()
        await expect(page.get_by_text("The server does not answer")).to_have_count(0)
    await stack.cancel(task_id)


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

    # somebody else answered first, and the page cannot find out who
    card = await chosen(page, second)
    await page.route(ANY_REQUESTS, lambda route: route.abort())
    assert (await answer(stack, task_id, second["id"], {"approved": True})).status_code == 202
    await card.locator("[data-do=a]").click()
    await expect(card.get_by_role("alert").first).to_have_text("The server does not answer. The console keeps trying.")
    await page.unroute_all()
    await expect(card).to_have_count(0)  # the request is settled, although the answer of this page failed
    assert (await stack.wait(task_id))["status"] == "completed"
