"""Who is notified of an event: subscriptions by their filters and the task's settings, and the channel and address of a
conversation."""

import json
from typing import Any

import pytest

from domain.audit import TENANT
from domain.faces import FaceRequest
from domain.ids import new_id
from domain.notifications import ChannelName, NewNotice, NewSubscription
from domain.sealing import KeyRing
from domain.sessions.new_session import PlacedSession
from domain.sessions.writes import Acceptance
from store import audit, face_requests, notifications, resets, sessions
from store.database import Pool, to_json
from tests.behaviour.store.conftest import new_session
from tests.behaviour.store.test_sessions import STOP
from tests.support.launch import SECRET_KEYS
from tests.support.stack import Stack

EVERY = ["task_completed", "task_failed", "task_cancelled", "input_required", "anomaly"]
CHILD = {"spawned_by": "parent", "delivery": "hold"}
RECORDED = {"session_id": "s", "recorded": True}
CALLER: dict[str, Any] = {"background": True, "errand": {"approvals": "caller"}}


async def task(pool: Pool, tenant: str, root: str | None = None, **columns: Any) -> PlacedSession:
    """Accept a session and write these columns of its row."""
    session = new_session(root, tenant)
    if root is not None:
        session = session.model_copy(update={"thread_id": columns.pop("thread_id", root)})
        await pool.execute("UPDATE sessions SET live = false WHERE thread_id = $1", session.thread_id)
    assert (await sessions.accept(pool, Acceptance(session=session))).session is not None
    values = [json.dumps(value) if isinstance(value, dict) else value for value in columns.values()]
    if changes := ", ".join(f"{name} = ${number + 2}" for number, name in enumerate(columns)):
        await pool.execute(f"UPDATE sessions SET {changes} WHERE id = $1", session.id, *values)
    return session


async def subscribe(pool: Pool, tenant: str, **columns: Any) -> str:
    fields = {
        "name": new_id(),
        "channel": "webhook",
        "events": EVERY,
        "every_task": True,
        "subagents": False,
        **columns,
    }
    fields = {"tenant": tenant, "id": new_id(), "target": "x", "target_shown": "x", "created_by": "", **fields}
    places = ", ".join(f"${number + 1}" for number in range(len(fields)))
    await pool.execute(f"INSERT INTO subscriptions ({', '.join(fields)}) VALUES ({places})", *fields.values())
    return str(fields["id"])


async def give(pool: Pool, session: PlacedSession, event: str, /, **data: Any) -> None:
    notice = NewNotice(
        tenant=session.tenant,
        conversation_id=session.conversation_id,
        type=event,
        data=json.dumps(data),
        session_id=session.id,
        seq=1,
    )
    await pool.execute("SELECT give_notice($1::jsonb)", to_json([notice]))


async def bodies(pool: Pool, tenant: str, recipient: str) -> list[dict[str, Any]]:
    rows = await pool.fetch(
        "SELECT body FROM deliveries WHERE tenant = $1 AND subscription_id = $2 ORDER BY id", tenant, recipient
    )
    return [json.loads(row["body"]) for row in rows]


def config(**settings: Any) -> dict[str, Any]:
    return {"spec": {"config": settings}}


def silent(reply: str) -> dict[str, Any]:
    return {"spec": {"schedule": {"id": "s", "silent_reply": reply}}}


OPENAI = {"channel": "openai"}
SOME, NAMED = {"every_task": False}, {"every_task": False, "name": "mine"}


