"""A reset keeps the id and the history of a conversation, drops waiting messages, and starts an empty context."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from domain.ids import new_id
from domain.sessions.session import Reason, RecordedStop
from settings import ROOT
from store import resets
from tests.behaviour.channels.people import Service
from tests.behaviour.conversations.talk import asked, chain, say


@pytest.mark.proves("S2-13", "S2-B02")
async def test_a_reset_keeps_the_id_and_drops_what_waits(service: Service) -> None:
    stack, http = service.stack, service.stack.http
    first = await service.say(f"{say('one')} canary-before")
    conversation_id = first["conversation_id"]
    await service.ended(first["session_id"])
    running = await service.say("[[script:say words=100 delay=0.2]] canary-running")
    queued = await service.say(f"{say('two')} canary-queued", message_id="q1")
    await service.put(service.name, target=f"{service.receiver.url}/in", debounce_ms=1)
    assert (await service.say("canary-joined", message_id="q2"))["session_id"] == queued["session_id"]
    assert (await service.say("canary-last"))["merged"]
    await stack.seen(running["session_id"], "message_delta")
    done = await http.post(f"/channels/{service.name}/room/ann/reset")
    assert done.status_code == 200, done.text
    assert done.json()["conversation_id"] == conversation_id and done.json()["generation"] == 1
    assert done.json()["interrupted"] == [running["session_id"]]
    dropped = done.json()["dropped"]
    assert {one["session_id"] for one in dropped} == {queued["session_id"]}
    assert [one["message_id"] for one in dropped] == ["q1", "q2", None]
    assert [one["text"].split()[-1] for one in dropped] == ["canary-queued", "canary-joined", "canary-last"]
    tag = new_id()
    after = await service.say(f"{say('three')} {tag}")
    assert after["conversation_id"] == conversation_id
    row = await service.ended(after["session_id"])
    assert row.base_head is None and row.parent_session_id is None and row.generation == 1
    further = await service.ended((await service.say(say("four")))["session_id"])
    assert further.parent_session_id == row.id  # it continues the new context
    assert (await service.ended(queued["session_id"])).status == "cancelled"
    requests = await asked(stack, tag)
    assert requests and not any("canary" in str(one) for one in requests)
    texts = [reply.json["data"]["text"] for reply in await service.replies(3)]
    assert texts == ["one", "three", "four"]
    turns = (await http.get(f"/conversations/{conversation_id}/turns")).json()["items"]
    assert [turn["generation"] for turn in turns] == [0, 0, 0, 1, 1]
    assert "canary-before" in str(turns)


async def test_a_reset_is_completed_though_its_api_dies(service: Service) -> None:
    """The stops are stored together with the reset, so that a sweep finds them."""
    stack, tag = service.stack, new_id()
    running = await service.say("[[script:say words=600 delay=0.1]]")
    queued = await service.say(f"{say('two')} {tag}")
    await stack.seen(running["session_id"], "message_delta")
    stop = RecordedStop(reason=Reason.INTERRUPTED, by="ann", note="reset")
    # only the rows are written, and nothing is signalled
    assert await resets.reset(stack.pool, "default", running["conversation_id"], stop)
    await stack.age(running["session_id"])
    await stack.sweep()
    rows = [await service.ended(one["session_id"]) for one in (running, queued)]
    assert [(row.status, row.reason) for row in rows] == [("cancelled", "interrupted")] * 2
    after = await service.ended((await service.say(say("three")))["session_id"])
    assert after.output == "three" and not await asked(stack, tag)
    assert [reply.json["data"]["text"] for reply in await service.replies(1)] == ["three"]


@pytest.mark.proves("S2-B09")
@pytest.mark.parametrize("damage", ["DELETE FROM messages WHERE {}", "UPDATE messages SET body = '{{broken' WHERE {}"])
async def test_lost_history_resets_the_conversation_and_the_person_is_notified(service: Service, damage: str) -> None:
    """The message is still answered, and so is the next one, in the new context."""
    stack, http = service.stack, service.stack.http
    first = await service.say(f"{say('one')} canary-before")
    conversation_id, tag = first["conversation_id"], new_id()
    await service.ended(first["session_id"])
    await stack.pool.execute(damage.format("session_id = $1"), first["session_id"])
    running = await service.say(f"{say('two')} [[fault:529 times=2]] {tag}")  # the step is tried three times
    behind = await service.say(say("three"))
    rows = [await service.ended(one["session_id"]) for one in (running, behind)]
    assert [(row.status, row.output) for row in rows] == [("completed", "two"), ("completed", "three")]
    assert {row.generation for row in rows} == {1}
    assert rows[1].parent_session_id == rows[0].id  # it continues the new context
    replies = [reply.json["data"] for reply in await service.replies(4)]
    notice = "Earlier messages could not be restored. The conversation starts again with your message."
    assert [one["text"] for one in replies] == ["one", notice, "two", "three"]
    assert replies[1]["task_id"] == running["session_id"]
    state = (await http.get(f"/conversations/{conversation_id}")).json()["state"]
    assert [(one["kind"], one["by"]) for one in state["markers"]][1:] == [("reset", "errand")]
    lost = "SELECT count(*) FROM notices WHERE conversation_id = $1 AND type = 'context_lost'"
    assert await stack.pool.fetchval(lost, conversation_id) == 1
    assert all("canary" not in str(one) for one in await asked(stack, tag))


@pytest.mark.proves("S2-14")
async def test_slash_commands_are_text(service: Service) -> None:
    first = await service.say(say("x"), user="slash")
    await service.ended(first["session_id"])
    for text in ("/reset", "/new", "/stop"):
        said = await service.say(text, user="slash")
        row = await service.ended(said["session_id"])
        assert row.generation == 0 and row.parent_session_id and row.spec["input"] == text


@pytest.mark.proves("S2-08")
async def test_export_writes_descriptor_state_and_history(service: Service, tmp_path: Path) -> None:
    said = await service.say(chain([("list_files", {})], last="one"), user="files")
    await service.ended(said["session_id"])
    other = await service.say(say("mine"), user="another")
    await service.ended(other["session_id"])
    await service.stack.http.post(f"/conversations/{said['conversation_id']}/reset")
    await service.ended((await service.say(say("two"), user="files"))["session_id"])
    argv = [sys.executable, "-m", "cli", "export", said["session_id"], "--state", str(tmp_path / "out")]
    run = await asyncio.create_subprocess_exec(*argv, env={**os.environ, **service.stack.env}, cwd=ROOT)
    assert await run.wait() == 0
    read = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    identity = {"connector": service.name, "channel_id": "room", "user_id": "files"}
    descriptor = {"conversation_id": said["conversation_id"], "type": "channel", "identity": identity}
    assert json.loads(read["descriptor.json"]) == descriptor
    state = json.loads(read["state.json"])
    [row, *_] = await service.rows(said["conversation_id"])
    assert state["generation"] == 1 and state["models"] == row.models != [] and state["agent"] == "tester"
    assert state["routing"] == {**identity, "thread": None} and state["permissions"] == []
    assert state["created_at"] < state["updated_at"]
    records = [json.loads(line) for line in read["history.jsonl"].splitlines()]
    kinds = ["start", "user", "tool_call", "tool_result", "assistant", "reset", "user", "assistant"]
    assert [one["type"] for one in records] == kinds
    assert [one["text"] for one in records if one["type"] == "assistant"] == ["one", "two"]
    assert "mine" not in read["history.jsonl"]  # each export has only its own conversation
