"""Reruns and other features: a recorded rerun sends no notifications, and removed content cannot be rerun."""

from tests.behaviour.debugging.test_rerun import reran, rerun
from tests.behaviour.notifications.conftest import receiver, subscribers
from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.record.conftest import swept
from tests.support.stack import Stack

__all__ = ["receiver", "subscribers"]


async def test_recorded_rerun_notifies_nobody(subscribers: Subscribers, receiver: Receiver) -> None:
    stack = subscribers.stack
    subscription = await subscribers.subscribe(receiver.url, events=["task_completed"], every_task=True)
    task = await stack.run("[[script:say]]", config={"notify": [subscription["name"]]})
    tried = await reran(stack, task["task_id"], recorded=True)
    again = await reran(stack, task["task_id"])
    assert tried["status"] == again["status"] == "completed"
    ours = {one["task_id"] for one in (task, tried, again)}  # other tests may have left tasks that end meanwhile
    about = [one["task_id"] for one in await subscribers.deliveries(subscription) if one["task_id"] in ours]
    assert sorted(about) == sorted([task["task_id"], again["task_id"]])


async def test_removed_content_is_gone_for_traces_and_reruns(stack: Stack) -> None:
    task = await stack.run("[[script:say]]", config={"retention": 1_000})
    again = await reran(stack, task["task_id"], prompt="A prompt of its own.")
    await swept(stack, again["task_id"])
    for task_id in (again["task_id"], (await swept(stack, task["task_id"]))["task_id"]):
        assert (await stack.http.get(f"/tasks/{task_id}/trace")).status_code == 410
        refused = await rerun(stack, task_id)
        assert (refused.status_code, refused.json()["type"]) == (410, "urn:errand:problem:content-removed")
    assert (await stack.http.get(f"/tasks/{again['task_id']}/agent")).json()["prompt"] == "(removed)"
    kept = "SELECT count(*) FROM agent_versions WHERE definition LIKE '%A prompt of its own%'"
    assert await stack.pool.fetchval(kept) == 0
