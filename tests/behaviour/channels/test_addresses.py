"""Messages by address: each address has one conversation; its messages run in order, one at a time, each once. They are
merged only if that is enabled."""

import asyncio
import json

import pytest

from domain.ids import is_id, new_id
from store import sessions
from tests.behaviour.channels.people import Service
from tests.behaviour.conversations.talk import asked, chain, say
from tests.behaviour.schedules.clock import create, fired
from tests.support.stack import eventually
from workflows.client import WorkflowClient


@pytest.mark.proves("S2-01", "S2-05")
async def test_messages_of_one_address_are_answered_in_order_one_at_a_time(service: Service) -> None:
    """If messages have files of the same name, each message has its own."""
    first = await service.say("[[script:say words=10 delay=0.1]]")
    rest = []
    for number in range(4):
        upload = await service.stack.http.post("/files?name=note.txt", content=f"page {number}".encode())
        script = chain([("read_file", {"path": "note.txt"})], last=f"n{number}")
        rest.append(await service.say(script, files=[upload.json()["file_id"]]))
    assert {one["conversation_id"] for one in (first, *rest)} == {first["conversation_id"]}
    assert all(one["queued"] for one in rest)
    rows = [await service.ended(one["session_id"]) for one in (first, *rest)]
    for before, after in zip(rows, rows[1:], strict=False):
        assert before.ended_at and after.started_at and before.ended_at <= after.started_at
        assert after.parent_session_id == before.id
    for number, row in enumerate(rows[1:]):
        assert row.output == f"n{number}" and f"page {number}" in str(await service.stack.nodes(row.id))
    replies = [reply.json["data"]["text"] for reply in (await service.replies(5))]
    assert replies[1:] == ["n0", "n1", "n2", "n3"]  # one reply for each message, in the order of arrival
    turns = (await service.stack.http.get(f"/conversations/{first['conversation_id']}/turns")).json()["items"]
    assert [turn["session_id"] for turn in turns] == [one["session_id"] for one in (first, *rest)]


async def test_messages_whose_starts_come_late_and_in_another_order_are_answered_in_theirs(service: Service) -> None:
    """The API died after it had accepted them, and a sweep starts what it finds in any order."""
    stack = service.stack
    workflows = WorkflowClient(stack.client, stack.settings.task_queue)
    running = await service.say("[[script:say words=900 delay=0.1]]", user="late")
    waiting = [await service.say(say("first"), user="late")]  # from now on the conversation has a state of its own
    await stack.seen(running["session_id"], "message_delta")
    with stack.frozen("temporal"):
        waiting += [await service.say(say(f"n{number}"), user="late") for number in range(4)]
        before = await stack.kill("api")
    await stack.back("api", before)
    for said in (waiting[4], waiting[3], waiting[1]):  # nobody starts waiting[2]
        row = await sessions.get(stack.pool, "default", said["session_id"])
        assert row is not None and not row.live
        assert await workflows.submit(row.workflow_input(), new_id(), row.thread_id, queued=True)
    await stack.cancel(running["session_id"])
    rows = [await service.ended(one["session_id"]) for one in waiting]
    began = sorted(rows, key=lambda row: str(row.started_at))
    assert [row.output for row in began] == ["first", "n0", "n1", "n2", "n3"]


@pytest.mark.proves("S2-03", "S1-B13")
async def test_twenty_concurrent_first_messages_create_one_conversation(service: Service) -> None:
    answers = await asyncio.gather(*(service.say(say(f"x{number}"), user="bob") for number in range(20)))
    assert len({one["conversation_id"] for one in answers}) == 1
    assert len({one["session_id"] for one in answers}) == 20
    for one in answers:
        assert (await service.ended(one["session_id"])).output
    other = await service.say(say("x"), user="carl")
    elsewhere = await service.say(say("x"), channel="hall", user="bob")
    assert len({answers[0]["conversation_id"], other["conversation_id"], elsewhere["conversation_id"]}) == 3
    clock = await create(service.stack)
    known = {one["conversation_id"] for one in (*answers, other, elsewhere, clock)}
    # each address has its own conversation, whose id reveals nothing of the address
    assert len(known) == 4 and all(is_id(one) for one in known)
    assert (await fired(service.stack, clock["id"]))["conversation_id"] == clock["conversation_id"]
    before = {name: await service.stack.kill(name) for name in ("api", "worker")}
    for name, pid in before.items():
        await service.stack.back(name, pid)
    again = await service.say(say("x"), user="bob")
    assert again["conversation_id"] == answers[0]["conversation_id"]
    assert (await fired(service.stack, clock["id"]))["conversation_id"] == clock["conversation_id"]


