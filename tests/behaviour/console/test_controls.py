"""What people do to conversations, plans and deliveries in the console."""

from playwright.async_api import expect

from domain.ids import new_id
from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_views import chosen, define
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import Gate, Talk, async_delegate, chain, say, task
from tests.behaviour.supervision.people import plan, waiting
from tests.support.launch import free_port
from tests.support.stack import Stack, eventually, steps

pytestmark = needs_browser


async def test_promote_fire_when_idle_steer_and_terminate(stack: Stack, opened: Opener) -> None:
    """One conversation: its lead waits for a helper, is let go, and is busy while an outcome arrives."""
    for definition in TEAM:
        assert (await stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success
    helper, lead = Gate(), Gate()
    script = chain([async_delegate("helper", say("Of the first."))], [task(helper.then("Promoted."))], [lead.call])
    talk = await Talk.begin(stack, script)
    waits = await talk.child(1)
    await stack.seen(waits.id, "tool_called")
    page = await opened(f"{stack.url}/#/conversations/{talk.id}")

    await page.locator(f'[data-key="promote {waits.id}"]').click()  # a subagent that somebody waits for has it
    await expect(page.get_by_role("button", name="Promote")).to_have_count(0)

    await page.get_by_label("Message").fill("Mind the gap.")
    await page.get_by_label("Deliver it").select_option("steer")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_label("Message")).to_have_value("")

    await expect(page.locator("[data-fire]")).to_be_disabled()
    await expect(page.locator(".mailbox .why")).to_contain_text("A session is running")
    when_idle = page.locator('[data-key="when idle"]')
    await when_idle.focus()
    await page.keyboard.press("Enter")
    await expect(when_idle).to_have_text("Will fire when idle")
    helper.open()  # its outcome arrives, and everything is drawn again
    await expect(page.locator(".mailbox .badge")).to_have_text("2")
    assert await page.evaluate("document.activeElement.textContent") == "Will fire when idle"
    assert {message.delivered_to for message in await talk.mail()} == {None}
    lead.open()
    await expect(page.locator(".mailbox .badge")).to_have_text("0")
    await talk.rest()
    assert len(await talk.delivered_sources()) == 2
    assert any("Mind the gap." in prompt for prompt in await talk.prompts(talk.id))

    terminate = page.locator("main").get_by_role("button", name="Terminate")
    await terminate.click()
    await page.get_by_role("button", name="Keep it").click()
    assert (await talk.shown())["status"] == "open"
    await terminate.click()
    await page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    await expect(terminate).to_be_disabled()
    assert (await talk.shown())["status"] == "terminated"


async def test_plan_is_edited_before_it_is_approved(stack: Stack, opened: Opener) -> None:
    await define(stack)
    task_id = await stack.submit(steps([plan("look", "burn it")]), "asker", config={"approval_required": True})
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/inbox")
    item = page.locator(f'[data-id="{request["id"]}"]')
    await expect(item).to_contain_text("burn it")
    await chosen(page, request["id"])
    await page.keyboard.press("e")
    await page.get_by_label("plan, one a line").fill("look\ntidy it")
    await page.get_by_role("button", name="Approve as changed").click()
    record = await stack.wait(task_id)
    assert [step["title"] for step in record["plan"]["steps"]] == ["look", "tidy it"]
    await expect(item).to_have_count(0)
    decided = page.locator("main li", has=page.locator(f'a[href="#/tasks/{task_id}"]'))
    await expect(decided).to_contain_text("approved by")


async def test_operations_show_queues_failing_deliveries_and_what_changed_in_an_agent(
    stack: Stack, opened: Opener
) -> None:
    name = f"changing-{new_id()[-8:]}"
    for prompt in ("Say it.\nBe brief.", "Say it.\nBe thorough."):
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
    failing = sendable.filter(has_text="task_completed")  # other tests' deliveries may have failed, too
    await expect(failing.first).to_contain_text("task_completed")
    agent = page.locator("li", has=page.get_by_text(name, exact=True))
    await agent.get_by_role("button", name="What changed").click()
    await expect(page.locator("h3", has_text=f"{name}: version 1 and 2")).to_be_visible()
    await expect(page.locator(".diff .removed")).to_have_text(["- Be brief.\n"])
    await expect(page.locator(".diff .added")).to_have_text(["+ Be thorough.\n"])
    assert (await stack.http.delete(f"/subscriptions/{subscription['id']}")).is_success
    await stack.wait(task_id)