@pytest.mark.parametrize(
    ("subscription", "columns", "kind", "data", "notified"),
    [
        ({}, {}, "task_completed", {}, True),
        ({"status": "disabled"}, {}, "task_completed", {}, False),
        ({"events": ["task_failed"]}, {}, "task_completed", {}, False),
        ({"events": ["task_failed"]}, {}, "task_failed", {}, True),
        # a reminder goes to those who get requests
        ({"events": ["input_required"]}, {}, "input_reminder", {"kind": "clarification"}, True),
        ({"events": ["task_failed"]}, {}, "input_reminder", {"kind": "clarification"}, False),
        # tasks name subscriptions by name or by channel
        (SOME, {}, "task_completed", {}, False),
        (NAMED, config(notify=["mine"]), "task_completed", {}, True),
        (NAMED, config(notify=["webhook"]), "task_completed", {}, True),
        (NAMED, config(notify=["slack", "other"]), "task_completed", {}, False),
        # and route kinds of requests, and events
        (NAMED, config(routes={"clarification": "mine"}), "input_required", {"kind": "clarification"}, True),
        (NAMED, config(routes={"clarification": "webhook"}), "input_reminder", {"kind": "clarification"}, True),
        (NAMED, config(routes={"clarification": "mine"}), "input_required", {"kind": "tool_approval"}, False),
        (NAMED, config(routes={"anomaly": "mine"}), "anomaly", {"kind": "clarification"}, True),
        ({**NAMED, "events": ["task_failed"]}, config(routes={"anomaly": "mine"}), "anomaly", {}, True),
        ({**NAMED, "status": "disabled"}, config(routes={"anomaly": "mine"}), "anomaly", {}, False),
        # an escalation goes to the one that it names
        ({"name": "boss"}, {}, "input_escalated", {"to": "boss"}, True),
        ({"name": "boss", "events": ["anomaly"]}, {}, "input_escalated", {"to": "boss"}, True),
        ({"name": "other", "events": ["input_escalated"]}, {}, "input_escalated", {"to": "boss"}, False),
        ({"name": "boss", **OPENAI}, {}, "input_escalated", {"to": "boss"}, False),
        # the end of a subagent only goes to those who ask for it, its requests to all
        ({}, CHILD, "task_completed", {}, False),
        ({"subagents": True}, CHILD, "task_completed", {}, True),
        ({}, CHILD, "input_required", {"kind": "clarification"}, True),
        # nothing happened
        ({}, {"rerun": RECORDED}, "task_completed", {}, False),
        ({}, {"rerun": {**RECORDED, "recorded": False}}, "task_completed", {}, True),
        ({}, silent("Nothing."), "task_completed", {"output": " Nothing.\n"}, False),
        ({}, silent("Nothing."), "task_completed", {"output": "Something."}, True),
        ({}, silent("Nothing."), "task_failed", {"output": "Nothing."}, True),
    ],
)
async def test_subscription_gets_what_its_filters_and_the_task_say(
    pool: Pool,
    subscription: dict[str, Any],
    columns: dict[str, Any],
    kind: str,
    data: dict[str, Any],
    notified: bool,
) -> None:
    tenant = new_id()
    session = await task(pool, tenant, **columns)
    mine, elsewhere = await subscribe(pool, tenant, **subscription), await subscribe(pool, new_id())
    bystander = await subscribe(pool, tenant, channel="email", every_task=False)
    await give(pool, session, kind, **data)
    assert [one["type"] for one in await bodies(pool, tenant, mine)] == [kind] * notified
    for other in (elsewhere, bystander):
        assert await pool.fetchval("SELECT count(*) FROM deliveries WHERE subscription_id = $1", other) == 0
    feed = await pool.fetch(
        "SELECT type, session_id FROM notices WHERE tenant = $1 ORDER BY number DESC LIMIT 1", tenant
    )
    assert [tuple(row) for row in feed] == [(kind, session.id)]  # the feed has every notice


ENDS = ("task_completed", "task_failed", "task_cancelled")
PLAIN: dict[str, Any] = {"background": True}