async def test_a_message_is_accepted_once(service: Service) -> None:
    given = {"message_id": "m-1", "user": "dora"}
    answers = await asyncio.gather(*(service.say(say("once"), **given) for _ in range(5)))
    assert len({one["session_id"] for one in answers}) == 1
    assert sorted(one["duplicate"] for one in answers) == [False, True, True, True, True]
    headers = {"Idempotency-Key": new_id()}
    keyed = [await service.say(say("keyed"), user="dora", headers=headers) for _ in range(2)]
    assert keyed[0]["session_id"] == keyed[1]["session_id"] and keyed[1]["duplicate"]
    other = [  # the key was used for another request: with another text, address or kind of message
        await service.post(say("other"), user="dora", headers=headers),
        await service.post(say("keyed"), user="nora", headers=headers),
        await service.post(say("keyed"), user="dora", wake=False, headers=headers),
    ]
    for refused in other:
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:errand:problem:idempotency-key-reused")
    assert (await service.reset("nora")).status_code == 404
    await service.ended(keyed[0]["session_id"])
    assert len(await service.rows(answers[0]["conversation_id"])) == 2
    texts = [one.json["data"]["text"] for one in await service.replies(2)]
    assert sorted(texts) == ["keyed", "once"]


@pytest.mark.proves("S2-04")
async def test_a_message_without_an_address_or_to_an_unknown_one_is_refused(service: Service) -> None:
    for channel, user in (("", "ann"), ("room", "%20%20"), ("room", "a%00b")):
        refused = await service.post(say("x"), channel, user)
        assert refused.status_code in (404, 422), (channel, user, refused.text)
        assert refused.headers["content-type"] == "application/problem+json"
    for body in ({"channel_id": "room", "text": "x"}, {"user_id": "ann", "text": "x"}):
        refused = await service.signed(body)
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["code"] == "missing"
    assert (await service.post(say("x"), connector="nobody")).status_code == 404
    assert (await service.post("   ")).status_code == 422
    assert (await service.signed(b"null")).status_code == 422
    unknown = await service.post("x", files=["01m7h5pjrzy5zk03zj8xz0xsa9"])
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/files/0")
    assert (await service.reset("ann")).status_code == 404


@pytest.mark.proves("S2-15")
async def test_files_reach_the_workspace_with_their_message(service: Service) -> None:
    """A message has its text, its context and its times, an agent its state, and files are named by reference."""
    stack = service.stack
    file_id = (await stack.http.post("/files?name=notes.txt", content=b"seven")).json()["file_id"]
    read = '[[script:tools json=[{"name":"read_file","input":{"path":"notes.txt"}}]]]'
    first = await service.say(say("x"), user="files")
    said = await service.say(read, user="files", files=[file_id], thread="t1", message_id="m1")
    await service.ended(first["session_id"])
    row = await service.ended(said["session_id"])
    nodes = await stack.nodes(row.id)
    assert "notes.txt" in str(nodes[0]["body"]) and "seven" in str(nodes)
    [message] = await stack.pool.fetch("SELECT parts, author, created_at FROM inbox WHERE taken_by = $1", row.id)
    assert read.split("[", 3)[2] in json.loads(message["parts"])[0]["text"] and message["author"] == "files"
    assert row.spec["channel"] == {"message_id": "m1", "thread": "t1"} and message["created_at"] <= row.started_at
    linked = await stack.pool.fetch("SELECT file_id FROM file_uses WHERE session_id = $1", row.id)
    assert [one["file_id"] for one in linked] == [file_id] == row.spec["context"]["files"]
    assert (await stack.http.get(f"/files/{file_id}")).content == b"seven"
    path = f"/conversations/{said['conversation_id']}"
    before = (await stack.http.get(path)).json()["state"]
    assert before["routing"]["thread"] == "t1" and before["generation"] == 0
    await stack.http.post(f"{path}/reset")
    after = (await stack.http.get(path)).json()["state"]
    assert after["generation"] == 1 and after["updated_at"] > before["updated_at"]
    assert after["created_at"] == before["created_at"]


