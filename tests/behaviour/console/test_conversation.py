"""A conversation in the console: its turns and threads, its timeline, and the actions of its users."""

from playwright.async_api import expect

from tests.behaviour.console.conftest import Opener, needs_browser
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.conversations.talk import Gate, Talk, agent, async_delegate, chain, say, slow, task
from tests.behaviour.supervision.people import answer, ask, waiting
from tests.support.launch import TESTER
from tests.support.stack import Stack

pytestmark = needs_browser

EDIT = ("edit_file", {"path": "a.txt", "edits": [{"old": "one\ntwo\n", "new": "one\n2\n"}]})
# record the length of the unfinished second answer each time it changes
NOTE_WRITING = """() => {
    window.lengths = [];
    const place = document.querySelector(".writing");
    const note = () => {
        const text = place.hidden ? "" : place.textContent;
        if (text.includes("Bold")) window.lengths.push(text.length);
    };
    new MutationObserver(note).observe(place, { childList: true, characterData: true, subtree: true });
}"""
WRITE = ("write_file", {"path": "a.txt", "content": "one\ntwo\n"})


async def test_turns_threads_and_timeline_are_shown_as_they_happen(stack: Stack, opened: Opener) -> None:
    tools = [*TESTER["tools"], "ask_user", "edit_file"]
    await stack.define(agent("helper", mode="subagent"), agent("busy-lead", "helper", may_ask=True, tools=tools))
    script = chain([WRITE], [EDIT, task(say("Helped."))], [ask("Which one?")], last="That was the first turn.")
    task_id = await stack.submit(f"{script} [[fault:529 times=1]]", "busy-lead")
    [request] = await waiting(stack, task_id)
    page = await opened(f"{stack.url}/#/conversations/{task_id}")
    turn = page.locator(f'[data-turn="{task_id}"]')
    await expect(turn.locator("[data-status=input_required]")).to_be_visible()
    await page.get_by_role("button", name="Timeline").click()
    waits = page.locator('.r .bar.wait[title^="asked: Which one?"]')
    await expect(waits).to_have_count(1)  # still waiting
    ask_card = page.locator(f'[data-request="{request["id"]}"]')
    await expect(ask_card).to_contain_text("Which one?")
    assert (await answer(stack, task_id, request["id"], "this")).is_success
    await expect(turn.locator("[data-status=completed]")).to_be_visible()  # without a reload
    await expect(ask_card).to_have_count(0)
    for lane, label in (("retry", "tried again"), ("sub", "subagent helper completed"), ("tool", "edit_file ok")):
        await expect(page.locator(f'.r .bar.{lane}[title^="{label}"]')).to_have_count(1)
    await page.get_by_role("button", name="Read", exact=True).click()
    changed = page.locator(".message.tool", has_text="edit_file")
    await changed.locator("summary").click()
    await expect(changed.locator(".diff .removed > span")).to_have_text(["two\n"])
    await expect(page.locator("[data-session]")).to_contain_text("helper")
    await page.locator("[data-session] button").first.click()
    await expect(page.locator(".thread")).to_contain_text("Helped.")

    marks = {mark["type"]: mark for mark in (await stack.http.get(f"/tasks/{task_id}/trace")).json()["marks"]}
    assert marks["input_required"]["until"] == marks["input_received"]["at"]


async def test_answer_appears_as_it_is_written_and_can_be_interrupted(stack: Stack, opened: Opener) -> None:
    await stack.define(*TEAM)
    talk = await Talk.begin(stack, slow(120, pieces=60))
    await talk.speaking(talk.id)
    page = await opened(f"{stack.url}/#/conversations/{talk.id}")
    markdown = f"**Bold**, `code` and [a link](https://example.org/)\n\n- one\n- two\n\n{'and more ' * 10}"
    await page.get_by_label("Message", exact=True).fill(say(markdown, delay=0.1))
    await page.get_by_role("button", name="Send").click()  # the message becomes the next turn
    queued = page.locator("[data-turn]", has=page.locator("[data-status=submitted]"))
    await expect(queued).to_have_count(1)
    await page.evaluate(NOTE_WRITING)
    await page.get_by_role("button", name="Interrupt").click()
    await expect(page.get_by_text("1 session asked to stop.")).to_be_visible()
    drawn = page.locator(".exchange .message.assistant .markdown").last
    await expect(drawn.locator("strong")).to_have_text("Bold")
    await expect(drawn.locator("code")).to_have_text("code")
    await expect(drawn.locator("li")).to_have_text(["one", "two"])
    await expect(drawn.locator("a")).to_have_attribute("href", "https://example.org/")
    await expect(page.locator(".writing")).to_be_hidden()
    lengths = await page.evaluate("window.lengths")
    assert len(set(lengths)) > 2 and lengths[-1] > lengths[0], lengths  # the text grew piece by piece


