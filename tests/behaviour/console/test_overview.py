"""The overview and the agents in the console: figures, queues, failing deliveries, and the changes of an agent."""

import re

from playwright.async_api import expect

from domain.ids import new_id
from tests.behaviour.console.conftest import Opener, needs_browser
from tests.support.launch import free_port
from tests.support.stack import Stack, eventually

pytestmark = needs_browser


async def test_overview_shows_figures_queues_failing_deliveries_and_agents_what_changed_in_them(
    stack: Stack, opened: Opener
) -> None:
    name = f"changing-{new_id()[-8:]}"
    for prompt in ("Say it.\nBe brief.", "Say it.\nBe thorough.", "Sing it.\nBe thorough."):
        definition = {"name": name, "description": "Changes.", "prompt": prompt}
        assert (await stack.http.put(f"/agents/{name}", json=definition)).is_success
    body = {"name": name, "channel": "webhook", "target": f"http://127.0.0.1:{free_port()}/nobody", "every_task": False}
    subscription = (await stack.http.post("/subscriptions", json=body)).json()
    task_id = await stack.submit("tell nobody", config={"notify": [name]})

    async def refused() -> bool:
        found = (await stack.http.get("/deliveries", params={"subscription_id": subscription["id"]})).json()["items"]
        return bool(found and found[0]["last_error"])

    await eventually(refused, what="a delivery that failed")
    page = await opened(f"{stack.url}/#/overview")
    await expect(page.locator("main")).to_contain_text("Everything is running")
    await expect(page.locator("main")).to_contain_text(re.compile(r"\d workers?"))
    await expect(page.locator(".queue").first).to_contain_text("errand")
    figures = (await stack.http.get("/figures")).json()
    ended = page.locator(".stats div", has_text="Ended in 24 h")
    await expect(ended.locator("dd span")).to_have_text(f"{figures['ended']:,}")
    assert figures["ended"] > 0 and sum(one["ended"] for one in figures["by_agent"]) == figures["ended"]
    await expect(page.locator(".ended svg[role=img]")).to_have_attribute(
        "aria-label", f"{figures['ended']} tasks ended in 24 h, {figures['failed']} of them failed."
    )
    sendable = page.locator("li", has=page.get_by_role("button", name="Send again"))
    # Deliveries of other tests may have failed too: one whose subscription was removed cannot be sent again.
    failing = sendable.filter(has_text=re.compile(r"task_completed\s*again \d"))
    await expect(failing.first).to_be_visible()
    async with page.expect_response(lambda found: found.url.endswith("/resend")) as resent:
        await failing.first.get_by_role("button", name="Send again").click()
    assert (await resent.value).ok
    await page.goto(f"{stack.url}/#/agents/{name}")
    await expect(page.get_by_role("heading", name=f"What changed in {name}")).to_be_visible()
    removed, added = page.locator(".diff .removed > span"), page.locator(".diff .added > span")
    await expect(removed).to_have_text(["Say it.\n"])  # by default the last two versions are compared
    await page.get_by_label("from version").select_option("1")
    await expect(removed).to_have_text(["Say it.\n", "Be brief.\n"])
    await expect(added).to_have_text(["Sing it.\n", "Be thorough.\n"])
    await page.get_by_label("to version").select_option("2")
    await expect(removed).to_have_text(["Be brief.\n"])
    await expect(added).to_have_text(["Be thorough.\n"])
    assert (await stack.http.delete(f"/subscriptions/{subscription['id']}")).is_success
    await stack.wait(task_id)
