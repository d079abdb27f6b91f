"""Attacks on the console: hostile text, foreign and malformed addresses, huge results, other sites."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Route, expect

from api.http import auth
from domain.sealing import KeyRing
from store import keys
from store.keys import Right
from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.console.test_inbox import chosen
from tests.behaviour.supervision.people import bash, waiting
from tests.support.launch import SECRET_KEYS, TESTER
from tests.support.stack import Stack, calls, steps

pytestmark = needs_browser

ATTACK = "document.title='owned'"
HOSTILE = f'<img src=x onerror="{ATTACK}"><script>{ATTACK}</script>[x](javascript:{ATTACK})\u202eevil\x1b[31mred'

PRINTED = HOSTILE.replace("\x1b", "").replace("\u202e", "")  # the part that a definition may contain
SVG = f'<svg xmlns="http://www.w3.org/2000/svg"><script>{ATTACK}</script></svg>'
LABELS = """Array.from(document.querySelectorAll("main *"), (one) => ["title", "aria-label", "placeholder", "alt"].map(
    (name) => one.getAttribute(name) ?? "").join(" ")).join(" ")"""


async def test_hostile_text_is_text_in_every_view(stack: Stack, opened: Opener, tmp_path: Path) -> None:
    definition: dict[str, Any] = {
        "name": "hostile",
        "description": PRINTED,
        "prompt": PRINTED,
        "tools": ["bash", "ask_user", "write_file", "save_artifact"],
    }
    definition |= {"may_ask": True, "permissions": [{"permission": "bash", "action": "ask"}]}
    assert (await stack.http.put("/agents/hostile", json=definition)).is_success
    ask = ("ask_user", {"question": HOSTILE, "options": [HOSTILE]})
    written = [("write_file", {"path": path, "content": SVG}) for path in ("<img src=x>.txt", "a.svg")]
    kept = ("save_artifact", {"path": "a.svg", "description": HOSTILE})
    script = steps(written, [kept], [ask, bash(f"echo {json.dumps(HOSTILE)}")])
    task_id = await stack.submit(f"{PRINTED} {script}", "hostile")
    await waiting(stack, task_id, 2)
    page = await opened(stack.url)
    of_task = [f"tasks/{task_id}", f"conversations/{task_id}", f"compare/{task_id}/{task_id}"]
    for view in ("", "inbox", *of_task, "start/hostile", "agents/hostile"):
        await page.goto(f"{stack.url}/#/{view}")
        await expect(page.locator("main")).to_contain_text("<img src=x")
        assert await page.locator("main img, main script, main a[href^=javascript]").count() == 0, view
        shown = await page.locator("main").inner_text()
        assert "\u202e" not in shown and "\x1b" not in shown, view
        labels = await page.evaluate(LABELS)
        assert "\u202e" not in labels and "\x1b" not in labels, view
        assert await page.title() != "owned", view
    await page.goto(f"{stack.url}/#/tasks/{task_id}")
    await page.get_by_label("More").click()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Share as one file").click()
    await (await download.value).save_as(shared := tmp_path / "shared.html")
    await page.goto(shared.as_uri())
    await expect(page.locator("h1")).to_contain_text("<img src=x")
    assert await page.locator("img, script, a, button").count() == 0 and await page.title() != "owned"
    assert "\u202e" not in await page.content()
    await stack.cancel(task_id)
    await stack.wait(task_id)
    await results_of_strangers(stack, page, task_id)


async def results_of_strangers(stack: Stack, page: Page, task_id: str) -> None:
    """Addresses in a result are links only if they lead to our files or to the web; files never open in the page."""
    bad = ["javascript:document.title='owned'", "//evil.example/x", "data:text/html,x", "/\\\\evil.example"]

    async def answered(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        found["artifacts"] += [{**found["artifacts"][0], "url": url, "name": url} for url in bad]
        await route.fulfill(response=answer, json=found)

    await page.route(re.compile(r"/tasks/\w+/result$"), answered)
    await page.goto(f"{stack.url}/#/tasks/{task_id}")
    for url in bad:
        await expect(page.locator("main li span", has_text=url)).to_be_visible()
    await page.get_by_role("tab", name="Files").click()
    await expect(page.locator("p.file, details.file")).to_have_count(2)
    links = await page.locator("main a[download]").evaluate_all("(all) => all.map((one) => one.href)")
    assert all(link.startswith(f"{stack.url}/") for link in links) and len(links) >= 4
    svg = page.locator("main a[download='a.svg']").first
    async with page.expect_download():
        await svg.evaluate("(one) => { one.removeAttribute('download'); one.click(); }")
    assert await page.title() != "owned"


async def test_strange_addresses_and_huge_results(stack: Stack, opened: Opener) -> None:
    _, secret = await keys.create(stack.pool, "elsewhere", "somebody", list(Right))
    theirs = {"Authorization": f"Bearer {secret}"}
    assert (await stack.http.put("/agents/tester", json=TESTER, headers=theirs)).is_success
    begun = await stack.http.post("/tasks", json={"agent": "tester", "input": "a secret"}, headers=theirs)
    page = await opened(stack.url)
    for foreign in ("0" * 26, begun.json()["task_id"]):
        for view in (f"tasks/{foreign}", f"conversations/{foreign}", f"compare/{foreign}/{foreign}"):
            await page.goto(f"{stack.url}/#/{view}")
            await expect(page.get_by_role("alert").filter(has_text=re.compile("."))).to_be_visible()
            assert "a secret" not in await page.locator("main").inner_text()
    await page.goto(f"{stack.url}/#/tasks/%3Cscript%3E")
    await expect(page.locator("h1")).to_have_text("There is no such page")
    await expect(page.locator(".crumbs")).to_have_text("No such page")
    task_id = (await stack.run("a long answer"))["task_id"]
    huge = "word " * 1_000_000
    await stack.pool.execute("UPDATE sessions SET output = $2 WHERE id = $1", task_id, huge)
    await page.goto(f"{stack.url}/#/tasks/{task_id}")
    await expect(page.locator("main")).to_contain_text("4,980,000 more characters")
    assert await page.evaluate("document.querySelector('main').textContent.length") < 300_000

    rules = [{"permission": "write_file", "action": "ask"}]
    long = ("write_file", {"path": "big", "content": "x" * 150_000})
    big = await stack.submit(calls(long), permissions=rules)
    [request] = await waiting(stack, big)
    await page.goto(f"{stack.url}/#/inbox")
    item = await chosen(page, request)
    await item.get_by_text("Arguments").click()
    await item.locator(".more").click()
    await expect(item).to_contain_text("more characters")
    assert await item.evaluate("(one) => one.textContent.length") < 150_000
    await stack.cancel(big)


async def test_sign_in_behind_a_proxy_ends_with_its_key_and_with_its_cookie(
    stack: Stack, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forwarded request needs a key, even on the machine of the stack."""
    key, secret = await keys.create(stack.pool, "default", HOSTILE[:60], list(Right))
    context = await browser.new_context(extra_http_headers={"X-Forwarded-For": "203.0.113.7"})
    page = await context.new_page()
    await page.goto(stack.url)

    async def sign_in() -> None:
        await page.get_by_label("Key").fill(secret)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".connection")).to_have_text("live")

    await page.get_by_label("Key").fill("ek_guessed")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("There is no such key, or it is not valid any more.")
    await sign_in()
    await expect(page.locator(".who")).to_contain_text("<img")
    [cookie] = await context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert await page.evaluate("document.cookie") == ""
    monkeypatch.setattr(auth, "COOKIE_SECONDS", -1)
    expired = auth.issue_cookie(KeyRing.parse(SECRET_KEYS), key.id, keys.digest_of(secret))
    await context.add_cookies([{"name": auth.COOKIE_NAME, "value": expired, "url": stack.url}])
    # not a click: a request of the page may show the sign-in form and remove the links before any click
    await page.evaluate("location.hash = '#/inbox'")
    await expect(page.get_by_label("Key")).to_be_visible()
    await sign_in()
    await page.goto(f"{stack.url}/#/")
    await keys.revoke(stack.pool, "default", key.id)  # the stream is open, and nobody clicks anything
    await expect(page.get_by_label("Key")).to_be_visible(timeout=40_000)
    _, blind = await keys.create(stack.pool, "default", "may not read", [Right.SUBMIT])
    await page.get_by_label("Key").fill(blind)
    await page.get_by_role("button", name="Sign in").click()
    # the key lacks a right; this is not "reconnecting…"
    await expect(page.locator(".connection")).to_contain_text("right")
    await context.close()


