"""The console behind a reverse proxy that serves it under a prefix, by https."""

from playwright.async_api import Browser, expect

from store import keys
from store.keys import Right
from tests.behaviour.console.conftest import needs_browser
from tests.support.prefix_proxy import prefix_proxy
from tests.support.stack import Stack

pytestmark = needs_browser


async def test_console_works_under_a_prefix_and_forgets_everything_at_sign_out(stack: Stack, browser: Browser) -> None:
    _, secret = await keys.create(stack.pool, "default", "person", list(Right))
    strays: list[str] = []
    async with prefix_proxy(stack.url, strays) as address:
        context = await browser.new_context()
        page = await context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(address)
        await page.get_by_label("Key").fill(secret)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".connection")).to_have_text("live")
        [cookie] = await context.cookies()
        assert cookie["secure"] and cookie["httpOnly"] and cookie["sameSite"] == "Strict"

        await page.get_by_role("link", name="New task").click()
        await expect(page.locator("h1")).to_have_text("Start a task")
        await page.get_by_label("Agent", exact=True).select_option("tester")
        await page.get_by_label("What should it do?").fill("say it under a prefix")
        await page.get_by_role("button", name="Start", exact=False).click()
        await expect(page.locator(".step-row").first).to_be_visible()
        task_id = page.url.rsplit("/", 1)[1]
        await stack.wait(task_id)
        await expect(page.get_by_title("The whole result as JSON")).to_have_attribute(
            "href", f"{address}tasks/{task_id}/result"
        )
        await page.get_by_label("Account").click()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Key")).to_be_visible()
        assert await context.cookies() == []
        await page.go_back()
        await expect(page.get_by_label("Key")).to_be_visible()
        assert "say it under a prefix" not in await page.locator("body").inner_text()
        assert strays == [] and all(url.startswith((address, "blob:")) for url in asked)
        await context.close()
    headers = {"Authorization": f"Bearer {secret}"}
    for path in ("/console/session", f"/tasks/{task_id}"):
        answer = await stack.http.get(path, headers=headers)
        assert "no-store" in answer.headers["cache-control"] and answer.headers["x-frame-options"] == "DENY"