@pytest.mark.parametrize(
    ("subscription", "columns", "request_", "kind", "data", "notified"),
    [
        *((OPENAI, {}, PLAIN, kind, {}, True) for kind in ENDS),
        (OPENAI, {}, None, "task_completed", {}, False),  # a task of another face
        (OPENAI, {}, {"background": False}, "task_completed", {}, False),
        (OPENAI, CHILD, PLAIN, "task_completed", {}, False),
        ({**OPENAI, "subagents": True}, CHILD, PLAIN, "task_completed", {}, False),
        ({**OPENAI, "events": ["task_failed"]}, {}, PLAIN, "task_completed", {}, False),
        ({**OPENAI, "every_task": False}, {}, PLAIN, "task_completed", {}, False),
        ({**OPENAI, **NAMED}, config(notify=["mine"]), PLAIN, "task_completed", {}, True),
        (OPENAI, {}, PLAIN, "anomaly", {}, False),
        (OPENAI, {}, PLAIN, "input_required", {"kind": "external_result"}, True),
        (OPENAI, {}, PLAIN, "input_required", {"kind": "clarification"}, False),
        (OPENAI, {}, PLAIN, "input_required", {"kind": "tool_approval"}, False),  # a person approves it
        (OPENAI, {}, CALLER, "input_required", {"kind": "tool_approval"}, True),
        (OPENAI, {}, CALLER, "input_required", {"kind": "plan_approval"}, True),
    ],
)
async def test_openai_subscription_gets_only_what_concerns_a_background_response(
    pool: Pool,
    subscription: dict[str, Any],
    columns: dict[str, Any],
    request_: dict[str, Any] | None,
    kind: str,
    data: dict[str, Any],
    notified: bool,
) -> None:
    tenant = new_id()
    session, other = await task(pool, tenant, **columns), await task(pool, tenant)
    mine = await subscribe(pool, tenant, **subscription)

    async def add(face: str, task: PlacedSession, part: int, request: dict[str, Any]) -> None:
        row = FaceRequest(face=face, public_id=new_id(), session_id=task.id, part=part, request=json.dumps(request))
        await face_requests.add(pool, tenant, row)

    # requests of another face, of another task, and a later one of the same task decide nothing
    await add("mcp", session, 1, CALLER)
    await add("responses", other, 1, CALLER)
    await add("responses", session, 2, CALLER | {"background": False})
    if request_ is not None:
        await add("responses", session, 1, request_)
    await give(pool, session, kind, **data)
    assert [one["type"] for one in await bodies(pool, tenant, mine)] == [kind] * notified


async def test_delivery_says_whose_event_it_is_and_holds_the_beginning_of_a_long_output(pool: Pool) -> None:
    tenant = new_id()
    root = await task(pool, tenant)
    child = await task(pool, tenant, spawned_by=root.id, delivery="hold", subagent_name="helper", title="a title")
    mine = await subscribe(pool, tenant, subagents=True)
    await give(pool, child, "task_completed", output="x" * 3_000, usage={"input_tokens": 1}, reason="goal_reached")
    await give(pool, root, "anomaly", text="odd")
    second, first = sorted(await bodies(pool, tenant, mine), key=lambda one: str(one["type"]))
    about = {"conversation_id": child.id, "title": "a title", "agent": "tester", "status": "submitted"}
    assert first["data"] == {
        **{"task_id": child.id, **about, "subagent": "helper", "spawned_by": root.id, "reason": "goal_reached"},
        "output": "x" * 2_000,
    }
    assert second["data"]["text"] == "odd" and not {"subagent", "spawned_by", "output"} & set(second["data"])
    notice = NewNotice(tenant=tenant, conversation_id=None, type="anomaly", data='{"text": "of no task"}')
    await pool.execute("SELECT give_notice($1::jsonb)", to_json([notice]))
    [third] = [one for one in await bodies(pool, tenant, mine) if one["data"].get("text") == "of no task"]
    assert third["data"] == {"text": "of no task"}
    rows = await pool.fetch("SELECT created_by, data FROM notices WHERE tenant = $1 ORDER BY number", tenant)
    assert [row["created_by"] for row in rows] == ["test", "test", ""]
    assert json.loads(rows[0]["data"]) == {"reason": "goal_reached"}  # neither usage nor output


