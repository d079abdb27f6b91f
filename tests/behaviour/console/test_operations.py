"""Operations in the console: queues, failing deliveries, and the changes of an agent."""

import re

from playwright.async_api import expect

from api.routes.operations import Readiness
from domain.ids import new_id
from tests.behaviour.console.conftest import Opener, needs_browser
from tests.support.launch import free_port
from tests.support.stack import Stack, eventually

pytestmark = needs_browser


async def test_operations_show_queues_failing_deliveries_and_what_changed_in_an_agent(
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
    page = await opened(f"{stack.url}/#/operations")
    await expect(page.locator("main")).to_contain_text("Everything needed for tasks to run is there.")
    await expect(page.locator("main")).to_contain_text("1 worker")
    queues = page.locator("table tbody tr")
    await expect(queues.first).to_contain_text("errand")
    sendable = page.locator("li", has=page.get_by_role("button", name="Send again"))
    # Deliveries of other tests may have failed too: one whose subscription was removed cannot be sent again.
    failing = sendable.filter(has_text=re.compile(r"task_completed · again \d"))
    await expect(failing.first).to_be_visible()
    async with page.expect_response(lambda found: found.url.endswith("/resend")) as resent:
        await failing.first.get_by_role("button", name="Send again").click()
    assert (await resent.value).ok
    agent = page.locator("li", has=page.get_by_text(name, exact=True))
    await agent.get_by_role("button", name="What changed").click()
    await expect(page.locator("h3", has_text=f"What changed in {name}")).to_be_visible()
    removed, added = page.locator(".diff .removed"), page.locator(".diff .added")
    await expect(removed).to_have_text(["- Say it.\n"])  # by default the last two versions are compared
    await page.get_by_label("from version").select_option("1")
    await expect(removed).to_have_text(["- Say it.\n", "- Be brief.\n"])
    await expect(added).to_have_text(["+ Sing it.\n", "+ Be thorough.\n"])
    await page.get_by_label("to version").select_option("2")
    await expect(removed).to_have_text(["- Be brief.\n"])
    await expect(added).to_have_text(["+ Be thorough.\n"])
    assert (await stack.http.delete(f"/subscriptions/{subscription['id']}")).is_success
    await stack.wait(task_id)

    lacking = Readiness(ready=False, postgres=True, temporal=True, worker=False, workers={}, missing=["an attribute"])
    answer = lacking.model_dump_json()
    await page.route("**/readyz", lambda route: route.fulfill(status=503, body=answer, content_type="application/json"))
    await expect(page.locator(".banner.failed")).to_have_text("Not ready. an attribute")
    await expect(page.locator(".figures .failed")).to_have_count(1)
    await expect(page.locator("h2").first).to_have_text("0 workers")