async def test_pages_of_other_sites_can_neither_frame_nor_use_the_console(stack: Stack, browser: Browser) -> None:
    context = await browser.new_context()
    page = await context.new_page()

    async def evil(route: Any) -> None:
        frame = f'<!doctype html><iframe src="{stack.url}/"></iframe>'
        await route.fulfill(content_type="text/html", body=frame)

    await page.route("http://evil.example/", evil)
    await page.goto("http://evil.example/")
    before = (await stack.http.get("/tasks", params={"limit": 1})).json()["items"]
    refused = await page.evaluate(
        """async (url) => {
            const body = JSON.stringify({ agent: "tester", input: "from elsewhere" });
            const credentials = "include";
            const simple = await fetch(`${url}/tasks`, { method: "POST", mode: "no-cors", credentials, body })
                .then((answer) => answer.type, () => "refused");
            const read = await fetch(`${url}/tasks`, { credentials }).then(() => "read", () => "refused");
            return [simple, read];
        }""",
        stack.url,
    )
    assert refused[0] in ("opaque", "refused") and refused[1] == "refused"
    assert (await stack.http.get("/tasks", params={"limit": 1})).json()["items"] == before
    assert not [
        frame for frame in page.frames if frame.url.startswith(stack.url) and await frame.query_selector("header")
    ]
    await context.close()