@pytest.mark.parametrize(
    ("kind", "data", "columns", "text"),
    [
        ("task_completed", {}, {"output": "Hello."}, "Hello."),
        ("task_failed", {}, {"error": "It broke."}, "This could not be answered: It broke."),
        ("task_failed", {}, {"reason": "ttl"}, "This could not be answered: ttl"),
        ("context_lost", {"text": "Lost."}, {}, "Lost."),
        ("input_required", {"question": "Which?", "options": ["a", "b"]}, {}, "Which?\n- a\n- b"),
        ("task_cancelled", {}, {"output": "Hello."}, None),
        ("anomaly", {"text": "odd"}, {}, None),
        *(("task_completed", {}, {"output": text}, None) for text in ("", " \n", "NO_MESSAGE", " NO_MESSAGE.\n", None)),
        ("task_completed", {}, {"output": "NO_MESSAGE, really"}, "NO_MESSAGE, really"),
        ("task_completed", {}, {"output": "Nothing.\n", **silent("Nothing.")}, None),
        ("task_failed", {}, {"error": "Nothing.", **silent("Nothing.")}, "This could not be answered: Nothing."),
    ],
)
async def test_channel_gets_answers_questions_and_failures_of_its_own_generation(
    pool: Pool, kind: str, data: dict[str, Any], columns: dict[str, Any], text: str | None
) -> None:
    tenant, connector, other = new_id(), new_id(), new_id()
    root = await task(pool, tenant)
    for name, connector_id in (("chat", connector), ("other", other)):
        await pool.execute(
            """INSERT INTO connectors (tenant, id, name, kind, agent, target, secrets, debounce_ms, created_by)
               VALUES ($1, $2, $3, 'webhook', 'x', 'y', '{}', 0, '')""",
            tenant,
            connector_id,
            name,
        )
    await pool.execute(
        """INSERT INTO channels (tenant, conversation_id, connector, channel_id, user_id)
           VALUES ($1, $2, 'chat', 'room', 'ann')""",
        tenant,
        root.id,
    )

    async def said(session: PlacedSession) -> list[str]:
        before = len(await bodies(pool, tenant, connector))
        await give(pool, session, kind, **data)
        return [one["data"]["text"] for one in (await bodies(pool, tenant, connector))[before:]]

    expected = [text] if text is not None else []
    mine = await task(pool, tenant, root.id, **columns)
    assert await said(mine) == expected
    if text is not None:
        [body] = await bodies(pool, tenant, connector)
        assert body["type"] == ("input_required" if kind == "input_required" else "reply")
        assert body["data"].items() >= {"connector": "chat", "channel_id": "room", "user_id": "ann"}.items()
    # of a subagent only its questions
    below = await task(pool, tenant, root.id, thread_id=new_id(), spawned_by=root.id, delivery="hold", **columns)
    assert await said(below) == (expected if kind == "input_required" else [])
    # a conversation without a channel sends nothing
    assert await said(await task(pool, tenant, **columns)) == []
    # after a reset nothing of the old generation is sent, and all of the new one
    assert await resets.reset(pool, tenant, root.id, STOP)
    assert await said(mine) == [] and await said(below) == []
    assert await said(await task(pool, tenant, root.id, **columns)) == expected
    # a connector without an address only receives
    await pool.execute("UPDATE connectors SET target = '' WHERE id = $1", connector)
    assert await said(await task(pool, tenant, root.id, **columns)) == []
    assert await bodies(pool, tenant, other) == []  # nobody has written through it


KEYS = KeyRing.parse(SECRET_KEYS)


async def test_changes_of_subscriptions_are_in_the_audit_log(stack: Stack) -> None:
    tenant = f"t{new_id()}"
    body = NewSubscription(name="ops", channel=ChannelName.WEBHOOK, target="https://x.example/token")
    made = await notifications.create_subscription(stack.pool, tenant, body, "whsec_one", "key/a", KEYS)
    assert made is not None
    # nothing was changed
    assert await notifications.create_subscription(stack.pool, tenant, body, "whsec_two", "key/a", KEYS) is None
    assert await notifications.rotate_secret(stack.pool, tenant, made.id, "whsec_three", "key/b", KEYS)
    assert await notifications.enable_subscription(stack.pool, tenant, made.id, "key/b")
    assert await notifications.remove_subscription(stack.pool, tenant, made.id, "key/c")
    assert not await notifications.remove_subscription(stack.pool, tenant, made.id, "key/c")
    listed = await audit.find(stack.pool, tenant, chain=TENANT, limit=20)
    assert [(one.action, one.actor, one.subject) for one in listed] == [
        ("unsubscribe", "key/c", "ops"),
        ("enable_subscription", "key/b", "ops"),
        ("rotate_secret", "key/b", "ops"),
        ("subscribe", "key/a", "ops"),
    ]
    assert "token" not in str(listed) and "whsec" not in str(listed)
