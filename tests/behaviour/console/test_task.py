"""A task in the console: started by a form, shown step by step, measured, rerun with changes, and replayed."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from playwright.async_api import FilePayload, expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.supervision.people import waiting
from tests.support.git_server import git, make_repository
from tests.support.screenshots import ITEMS, MENDER, repair
from tests.support.stack import Stack, steps

pytestmark = needs_browser


DROP = """() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(["by bus"], "dropped.txt"));
    document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
}"""


async def test_task_is_started_by_a_form_of_the_input_schema(stack: Stack, opened: Opener) -> None:
    properties = {"city": {"type": "string", "maxLength": 50}, "days": {"type": "integer", "minimum": 1}}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": ["city"]}
    definition = {"name": "traveller", "description": "Plans a journey.", "prompt": "Plan.", "input_schema": schema}
    assert (await stack.http.put("/agents/traveller", json=definition)).is_success
    page = await opened(f"{stack.url}/#/start")
    await expect(page.get_by_label("Agent", exact=True)).to_have_value("assistant")
    await page.goto(f"{stack.url}/#/start/traveller")
    await expect(page.locator("main")).to_contain_text("Plans a journey.")
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("alert")).to_have_text("city is required.")
    await page.get_by_label("city").fill("Bremen")
    await page.get_by_label("days (optional)").fill("0")
    await page.get_by_label("Limit of its cost").fill("0.5")
    notes: FilePayload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"by train"}
    await page.get_by_label("Files for its workspace").set_input_files(notes)
    await page.evaluate(DROP)
    await expect(page.locator(".chips li")).to_have_text([re.compile("notes.txt"), re.compile("dropped.txt")])
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("alert")).to_contain_text("days")  # the error of the server is shown
    await page.get_by_label("days (optional)").fill("3")
    await page.get_by_role("button", name="Start").click()
    await expect(page.locator(".step-row").first).to_be_visible()
    task_id = page.url.rsplit("/", 1)[1]
    record = await stack.wait(task_id)
    assert (record["title"], record["limits"]["cost_usd"]) == ('{"city": "Bremen", "days": 3}', 0.5)
    body = json.dumps((await stack.nodes(task_id))[0]["body"])
    assert "notes.txt" in body and "dropped.txt" in body  # the uploaded files are in the workspace
    await page.goto(f"{stack.url}/#/start")
    await expect(page.get_by_label("Agent", exact=True)).to_have_value("traveller")  # what was used last
    await expect(page.get_by_label("Limit of its cost")).to_have_value("0.5")
    await expect(page.get_by_label("city")).to_be_visible()


async def test_steps_effects_measures_and_a_rerun_with_other_instructions(stack: Stack, opened: Opener) -> None:
    written = ("write_file", {"path": "plan.md", "content": "Rest."})
    task_id = (await stack.run(steps([written])))["task_id"]
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    address = f"{stack.temporal_ui_url}/namespaces/default/workflows/session%2F{task_id}"
    await expect(page.locator("a", has_text="Temporal Web UI")).to_have_attribute("href", address)
    await page.get_by_role("tab", name="Effects").click()
    await expect(page.get_by_role("main")).to_contain_text("write plan.md")
    await page.get_by_role("tab", name="Timeline").click()
    await page.locator(".r .bar.tool").click()  # a click on a bar opens its step
    await expect(page.locator(".step .chip")).to_have_text("Step 1")
    assert page.url.endswith(f"/{task_id}/1")  # the address names it
    call = page.locator("article.call")
    await expect(call).to_contain_text('"path": "plan.md"')
    await expect(call).to_contain_text("Created plan.md")
    for measure, text in (("Tokens", re.compile(r"^[\d,k]+$")), ("Cost", re.compile(r"^\$"))):
        await page.get_by_role("button", name=measure).click()
        await expect(page.locator(".step-row .tail b").first).to_have_text(text)
        assert await page.locator(".size").count() == 2  # one for each step

    await page.locator("[data-rerun]").click()
    box = page.get_by_role("dialog", name="Rerun")
    await box.get_by_label("Model", exact=True).fill("claude-haiku-4-5")
    await box.get_by_label("Instructions").fill("Write nothing.")
    rules = [{"permission": "write_file", "action": "deny"}]
    await box.get_by_label("Rules added").fill(json.dumps(rules))
    async with page.expect_request(lambda asked: asked.url.endswith("/rerun")) as posted:
        await box.get_by_role("button", name="Rerun").click()
    sent = json.loads((await posted.value).post_data or "")
    assert sent["permissions"] == rules and sent["prompt"] == "Write nothing."
    await page.wait_for_url(lambda url: task_id not in url)
    again = await stack.wait(page.url.rsplit("/", 1)[1])
    assert again["models"][0] == "claude-haiku-4-5" and again["rerun_of"]["session_id"] == task_id
    await page.get_by_role("tab", name="Effects").click()
    await expect(page.get_by_role("main")).to_contain_text("It changed nothing.")  # the call was denied


async def test_plan_is_the_outline_waiting_is_folded_and_the_request_is_decided_there(
    stack: Stack, opened: Opener
) -> None:
    await stack.define(*TEAM, MENDER | {"name": "repairer"})  # the shipped mender stays as it is
    task_id = await stack.submit(repair(), "repairer")
    await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    items = page.locator(".r.plan .name")
    await expect(items).to_have_text(list(ITEMS))
    await expect(page.locator(".r.plan.skipped .name")).to_have_text([ITEMS[2]])
    rows = await page.locator(".r").evaluate_all("(all) => all.map((one) => [one.offsetTop, one.dataset.row])")
    order = [row.removeprefix("plan ").rsplit(":")[-1] for _, row in sorted(rows)]
    assert order[:4] == [ITEMS[0], "1", "2", "3"] and order[-2:] == [ITEMS[4], "9"]
    await expect(page.locator(".r.session")).to_contain_text("helper")
    await expect(page.locator(".r .bar.bad")).to_have_count(1)
    band = page.locator(".band-label.wait")
    await page.wait_for_timeout(3_000)
    await page.reload()
    await expect(band).to_be_visible()
    await page.keyboard.press("z")
    await expect(band).to_have_count(0)  # to scale
    await page.keyboard.press("k")
    await expect(page.locator(".step .chip")).to_have_text("Step 8")
    assert page.url.endswith(f"/{task_id}/8")
    await page.wait_for_timeout(450)  # a key approves only what has been in view for a moment
    await page.keyboard.press("a")
    assert (await stack.wait(task_id))["status"] == "completed"
    await expect(page.locator(".scroll > .result")).to_contain_text("Pull request 818")
    await expect(page.locator(".ask")).to_have_count(0)
    await expect(page.locator(".step .chip")).to_have_text("Step 8")  # what was chosen stays
    await page.keyboard.press("j")
    await expect(page.locator(".decided-by")).to_contain_text("approved by")


async def test_replay_says_that_the_code_decides_the_same(stack: Stack, opened: Opener) -> None:
    task_id = (await stack.run("replay me"))["task_id"]
    page = await opened(f"{stack.url}/#/tasks/{task_id}")
    replay = page.get_by_role("button", name="Replay on today's code")
    await replay.click()
    await expect(page.get_by_text("The same decisions")).to_be_visible(timeout=60_000)


async def test_changes_in_a_repository_are_shown_by_file(stack: Stack, opened: Opener, tmp_path: Path) -> None:
    repository = await send_repository(stack, tmp_path)
    work = steps([("bash", {"command": "printf 'one\\nthree\\nfour\\n' > app.py && git rm -q old.txt"})])
    record = await stack.run(work, config={"repository": repository})
    page = await opened(f"{stack.url}/#/tasks/{record['task_id']}")
    files = page.locator(".changes .code")
    await expect(files.locator("header")).to_have_text(["app.py+2 −1", "old.txt−1"])
    await expect(files.first).to_contain_text("three")


async def send_repository(stack: Stack, folder: Path) -> str:
    make_repository(folder / "shop", {"app.py": "one\ntwo\n", "old.txt": "old\n"})
    bundle = folder / "shop.bundle"
    git(folder / "shop", "bundle", "create", "-q", str(bundle), "HEAD")
    sent = await stack.http.post("/files?name=shop.bundle", content=await asyncio.to_thread(bundle.read_bytes))
    return str(sent.json()["file_id"])
