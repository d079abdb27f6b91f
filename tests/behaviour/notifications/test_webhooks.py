"""Webhooks: signed, only for subscribed events, retried for days, given up in the end, and resent on request."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from domain.events import BudgetLow, EventRow
from domain.sessions.session import Scope, SessionRef
from store.events import append
from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.supervision.people import answer, answered, ask, waiting
from tests.support.launch import TESTER
from tests.support.stack import calls, eventually, of_type, steps

DOWN = "503 Service Unavailable"


@pytest.mark.proves("S1-08")
async def test_end_of_a_task_is_delivered_signed_and_once(subscribers: Subscribers, receiver: Receiver) -> None:
    made = await subscribers.subscribe(f"{receiver.url}/ops?token=canary", events=["task_completed", "task_failed"])
    assert made["target"] == f"{receiver.url}/…" and made["status"] == "active"
    done = await subscribers.stack.run("[[script:say text=fine]]", title="Count files")
    failed = await subscribers.stack.run("[[fault:auth times=always]]")
    first, second = await receiver.got("/ops?token=canary", 2)
    assert first.signed_by(made["secret"]) and second.signed_by(made["secret"])
    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    assert (first.json["type"], second.json["type"]) == ("task_completed", "task_failed")
    assert first.json["data"] == {
        **{"task_id": done["task_id"], "conversation_id": done["task_id"], "title": "Count files", "agent": "tester"},
        **{"status": "completed", "reason": "goal_reached", "partial": False, "error": None, "output": "fine"},
    }
    assert second.json["data"]["task_id"] == failed["task_id"] and second.json["data"]["error"]
    found = await subscribers.deliveries(made)
    assert [one["id"] for one in found] == [first.headers["webhook-id"], second.headers["webhook-id"]]

    async def delivered() -> bool:
        return all((one["status"], one["attempts"]) == ("delivered", 1) for one in await subscribers.deliveries(made))

    await eventually(delivered, what="both are delivered")


@pytest.mark.proves("S1-47")
async def test_task_chooses_its_subscriptions_and_its_sandbox(subscribers: Subscribers, receiver: Receiver) -> None:
    definition = TESTER | {"name": "hook-networked", "network": True}
    assert (await subscribers.stack.http.put("/agents/hook-networked", json=definition)).is_success
    named = await subscribers.subscribe(f"{receiver.url}/chosen", every_task=False)
    command = calls(("bash", {"command": "echo proxy=${HTTPS_PROXY:-none}"}))
    shown = {}
    for mode in ("networked", "isolated"):
        config = {"sandbox": mode, "notify": [named["name"]] if mode == "isolated" else []}
        task_id = (await subscribers.stack.run(command, agent="hook-networked", config=config))["task_id"]
        shown[mode] = str((await subscribers.stack.asked(task_id))[-1]["body"]["messages"][-1])
    assert "proxy=http://" in shown["networked"] and "proxy=none" in shown["isolated"]
    await receiver.got("/chosen")
    assert [one["task_id"] for one in await subscribers.deliveries(named)] == [task_id]


@pytest.mark.proves("S1-90")
async def test_seven_foundations_hold_together(subscribers: Subscribers, receiver: Receiver, tmp_path: Path) -> None:
    """Handle, durable store, reasoning loop, five states, observation, bounds and notification: the first task shows
    all of them; two more tasks reach the other final states."""
    stack, ledger = subscribers.stack, tmp_path / "ledger"
    made = await subscribers.subscribe(
        f"{receiver.url}/all", events=["task_completed", "task_failed", "task_cancelled"]
    )
    work = ("ledger_again", {"path": str(ledger), "seconds": 1})
    spec = {"agent": "asker", "input": steps([work], [ask("Which port?")], [("list_files", {"path": "."})])}
    config = {"ttl": 120_000, "max_steps": 5}
    handle = (await stack.http.post("/tasks", json={**spec, "config": config})).json()
    task_id, states = handle["task_id"], [handle["status"]]  # the handle is returned immediately

    async def called() -> bool:
        return await asyncio.to_thread(ledger.exists)

    await eventually(called, what="the tool runs")
    states.append((await stack.record(task_id))["status"])
    await stack.back("worker", await stack.kill("worker"))  # the worker dies during the call; the store is durable
    [request] = await waiting(stack, task_id)
    states.append((await stack.record(task_id))["status"])
    done = await answered(stack, task_id, "80")
    assert (done["reason"], done["limits"]["ttl_ms"], done["limits"]["steps"]) == ("goal_reached", 120_000, 5)
    lines = (await asyncio.to_thread(ledger.read_text)).splitlines()
    assert len({line.split()[0] for line in lines}) == 1  # one call, however many attempts
    events = await stack.events(task_id)  # observation: every step of the loop, without gaps in the numbers
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["step"] for event in of_type(events, "step_started")] == [1, 2, 3, 4]
    assert [event["tool"] for event in of_type(events, "tool_called")] == ["ledger_again", "ask_user", "list_files"]
    assert of_type(events, "input_required")[0]["request_id"] == request["id"]
    bounded = await stack.run("[[script:count n=20]]", config={"max_steps": 2})
    assert (bounded["status"], bounded["reason"]) == ("failed", "step_limit")
    running = await stack.submit("[[script:say words=400 delay=0.05]]")
    await stack.seen(running, "message_delta")
    assert (await stack.record(running))["status"] == "working"
    await stack.http.post(f"/tasks/{running}/cancel", json={})
    states += [(await stack.wait(one))["status"] for one in (task_id, bounded["task_id"], running)]
    assert states == ["submitted", "working", "input_required", "completed", "failed", "cancelled"]
    received = await receiver.got("/all", 3)
    ended = {one.json["type"]: one.json["data"]["task_id"] for one in received}
    assert ended == {"task_completed": task_id, "task_failed": bounded["task_id"], "task_cancelled": running}
    assert all(one.signed_by(made["secret"]) for one in received)


@pytest.mark.exactly_once
async def test_failed_delivery_is_retried_with_the_same_id_and_body(
    subscribers: Subscribers, receiver: Receiver
) -> None:
    receiver.answers["/flaky"] = [DOWN, "302 Found\r\nLocation: http://127.0.0.1:1/", "204 No Content"]
    made = await subscribers.subscribe(f"{receiver.url}/flaky")
    await subscribers.stack.run("[[script:say text=x]]")
    pending = await subscribers.delivery(made, attempts=1)
    assert (pending["status"], pending["last_error"]) == ("pending", "It answered 503.") and pending["next_at"]
    assert (await subscribers.record(made))["failing_since"]
    await subscribers.pass_time(subscribers.workflow(pending), seconds=6)
    assert (await subscribers.delivery(made, attempts=2))["last_error"] == "It answered 302."
    await subscribers.pass_time(subscribers.workflow(pending), seconds=31)
    await subscribers.delivery(made, status="delivered", attempts=3)
    first, *rest = receiver.at("/flaky")
    assert {(one.headers["webhook-id"], one.body) for one in rest} == {(first.headers["webhook-id"], first.body)}
    assert all(one.signed_by(made["secret"]) for one in receiver.at("/flaky"))
    assert (await subscribers.record(made))["failing_since"] is None


async def test_delivery_given_up_after_days_switches_its_subscription_off(
    subscribers: Subscribers, receiver: Receiver
) -> None:
    receiver.answers["/dead"] = [DOWN]
    made = await subscribers.subscribe(f"{receiver.url}/dead", events=["task_completed"])
    other = await subscribers.subscribe(f"{receiver.url}/other", events=["subscription_disabled"])
    await subscribers.stack.run("[[script:say text=x]]")
    pending = await subscribers.delivery(made, attempts=1)
    handle = subscribers.workflow(pending)
    await subscribers.pass_time(handle, hours=73)
    failed = await subscribers.delivery(made, status="failed")
    assert 10 <= failed["attempts"] <= 16
    history = await handle.fetch_history()
    due = datetime.fromisoformat(failed["created_at"])
    assert (history.events[-1].event_time.ToDatetime(UTC) - due).total_seconds() >= 72 * 3_600
    record = await subscribers.record(made)
    assert (record["status"], record["last_error"]) == ("disabled", "It answered 503.")
    [notice] = await receiver.got("/other")
    assert notice.json["type"] == "subscription_disabled" and notice.json["data"]["name"] == made["name"]
    assert len(await subscribers.deliveries(other)) == 1
    refused = await subscribers.stack.http.post(f"/deliveries/{failed['id']}/resend")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:errand:problem:subscription-disabled")
    await subscribers.stack.run("[[script:say text=y]]")
    assert len(await subscribers.deliveries(made)) == 1  # a disabled subscription gets nothing new
    assert (await subscribers.stack.http.post(f"/subscriptions/{made['id']}/enable")).json()["status"] == "active"
    receiver.answers.clear()
    assert (await subscribers.stack.http.post(f"/deliveries/{failed['id']}/resend")).status_code == 202
    await subscribers.delivery(made, status="delivered")
    assert len({request.headers["webhook-id"] for request in receiver.at("/dead")}) == 1


@pytest.mark.exactly_once
async def test_delivery_waits_for_temporal_while_that_is_away(subscribers: Subscribers, receiver: Receiver) -> None:
    """At that time only the outbox row exists."""
    stack, made = subscribers.stack, await subscribers.subscribe(f"{receiver.url}/away", events=["budget_low"])
    task_id = await stack.submit(calls(ask("Which?")), "asker")
    await waiting(stack, task_id)
    before = stack.pid("temporal")
    with stack.frozen_supervisor():
        stack.signal("temporal", signal.SIGKILL)
        ref = SessionRef(tenant="default", session_id=task_id, conversation_id=task_id)
        low = BudgetLow(scope=Scope.SESSION, budget="tokens", limit=1, left=0)
        await append(stack.pool, "", [EventRow.of(ref, low)])  # as an activity would
        await asyncio.sleep(0.3)
        assert [one["status"] for one in await subscribers.deliveries(made)] == ["pending"]
    await stack.back("temporal", before)
    [request] = await receiver.got("/away")
    assert request.json["type"] == "budget_low" and request.json["data"]["budget"] == "tokens"
    await stack.cancel(task_id)


async def test_both_secrets_sign_during_a_rotation(subscribers: Subscribers, receiver: Receiver) -> None:
    made = await subscribers.subscribe(f"{receiver.url}/rotate", every_task=False)
    rotated = await subscribers.stack.http.post(f"/subscriptions/{made['id']}/rotate")
    assert rotated.status_code == 200 and rotated.json()["secret"] != made["secret"]
    await subscribers.stack.run("[[script:say text=x]]", config={"notify": [made["name"]]})
    [both] = await receiver.got("/rotate")
    assert both.signed_by(made["secret"]) and both.signed_by(rotated.json()["secret"])
    await subscribers.stack.pool.execute("UPDATE subscriptions SET old_until = now() WHERE id = $1", made["id"])
    await subscribers.stack.run("[[script:say text=y]]", config={"notify": [made["name"]]})
    _, one = await receiver.got("/rotate", 2)
    assert one.signed_by(rotated.json()["secret"]) and not one.signed_by(made["secret"])


@pytest.mark.proves("S1-26")
async def test_routes_say_who_gets_which_escalation(subscribers: Subscribers, receiver: Receiver) -> None:
    """Each kind of request is sent to the subscription that the task names for it, whichever events that one is
    for. Unanswered requests are escalated in the same way."""
    names = {}
    for name in ("desk", "safety", "chief"):
        made = await subscribers.subscribe(f"{receiver.url}/{name}", every_task=False, events=["task_failed"])
        names[name] = made["name"]
    hour = 3_600_000
    config = {
        "ttl": 72 * hour,
        "max_steps": 2,
        "routes": {"clarification": names["desk"], "tool_approval": names["safety"], "budget_low": names["chief"]},
        "escalate_after": 24 * hour,
        "escalate_to": {"tool_approval": names["chief"]},
    }
    rules = [{"permission": "bash", "action": "ask"}]
    script = calls(ask("Which port?"), ("bash", {"command": "true"}))
    task_id = await subscribers.stack.submit(script, "asker", config=config, permissions=rules)
    for place, kind in (("/desk", "clarification"), ("/safety", "tool_approval")):
        [one] = await receiver.got(place)
        assert (one.json["type"], one.json["data"]["kind"]) == ("input_required", kind)
    await subscribers.pass_time(subscribers.stack.session(task_id), hours=25)
    [up] = await receiver.got("/chief")
    assert (up.json["type"], up.json["data"]["kind"]) == ("input_escalated", "tool_approval")
    for request in await waiting(subscribers.stack, task_id, 2):
        yes = "80" if request["kind"] == "clarification" else {"approved": True}
        assert (await answer(subscribers.stack, task_id, request["id"], yes)).status_code == 202
    await subscribers.stack.wait(task_id)
    _, low = await receiver.got("/chief", 2)
    assert (low.json["type"], low.json["data"]["budget"]) == ("budget_low", "steps")
    events = [one["to"] for one in await subscribers.stack.events(task_id) if one["type"] == "input_escalated"]
    assert events == [names["chief"]]
    assert len(receiver.at("/desk")) == len(receiver.at("/safety")) == 1