@pytest.mark.proves("S2-B01")
async def test_messages_are_merged_only_where_that_is_enabled(service: Service) -> None:
    name = f"m-{new_id()}"
    await service.put(name, target=f"{service.receiver.url}/merged", debounce_ms=1_000)
    given = {"connector": name, "user": "eve"}
    said = [await service.say(f"part {number}", message_id=f"m{number}", **given) for number in range(3)]
    assert [one["merged"] for one in said] == [False, True, True]
    assert len({one["session_id"] for one in said}) == 1
    row = await service.ended(said[0]["session_id"])
    bodies = str([node["body"] for node in await service.stack.nodes(row.id)])
    assert all(f"part {number}" in bodies for number in range(3))
    assert len(await service.replies(1, "/merged")) == 1
    again = await service.say("part 1", message_id="m1", **given)
    assert again["duplicate"] and again["session_id"] == row.id
    running = await service.say("[[script:say words=40 delay=0.1]]", thread="t1", **given)
    await service.stack.seen(running["session_id"], "message_delta")
    queued = [await service.say(f"queued {number}", thread="t1", **given) for number in range(3)]
    apart = await service.say("of another thread", thread="t2", **given)
    assert [one["merged"] for one in (running, *queued, apart)] == [False, False, True, True, False]
    assert len({one["session_id"] for one in (running, *queued, apart)}) == 3
    await service.ended(apart["session_id"])
    bodies = str([node["body"] for node in await service.stack.nodes(queued[0]["session_id"])])
    assert all(f"queued {number}" in bodies for number in range(3)) and "another thread" not in bodies
    replies = [one.json["data"] for one in await service.replies(4, "/merged")][1:]
    answered = {one["task_id"]: one["thread"] for one in replies}
    assert answered == {
        one["session_id"]: thread for one, thread in ((running, "t1"), (queued[0], "t1"), (apart, "t2"))
    }


@pytest.mark.proves("S2-B05")
async def test_a_debounced_session_starts_though_its_api_dies(service: Service) -> None:
    name = f"m-{new_id()}"
    await service.put(name, debounce_ms=10_000)
    with service.stack.frozen("temporal"):  # sessions of plain messages do not start either
        plain = [await service.say(say(text), user="gil") for text in ("one", "two")]
        said = await service.say(say("late"), connector=name, user="fay")
        before = await service.stack.kill("api")
    await service.stack.back("api", before)
    for one in (said, *plain):
        await service.stack.age(one["session_id"])
    row = await sessions.get(service.stack.pool, "default", said["session_id"])
    assert row and not row.live
    kept = "SELECT taken_by FROM inbox WHERE conversation_id = $1"  # the message was stored before anything was started
    assert len(await service.stack.pool.fetch(kept, said["conversation_id"])) == 1
    await service.stack.sweep()

    async def done() -> bool:
        return (await service.ended(said["session_id"])).output == "late"

    await eventually(done)
    assert [(await service.ended(one["session_id"])).output for one in plain] == ["one", "two"]
    assert {one.json["data"]["text"] for one in await service.replies(2)} == {"one", "two"}
    assert [row["taken_by"] for row in await service.stack.pool.fetch(kept, said["conversation_id"])] == [row.id]
    # handled messages are not pending any more: neither a restore nor another sweep starts them again
    workflows = WorkflowClient(service.stack.client, service.stack.settings.task_queue)
    await workflows.reopen("default", said["conversation_id"], reload=True)
    await service.stack.sweep()
    await service.put(name)  # the next message waits for no other
    await service.ended((await service.say(say("next"), connector=name, user="fay"))["session_id"])
    assert len(await service.rows(said["conversation_id"])) == 2


