"""Questions of an agent are sent through the connector, and the person's next message there answers them, once."""

from typing import Any

import pytest

from domain.ids import new_id
from store import audit, keys
from store.keys import Right
from tests.behaviour.channels.people import ASKER, Service
from tests.behaviour.conversations.talk import chain, say


def ask(question: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "ask_user", {"question": question, **more}


@pytest.mark.exactly_once
async def test_the_next_message_of_the_asked_person_answers_the_question(service: Service) -> None:
    """The answer is delivered once, in the same thread, with its files. Messages of other people are not answers."""
    await service.asking()
    stack = service.stack
    question = ask("Which colour?", options=["red", "blue"])
    said = await service.say(chain([question], [("read_file", {"path": "note.txt"})]), thread="t1", message_id="m1")
    [asked] = await service.replies(1)
    assert asked.json["type"] == "input_required" and asked.json["data"]["text"] == "Which colour?\n- red\n- blue"
    assert (asked.json["data"]["thread"], asked.json["data"]["kind"]) == ("t1", "clarification")
    others = [
        await service.say(say("another person"), user="bob", thread="t1"),
        await service.say(say("another thread"), thread="t2"),
    ]
    assert [one["answered"] for one in others] == [None, None] and [one["queued"] for one in others] == [False, True]
    await service.say("by the way", wake=False)
    await service.say(say("hidden"), visible=False, thread="t1")
    file_id = (await stack.http.post("/files?name=note.txt", content=b"sky blue")).json()["file_id"]
    given: dict[str, Any] = {"thread": "t1", "message_id": "m2", "files": [file_id]}
    first, again = await service.say("the blue one", **given), await service.say("the blue one", **given)
    assert first["answered"] == asked.json["data"]["request_id"] and first["session_id"] == said["session_id"]
    assert again["duplicate"] and again["answered"] is None and again["session_id"] == said["session_id"]
    row = await service.ended(said["session_id"])
    assert "sky blue" in (row.output or "")
    used = "SELECT session_id FROM file_uses WHERE tenant = 'default' AND file_id = $1"
    assert await stack.pool.fetchval(used, file_id) == row.id  # the file is deleted with the content of this session
    read = str(await stack.nodes(row.id))
    assert "the blue one" in read and "note.txt" in read
    entries = await audit.find(stack.pool, "default", session_id=row.id, limit=50)
    assert [one.action for one in entries].count("answer") == 1
    for one in others:
        await service.ended(one["session_id"])
    # including the session in t2 and the hidden one: m2 has no session
    assert len(await service.rows(row.conversation_id)) == 3


async def test_a_service_without_a_key_answers_by_request_and_a_key_needs_the_right(service: Service) -> None:
    """This includes approvals, which cannot be given by a text."""
    stack = service.stack
    careful = {**ASKER, "name": "channel-careful", "permissions": [{"permission": "bash", "action": "ask"}]}
    assert (await stack.http.put("/agents/channel-careful", json=careful)).is_success
    await service.put(service.name, agent="channel-careful", target=f"{service.receiver.url}/in")
    said = await service.say(chain([("bash", {"command": "echo done"})], [ask("And now?")]))
    [asked] = await service.replies(1)
    assert asked.json["data"]["kind"] == "tool_approval"
    text = await service.say(say("yes"))
    assert text["answered"] is None and text["queued"]
    answer = {
        "channel_id": "room",
        "user_id": "ann",
        "request_id": asked.json["data"]["request_id"],
        "value": {"approved": True},
    }
    bad = [
        await service.signed({**answer, "user_id": "bob"}),
        await service.signed({**answer, "request_id": new_id()}),
        await service.signed({**answer, "value": {"approved": "perhaps"}}),
        await service.signed({**answer, "value": "\x00"}),
        await service.signed({**answer, "text": "and a message"}),
    ]
    assert [one.status_code for one in bad] == [404, 404, 422, 422, 422], [one.text for one in bad]
    assert bad[2].json()["errors"][0]["pointer"] == "/value/approved"
    assert (await service.signed(answer)).json()["answered"] == 1
    assert (await service.signed(answer)).json()["answered"] == 0
    _, question = await service.replies(2)
    assert question.json["data"]["text"] == "And now?"
    _, weak = await keys.create(stack.pool, "default", f"weak-{new_id()}", [Right.SUBMIT, Right.READ])
    headers = {"Authorization": f"Bearer {weak}"}
    asks = await service.say(chain([ask("Who?")]), user="weak", headers=headers)
    await service.replies(3)
    refused = await service.post("me", user="weak", headers=headers)
    assert refused.status_code == 403 and refused.json()["needed"] == ["answer"], refused.text
    await stack.cancel(asks["session_id"])
    accepted = await service.signed({"channel_id": "room", "user_id": "ann", "text": "nothing more"})
    assert accepted.json()["accepted"][0]["answered"] == question.json["data"]["request_id"]
    assert (await service.ended(said["session_id"])).status == "completed"
    await service.ended(text["session_id"])
