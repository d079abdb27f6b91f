"""Messages between agents: background agents report to the agent of a channel, which answers its users."""

from typing import Any

import pytest
import pytest_asyncio

from domain.ids import new_id
from store import keys
from store.keys import Right
from store.sessions import SessionRow
from tests.behaviour.channels.people import Service
from tests.behaviour.conversations.talk import Gate, asked, chain, say
from tests.support.stack import eventually

TOOLS = ["start_background_agent", "send_agent_message", "ask_agent", "list_files", "wait_for"]


def background(prompt: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("start_background_agent", {"prompt": prompt, **more})]


def send(message: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    return [("send_agent_message", {"text": message, **more})]


@pytest_asyncio.fixture
async def front(service: Service) -> Service:
    """A chat service whose messages are answered by an agent with a background agent."""
    for name, more in (("worker-bee", {"mode": "subagent"}), ("front", {"subagents": ["worker-bee"]})):
        body = {"name": name, "description": "Of the tests.", "prompt": "You are tested.", "tools": TOOLS, **more}
        answer = await service.stack.http.put(f"/agents/{name}", json=body)
        assert answer.is_success, answer.text
    await service.put(service.name, agent="front", target=f"{service.receiver.url}/in")
    return service


@pytest.mark.proves("S2-12", "S2-07", "S2-B03")
async def test_a_background_agent_reports_to_its_parent_which_answers_its_people(front: Service) -> None:
    report = f"{say('the report is in')} tag-{new_id()}"
    gate = Gate()
    prompt = chain([gate.call], send(report), last="done")
    said = await front.say(chain(background(prompt, name="digger"), last="started"))
    await front.ended(said["session_id"])
    gate.open()
    first, second = await front.replies(2)
    assert first.json["data"]["text"] == "started"
    assert second.json["data"]["text"] == "the report is in"  # it is sent by the connector of the same address
    assert second.json["data"]["conversation_id"] == said["conversation_id"]
    seen = str(await asked(front.stack, report[-20:]))
    rows = await front.rows(said["conversation_id"])
    [child] = [row for row in rows if row.spawned_by]
    assert f'<system_message origin="{child.thread_id}">' in seen.replace("\\\\", "").replace('\\"', '"')
    assert child.subagent_name == "digger" and len(rows) == 3  # the end of the background agent wakes nobody
    shown = (await front.stack.http.get(f"/conversations/{said['conversation_id']}")).json()["threads"]
    [thread] = [one for one in shown if one["parent_thread_id"]]
    assert (thread["name"], thread["state"], thread["pending"]) == ("digger", "idle", 0)
    assert thread["parent_thread_id"] == said["conversation_id"] and thread["updated_at"]


@pytest.mark.proves("S3-17")
async def test_threads_are_shown_as_running_queued_or_idle(front: Service) -> None:
    slow = "[[script:say words=100 delay=0.1]]"
    said = await front.say(chain(background(slow, name="slow"), last="started"), user="states")
    await front.ended(said["session_id"])

    async def states() -> list[tuple[str, str, int]]:
        shown = (await front.stack.http.get(f"/conversations/{said['conversation_id']}")).json()["threads"]
        return [(one["name"], one["state"], one["pending"]) for one in shown]

    assert await states() == [("front", "idle", 0), ("slow", "running", 0)]
    await front.say("for the next turn", user="states", wake=False)
    assert (await states())[0] == ("front", "queued", 1)
    retried = await front.say(f"{say('late')} [[fault:529 retry_after=5]]", user="states")

    async def retry() -> dict[str, Any] | None:
        seen: dict[str, Any] | None = (await front.stack.record(retried["session_id"]))["retry"]
        return seen

    shown = await eventually(retry, what="the model call is to be retried")
    assert shown["attempt"] == 1 and shown["reason"].startswith("Overloaded (status 529;") and shown["next_at"]
    await front.say(say("x"), user="states")
    assert (await states())[0] == ("front", "running", 1)  # a retrying call counts as running, and the message waits
    await front.stack.http.post(f"/conversations/{said['conversation_id']}/terminate")


@pytest.mark.proves("S2-11", "S2-18")
async def test_a_failing_background_agent_causes_exactly_one_notice(front: Service) -> None:
    broken = "[[script:say]] [[fault:400 times=always]]"
    said = await front.say(chain(background(broken, name="mole"), last="started"), user="fail")

    async def notices() -> list[str]:
        """The outcomes that entered the main thread, in a running session or in a session that they started."""
        rows = await front.rows(said["conversation_id"])
        main = [await front.stack.nodes(row.id) for row in rows if row.spawned_by is None]
        texts = [str(node["body"]) for nodes in main for node in nodes if node["kind"] == "user"]
        return [text for text in texts if "Async subagent 'mole'" in text]

    [text] = await eventually(notices, what="the failure reaches its parent")
    [child] = [row for row in await front.rows(said["conversation_id"]) if row.spawned_by]
    assert text.count(f"Async subagent 'mole' (session: {child.id}) failed:") == 1
    assert child.error and child.error in text
    mail = await front.stack.pool.fetch("SELECT 1 FROM mailbox WHERE conversation_id = $1", said["conversation_id"])
    assert len(mail) == 1


@pytest.mark.proves("S2-16")
async def test_a_background_agent_is_continued_by_its_id(front: Service) -> None:
    said = await front.say(chain(background(chain(send(say("one")), last="done")), last="x"), user="cont")
    await front.ended(said["session_id"])
    [child] = [row for row in await front.rows(said["conversation_id"]) if row.spawned_by]
    assert child.subagent_name == "subagent"  # the default, unless it is given a name
    await front.ended(child.id)
    more = chain(send(say("two")), last="done")
    steps = [background(more, agent_id=child.thread_id), background("  "), background("x", agent_id=new_id())]
    again = await front.say(chain(*steps), user="cont")
    row = await front.ended(again["session_id"])

    async def both() -> list[str] | None:
        found = [one.id for one in await front.rows(said["conversation_id"]) if one.thread_id == child.thread_id]
        return found if len(found) == 2 else None

    assert len(await eventually(both, what="it works again")) == 2
    nodes = await front.stack.nodes(row.id)
    results = [one for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]
    assert [one.get("failed", False) for one in results] == [False, True, True], results
    assert child.thread_id in results[0]["text"]


@pytest.mark.proves("S2-B12")
async def test_a_background_agent_that_ends_without_a_report_is_reminded_once(front: Service) -> None:
    said = await front.say(chain(background(say("quiet"), name="mute"), last="started"), user="mute")

    async def sessions_of_child() -> list[SessionRow] | None:
        rows = [row for row in await front.rows(said["conversation_id"]) if row.spawned_by]
        return rows if len(rows) == 2 and all(row.status.terminal for row in rows) else None

    found = await eventually(sessions_of_child, what="it was reminded, and has ended again")
    first, second = sorted(found, key=lambda row: row.created_at)
    assert first.thread_id == second.thread_id
    reminded = [node for node in await front.stack.nodes(second.id) if node["kind"] == "note"]
    assert len(reminded) == 1 and "without a report" in reminded[0]["body"]["text"]
    # its second end without a report is accepted
    await front.ended((await front.say(say("x"), user="mute"))["session_id"])
    assert len([row for row in await front.rows(said["conversation_id"]) if row.spawned_by]) == 2


@pytest.mark.proves("S2-06", "S2-17", "S2-B14")
async def test_without_a_target_a_message_goes_to_the_most_recent_foreground_agent(front: Service) -> None:
    old = await front.say(say("old"), user="first")
    await front.ended(old["session_id"])
    recent = await front.say(say("newer"), user="second")
    await front.ended(recent["session_id"])
    gone = f"o-{new_id()}"  # a connector that is removed: nobody reads the answers of its agent
    await front.put(gone, agent="front")
    await front.ended((await front.say(say("x"), connector=gone))["session_id"])
    assert (await front.stack.http.delete(f"/connectors/{gone}")).status_code == 204

    async def answers_to(text: str) -> str:
        """Return the user whose agent answers with this text."""

        async def answered() -> list[str]:
            found = [one.json["data"] for one in front.receiver.at("/in")]
            return [one["user_id"] for one in found if one["text"] == text]

        [user] = await eventually(answered, what=f"somebody answers {text}")
        return user

    async def outside(text: str, key: str = "", **target: str) -> str:
        """Return the result of a call in a task without a parent; the task is newer than every foreground agent."""
        sent = {"agent": "front", "input": chain(send(say(text), **target), last="sent")}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        task_id = (await front.stack.http.post("/tasks", json=sent, headers=headers)).json()["task_id"]

        async def ended() -> bool:
            ended_at = "SELECT ended_at IS NOT NULL FROM sessions WHERE id = $1"
            return bool(await front.stack.pool.fetchval(ended_at, task_id))

        await eventually(ended)
        nodes = await front.stack.nodes(task_id)
        [result] = [one["text"] for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]
        return str(result)

    await outside("from nowhere")
    # the newest foreground agent; tasks and background agents do not count
    assert await answers_to("from nowhere") == "second"
    await outside("explicit", agent_id=old["conversation_id"])
    assert await answers_to("explicit") == "first"
    gate = Gate()
    busy = await front.say(gate.then("through"), user="first")
    await front.stack.seen(busy["session_id"], "tool_called")
    await front.ended((await front.say(say("newest"), user="second"))["session_id"])
    # a running agent takes precedence over the newest one
    assert busy["conversation_id"] in await outside("to the active one")
    gate.open()
    await front.ended(busy["session_id"])
    # the parent of a background agent takes precedence over the newest agent, and an explicit id over the parent
    gate = Gate()
    both = send(say("to the parent")), send(say("to another"), agent_id=recent["conversation_id"])
    sends = chain([gate.call], *both, last="done")
    await front.ended((await front.say(chain(background(sends), last="x"), user="first"))["session_id"])
    await front.ended((await front.say(say("newest again"), user="second"))["session_id"])
    gate.open()
    assert await answers_to("to the parent") == "first" and await answers_to("to another") == "second"
    _, foreign = await keys.create(front.stack.pool, f"other-{new_id()}", "other", list(Right))
    mine = {"name": "front", "description": "x", "prompt": "x", "tools": TOOLS}
    headers = {"Authorization": f"Bearer {foreign}"}
    assert (await front.stack.http.put("/agents/front", json=mine, headers=headers)).is_success
    assert await outside("to nobody", foreign) == "no recent foreground agent"


@pytest.mark.proves("S2-B06")
async def test_an_agent_asks_another_and_gets_its_reply(front: Service) -> None:
    other = await front.say(say("x"), user="expert")
    await front.ended(other["session_id"])
    own = await front.say(say("x"), user="asker")
    await front.ended(own["session_id"])
    asks = [
        [("ask_agent", {"agent_id": agent_id, "prompt": say("forty-two")})]
        for agent_id in (other["conversation_id"], own["conversation_id"])
    ]
    said = await front.say(chain(*asks), user="asker")
    output = (await front.ended(said["session_id"])).output or ""
    assert "forty-two" in output and "That is you" in output


@pytest.mark.proves("S2-B04")
async def test_a_silent_message_is_read_with_the_next_one(front: Service) -> None:
    refused = await front.post("early", user="hush", wake=False)
    assert refused.status_code == 409
    first = await front.say(say("one"), user="hush")
    await front.ended(first["session_id"])
    tag, hidden, kept = new_id(), new_id(), new_id()
    quiet = await front.say(f"by the way {tag}", user="hush", wake=False, message_id="s1")
    assert quiet["session_id"] is None
    again = await front.say(f"by the way {tag}", user="hush", wake=False, message_id="s1")
    assert again["duplicate"] and not quiet["duplicate"]
    await front.say(f"between us {hidden}", user="hush", wake=False, visible=False)
    assert len(await front.rows(first["conversation_id"])) == 1
    second = await front.say(say("two"), user="hush")
    await front.ended(second["session_id"])
    nodes = str(await front.stack.nodes(second["session_id"]))
    assert nodes.count(tag) == 1 and nodes.count(hidden) == 1
    params = {"full": "true"}
    turns = str((await front.stack.http.get(f"/conversations/{first['conversation_id']}/turns", params=params)).json())
    assert tag in turns and hidden not in turns
    assert len(await front.replies(2)) == 2
    # turns that end without an answer leave it to the next one that answers
    await front.say(f"still there {kept}", user="hush", wake=False)
    failed = await front.say("[[fault:auth times=always]]", user="hush")
    assert (await front.ended(failed["session_id"])).status == "failed"
    stopped = await front.say("[[script:say]] [[fault:hang times=always]]", user="hush")
    await front.stack.seen(stopped["session_id"], "step_started")
    await front.stack.cancel(stopped["session_id"])
    assert (await front.ended(stopped["session_id"])).output is None
    third, fourth = [await front.say(say(text), user="hush") for text in ("three", "four")]
    assert (await front.ended(fourth["session_id"])).output == "four"
    assert str(await front.stack.nodes(third["session_id"])).count(kept) == 1
    assert kept not in str(await front.stack.nodes(fourth["session_id"]))