@pytest.mark.proves("S2-09", "S2-10", "S2-20")
async def test_the_context_is_rebuilt_from_the_records_and_a_malformed_one_is_left_out(service: Service) -> None:
    stack, tags = service.stack, [new_id() for _ in range(4)]
    anew = [new_id() for _ in range(3)]  # tags of a conversation that is reset after its first message
    for tag in anew[:2]:
        said = await service.say(f"{say('x')} {tag}", user="anew")
        await service.ended(said["session_id"])
        if tag == anew[0]:
            await stack.http.post(f"/conversations/{said['conversation_id']}/reset")
    odd = await service.say("[[script:say words=600 delay=0.1]]", user="odd")
    await stack.seen(odd["session_id"], "message_delta")
    for tag in tags[:3]:
        past = await service.say(f"{say(f'answer-{tag}')} {tag}", user="past")
        await service.ended(past["session_id"])
    rows = await service.rows(past["conversation_id"])
    change = "UPDATE messages SET body = {} WHERE session_id = $1 AND kind = 'assistant'"
    await stack.pool.execute(change.format(f"replace(body, 'answer-{tags[0]}', 'changed-{tags[0]}')"), rows[0].id)
    await stack.pool.execute(change.format("'{broken'"), rows[1].id)
    spoilt = {"sessions": "rules = '{'", "addresses": "kind = 'nonsense'"}  # a descriptor that cannot be parsed
    for table, change in spoilt.items():
        await stack.pool.execute(f"UPDATE {table} SET {change} WHERE conversation_id = $1", odd["conversation_id"])
    await stack.age(odd["session_id"])
    await stack.back("worker", await stack.kill("worker"))  # the new worker has nothing in memory
    second = await service.say(f"{say('x')} {anew[2]}", user="anew")
    await service.ended(second["session_id"])
    [request] = await asked(stack, anew[2])
    assert [tag in str(request["messages"]) for tag in anew] == [False, True, True]
    last = await service.ended((await service.say(f"{say('last')} {tags[3]}", user="past"))["session_id"])
    assert (last.status, last.output) == ("completed", "last")
    [request] = await asked(stack, tags[3])
    asked_for, answered = [
        str([one for one in request["messages"] if one["role"] == role]) for role in ("user", "assistant")
    ]
    assert all(tag in asked_for for tag in tags)
    assert f"changed-{tags[0]}" in answered and f"answer-{tags[2]}" in answered
    assert tags[1] not in answered and "broken" not in answered
    await stack.pool.execute("UPDATE sessions SET rules = '[]' WHERE id = $1", odd["session_id"])
    shown = (await stack.http.get(f"/conversations/{odd['conversation_id']}")).json()
    # the address cannot be read, so the type of its conversation is unknown
    assert shown["descriptor"]["type"] == "task"
    await stack.cancel(odd["session_id"])


@pytest.mark.proves("S2-B08")
async def test_calls_are_recorded_as_they_happen_and_none_is_left_without_a_result(service: Service) -> None:
    """A person stops one session, and the workflow of the other is terminated. Both conversations can be continued, and
    the model reads directly after each call why it has no result."""
    stack = service.stack
    interrupted = "Interrupted: the session was told to stop while this call ran."
    never = "No result: a person stopped the session before the call could report. It may or may not have happened."
    crashed = "No result: the session crashed before the call could report. It may or may not have happened."
    await service.asking()

    async def go_on(user: str, texts: list[str]) -> None:
        waits = [("bash", {"command": "sleep 30"}), ("ask_user", {"question": "Why?"})]
        said = await service.say(chain([("list_files", {})], waits), user=user)
        await stack.seen(said["session_id"], "tool_called", tool="bash")
        kinds = [node["kind"] for node in await stack.nodes(said["session_id"])]
        assert kinds == ["user", "assistant", "tool_results", "assistant"]  # stored while the session is still running
        if user == "stopped":
            await stack.cancel(said["session_id"])
        else:
            await stack.session(said["session_id"]).terminate("from outside")
            await stack.age(said["session_id"])
            await stack.sweep()
        await service.ended(said["session_id"])
        call, result = (await stack.nodes(said["session_id"]))[-2:]
        assert (call["kind"], result["kind"]) == ("assistant", "tool_results")
        assert [(one["text"], one["failed"]) for one in result["body"]["results"]] == [(one, True) for one in texts]
        tag = new_id()
        after = await service.ended((await service.say(f"{say('after')} {tag}", user=user))["session_id"])
        assert after.status == "completed" and after.parent_session_id == said["session_id"]
        [request] = await asked(stack, tag)
        *_, called, answered = request["messages"]
        ids = [block["id"] for block in called["content"] if block["type"] == "tool_use"]
        assert [one["tool_use_id"] for one in answered["content"] if one["type"] == "tool_result"] == ids
        assert all(text in str(answered) for text in texts)

    await asyncio.gather(go_on("stopped", [interrupted, never]), go_on("crashed", [crashed, crashed]))


@pytest.mark.proves("S2-B19")
async def test_a_stop_ends_the_model_call_and_is_no_error(service: Service) -> None:
    said = await service.say("[[script:say words=600 delay=0.1]]", user="stop")
    await service.stack.seen(said["session_id"], "message_delta")
    stop = f"/tasks/{said['session_id']}/cancel"
    assert (await service.stack.http.post(stop, json={})).status_code == 202
    row = await service.ended(said["session_id"])
    assert (row.status, row.error) == ("cancelled", None)
    again = await service.stack.http.post(stop, json={})
    assert (again.status_code, again.json()["status"]) == (200, "cancelled")  # there is nothing left to stop
    await service.say(say("after"), user="stop")
    [reply] = await service.replies(1)
    assert reply.json["data"]["text"] == "after"
