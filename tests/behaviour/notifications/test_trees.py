"""A task's notification settings also apply to its subagents and to the sessions that its outcomes wake."""

import pytest

from tests.behaviour.conversations.talk import AGENTS, Gate, Talk, async_task, chain, steer
from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.support.stack import eventually


@pytest.mark.proves("F-13")
async def test_subagent_takes_follow_ups_and_its_end_reaches_parent_and_webhook(
    subscribers: Subscribers, receiver: Receiver
) -> None:
    """The follow-up extends the running session, which is neither interrupted nor started again. Its end wakes the
    parent, and is sent to the only webhook that subscribes to the ends of subagents."""
    for definition in AGENTS:
        assert (await subscribers.stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success
    everything = await subscribers.subscribe(f"{receiver.url}/tree", every_task=False, subagents=True)
    roots = await subscribers.subscribe(f"{receiver.url}/roots", every_task=False)
    assert (everything["subagents"], roots["subagents"]) == (True, False)
    gate = Gate()
    steps = chain([async_task(chain([gate.call], last="First part."))], [steer("$0", "Also the rest.")])
    notify = [everything["name"], roots["name"]]
    talk = await Talk.begin(subscribers.stack, steps, "waker", config={"notify": notify})
    child = await talk.child()
    await talk.signalled(child.id, "message", 1)
    gate.open()
    first, second, *_ = await receiver.got("/tree", 2)  # the woken parent ends, too
    root, *_ = await receiver.got("/roots")
    ends = {one.json["data"]["task_id"]: one.json for one in (first, second)}
    assert set(ends) == {child.id, talk.id} and root.json["data"]["task_id"] == talk.id
    assert "subagent" not in ends[talk.id]["data"]
    data = ends[child.id]["data"]
    assert ends[child.id]["type"] == "task_completed" and data["conversation_id"] == talk.id
    assert (data["subagent"], data["spawned_by"], data["reason"]) == ("helper", talk.id, "goal_reached")
    assert (await talk.prompts(child.id))[1:] == ["Also the rest."] and len(await talk.children()) == 1

    async def woken() -> bool:
        return await talk.delivered_sources() == [child.id]

    await eventually(woken, what="the parent learns of it without a fire")
    assert child.id not in [one["task_id"] for one in await subscribers.deliveries(roots)]