async def test_promote_fire_when_idle_steer_and_terminate(stack: Stack, opened: Opener) -> None:
    """One conversation: its lead waits for a helper until that is promoted, and is running when an outcome arrives."""
    await stack.define(*TEAM)
    helper, lead = Gate(), Gate()
    script = chain([async_delegate("helper", say("Of the first."))], [task(helper.then("Promoted."))], [lead.call])
    talk = await Talk.begin(stack, script, config={"tree": {"max_cost_usd": 5}})
    waits = await talk.child(1)
    await stack.seen(waits.id, "tool_called")
    page = await opened(f"{stack.url}/#/conversations/{talk.id}")

    await expect(page.locator(".thread .work code", has_text="wait_for")).to_have_count(1)
    await expect(page.locator(".thread .bubble")).to_contain_text("[[script:chain")  # what it was asked, not its title
    await expect(page.locator(".spent")).to_contain_text("limit $5.00")
    await page.get_by_role("button", name="Raise…").click()
    await page.get_by_label("cost usd, of the conversation").fill("7")
    await page.get_by_role("dialog").get_by_role("button", name="Raise").click()
    await expect(page.locator(".spent")).to_contain_text("limit $7.00")
    # only subagents that block their parent have this button
    await page.locator(f'[data-key="promote {waits.id}"]').click()
    await expect(page.get_by_role("button", name="Promote")).to_have_count(0)

    await page.get_by_label("Message", exact=True).fill("Mind the gap.")
    await page.get_by_role("button", name="Steer the running one").click()
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_label("Message", exact=True)).to_have_value("")

    await expect(page.locator("[data-fire]")).to_be_disabled()
    await expect(page.locator(".mailbox .why")).to_contain_text("A session is running")
    when_idle, count = page.locator('[data-key="when idle"]'), page.locator(".mailbox .badge")
    helper.open()
    await expect(count).to_have_text("2")
    await when_idle.click()
    await expect(page.get_by_text("The outcomes are the next turn")).to_be_visible()
    await expect(count).to_have_text("0")
    queued = page.locator("[data-turn]", has=page.locator("[data-status=submitted]"))
    await queued.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel it").click()
    await expect(count).to_have_text("2")  # the cancel returned them to the mailbox
    await when_idle.click()
    await expect(count).to_have_text("0")

    await page.goto(f"{stack.url}/#/")
    await expect(page.get_by_text("Waits for the turn before it")).to_be_visible()
    await page.goto("about:blank")  # the queued fire is stored on the server, so the page can be closed
    lead.open()
    await talk.rest()
    assert len(await talk.delivered_sources()) == 2
    assert any("Mind the gap." in prompt for prompt in await talk.prompts(talk.id))

    await page.goto(f"{stack.url}/#/conversations/{talk.id}")
    fired = page.locator(".exchange", has_text="Fired: 2 outcomes became a turn")
    await expect(fired.locator(".chips button")).to_have_text(["helper", "helper"])
    await expect(page.locator("[data-turn] button", has_text="Outcomes of the mailbox").last).to_be_visible()
    assert "you" not in (await fired.locator(".who").first.inner_text()).lower().split()
    terminate = page.locator("main").get_by_role("button", name="Terminate")
    await terminate.click()
    await page.get_by_role("button", name="Keep it").click()
    assert (await talk.shown())["status"] == "open"
    await terminate.click()
    await page.get_by_role("dialog").get_by_role("button", name="Terminate").click()
    await expect(terminate).to_be_disabled()
    assert (await talk.shown())["status"] == "terminated"
