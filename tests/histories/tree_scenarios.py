"""Scenarios of more than one task: subagents, turns, fires, renewals, reruns and deliveries.

Each returns the id of the workflow to record.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from domain.agents.hook import HookPoint
from tests.behaviour.conversations.talk import Gate, Talk, agent, async_task, chain, gather, say, task
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.schedules.clock import create, until
from tests.support.git_server import git, make_repository
from tests.support.stack import Stack, calls, eventually, of_type, steps

DOWN = "503 Service Unavailable"
FAN = 12
SIDES = {"side_a": {"label": "Worker"}, "side_b": {"handler": "hand_in"}, "expose_as_tool": True}


async def _every_delegation(stack: Stack) -> str:
    """Delegations inline, blocking, and in the background with `gather`; one of them fails."""
    inside = ("delegate", {"agent": "helper", "prompt": calls(("list_files", {"path": "."}))})
    lost = task(say(), agent="lost")
    opening = chain([async_task(say("One."))], [inside, task(say("Two.")), lost], [gather("$0")], last="All done.")
    return f"session/{(await Talk.done(stack, opening)).id}"


async def _promoted(stack: Stack) -> str:
    gate = Gate()
    talk = await Talk.begin(stack, chain([task(gate.then("In the background."))]))
    child = await talk.child()
    await stack.seen(child.id, "tool_called")
    (await stack.http.post(f"/tasks/{child.id}/promote")).raise_for_status()
    await talk.ended(talk.id)
    gate.open()
    await talk.posted(1)
    return f"session/{talk.id}"


async def _turns(stack: Stack) -> str:
    """A conversation: subagents, a message to the running session, a fire, one more turn."""
    gate = Gate()
    talk = await Talk.begin(stack, chain([async_task(say("One.")), async_task(say("Two."))], [gate.call], last="Off."))
    await stack.seen(talk.id, "tool_called", tool="wait_for")
    await talk.say("Look at this too.", if_busy="steer")
    gate.open()
    await talk.posted(2)
    await talk.rest()
    await talk.fire()
    await talk.ended(await talk.say(chain([task(say("Three."))], last="Done.")))
    return await _closed(talk)


async def _fan_out(stack: Stack) -> str:
    talk = await Talk.done(stack, chain([async_task(say(f"Part {n}.")) for n in range(FAN)], last="Off."))
    await talk.posted(FAN)
    await talk.fire()
    return await _closed(talk)


async def _woken(stack: Stack) -> str:
    """An outcome wakes its parent, which has ended by then."""
    gate = Gate()
    talk = await Talk.done(stack, chain([async_task(gate.then("Late."))], last="Off."), "waker")
    gate.open()
    await eventually(lambda: _sessions(talk, 3), what="the parent was woken")
    await talk.rest()
    return await _closed(talk)


async def _read_apart(stack: Stack) -> str:
    """A report and a failure on work of one thread of a channel, while a session answers in another thread."""
    tools = ["start_background_agent", "send_agent_message", "wait_for"]
    await stack.define(agent("digger", mode="subagent", tools=tools), agent("front", "digger", tools=tools))
    (await stack.http.put("/connectors/front", json={"kind": "webhook", "agent": "front"})).raise_for_status()

    async def write(text: str, thread: str) -> str:
        body = {"text": text, "thread": thread}
        answer = await stack.http.post("/channels/front/room/ann/messages", json=body)
        session_id: str = answer.raise_for_status().json()["session_id"]
        return session_id

    gate, busy = Gate(), Gate()
    report = chain([gate.call], [("send_agent_message", {"message": say("The report.")})], last="Done.")
    broken = f"{chain([gate.call], last='x')} [[fault:400 at=2 times=always]]"
    started = [("start_background_agent", {"prompt": prompt}) for prompt in (report, broken)]
    talk = Talk(stack, await write(chain(started, last="Off."), "t1"))
    await talk.ended(talk.id)
    await stack.seen(await write(busy.then("Answered."), "t2"), "tool_called", tool="wait_for")
    last = await write(say("Queued."), "t3")
    gate.open()

    async def waiting() -> bool:
        unread = "SELECT count(*) FROM inbox WHERE thread_id = $1 AND taken_by IS NULL"
        return bool(await stack.pool.fetchval(unread, talk.id) == 2)

    await eventually(waiting, what="both wait")
    busy.open()
    await eventually(lambda: _sessions(talk, 7), what="each was read by a session of its own")
    await talk.ended(last)
    await talk.rest()
    return await _closed(talk)


async def _sessions(talk: Talk, count: int) -> bool:
    return len(await talk.sessions()) >= count


async def _closed(talk: Talk) -> str:
    name = f"conversation/{talk.id}"
    await talk.stack.client.get_workflow_handle(name).result()
    return name


async def _handed_over(stack: Stack) -> str:
    """Two handoffs beside another call in one reply: the first handoff counts."""
    await stack.define(agent("heir", expose_as_tool=True), agent("heiress", expose_as_tool=True))
    definition = agent("giver", handoffs=["heir", "heiress"])
    (await stack.http.put("/agents/giver", json=definition)).raise_for_status()
    calls = [("heir", {"message": "yours"}), ("list_files", {"path": "."}), ("heiress", {})]
    talk = await Talk.done(stack, chain(calls, [("list_files", {"path": "."})], last="Done."), "giver")
    return f"session/{talk.id}"


async def _deferred(stack: Stack) -> str:
    """A subagent starts after its parent has ended, when its variables are given."""
    variables = {"KEY": {"description": "a key", "kind": "secret", "scoped": True}}
    await stack.define(
        agent("keyed", variables=variables, **SIDES),
        agent("keyed_lead", subagent_tools=[{"name": "keyed"}]),
    )
    talk = await Talk.done(stack, chain([("keyed", {"message": say("Fine.")})], last="Off."), "keyed_lead")
    [event] = of_type(await stack.events(talk.id), "variables_required")
    path = f"/threads/{talk.id}/variables/{event['request_id']}"
    (await stack.http.post(path, json={"variables": {"KEY": "a-secret"}})).raise_for_status()
    await eventually(lambda: _sessions(talk, 3), what="the parent was woken")
    await talk.rest()
    return await _closed(talk)


async def _resumable(stack: Stack, name: str) -> None:
    await stack.define(
        agent(name, **SIDES),
        agent(f"{name}_lead", subagent_tools=[{"name": name, "blocking": False, "resumable": True}]),
    )


async def _terminated(stack: Stack) -> str:
    """The thread of a resumable subagent is terminated while its session runs."""
    await _resumable(stack, "stayer")
    gate = Gate()
    create = ("subagent_create", {"agent": "stayer", "name": "ann", "message": gate.then("Never.")})
    talk = await Talk.done(stack, chain([create], last="Off."), "stayer_lead")
    child = await talk.child()
    await stack.seen(child.id, "tool_called", tool="wait_for")
    (await stack.http.post(f"/threads/{child.thread_id}/terminate")).raise_for_status()
    await talk.ended(child.id)
    await talk.rest()
    return f"session/{child.id}"


async def _instances(stack: Stack) -> str:
    """A conversation in which a resumable subagent is created, sent a message, and reports each time."""
    await _resumable(stack, "keeper")
    gate = Gate()
    create = ("subagent_create", {"agent": "keeper", "name": "ann", "message": gate.then("One.")})
    talk = await Talk.done(stack, chain([create], last="Off."), "keeper_lead")
    gate.open()  # the parent has ended by then
    await eventually(lambda: _sessions(talk, 3), what="the parent was woken")
    await talk.rest()
    again = Gate()
    message = ("subagent_message", {"target": "ann", "message": again.then("Two.")})
    await talk.ended(await talk.say(chain([message], last="Off.")))
    again.open()
    await eventually(lambda: _sessions(talk, 6), what="the parent was woken again")
    await talk.rest()
    return await _closed(talk)


async def _hooked_tree(stack: Stack) -> str:
    """Hooks of a lead that starts a subagent, and of an agent that works inline; a tool is queued."""
    hooks = [f"notes.{point}" for point in HookPoint]
    for definition in (
        agent("hooked_child", **SIDES),
        agent("hooked_inline", hooks=hooks, mode="subagent"),
        agent("hooked_lead", "hooked_inline", hooks=hooks, subagent_tools=[{"name": "hooked_child"}]),
    ):
        definition["tools"] = [*definition["tools"], "defer"]
        (await stack.http.put(f"/agents/{definition['name']}", json=definition)).raise_for_status()
    inline = ("delegate", {"agent": "hooked_inline", "prompt": calls(("list_files", {"path": "."}))})
    started = ("hooked_child", {"message": say("Found.")})
    script = chain([inline], [started], [("defer", {"tool": "list_files"})], last="Off.")
    return f"session/{(await Talk.done(stack, script, 'hooked_lead')).id}"


async def _rerun(stack: Stack) -> str:
    """A rerun with recorded answers, under a rule that stops one of its calls."""
    script = steps([("bash", {"command": "rm x"})], [("list_files", {"path": "."})])
    original = (await stack.run(script))["task_id"]
    body = {"recorded": True, "permissions": [{"permission": "bash", "pattern": "rm *", "action": "deny"}]}
    answer = await stack.http.post(f"/tasks/{original}/rerun", json=body)
    answer.raise_for_status()
    task_id: str = answer.json()["task_id"]
    await stack.wait(task_id)
    return f"session/{task_id}"


async def _attempts(stack: Stack) -> str:
    """Two attempts at a task, and a message that is read after the choice."""
    with TemporaryDirectory() as folder:
        make_repository(Path(folder) / "shop", {"app.py": "print('one')\n"})
        git(Path(folder) / "shop", "bundle", "create", "-q", "../sent.bundle", "HEAD")
        sent = await stack.http.post("/files?name=r.bundle", content=(Path(folder) / "sent.bundle").read_bytes())
    work = steps([("bash", {"command": "echo x > x.txt; sleep 2"})])
    task_id = await stack.submit(work, config={"repository": sent.json()["file_id"], "attempts": 2})
    await stack.seen(task_id, "subagent_started")
    (await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "And then?"})).raise_for_status()
    await stack.wait(task_id)
    await stack.session(task_id).result()
    return f"session/{task_id}"


async def _delivered(stack: Stack) -> str:
    """A delivery with three attempts: the second after a pause, the third at once by a resend."""
    subscribers = Subscribers(stack)
    async with http_receiver() as receiver:
        receiver.answers["/"] = [DOWN, DOWN, "204 No Content"]
        made = await subscribers.subscribe(f"{receiver.url}/", events=["task_completed"])
        await stack.run(say("Said."))
        pending = await subscribers.delivery(made, attempts=2)
        (await stack.http.post(f"/deliveries/{pending['id']}/resend")).raise_for_status()
        await subscribers.delivery(made, status="delivered")
        await subscribers.workflow(pending).result()
        (await stack.http.delete(f"/subscriptions/{made['id']}")).raise_for_status()
    return f"delivery/{pending['id']}"


async def _ticked(stack: Stack) -> str:
    """A tick at its due time, which starts a session."""
    made = await create(stack, every=1_000)
    [run, *_] = await until(stack, made["id"], lambda listed: bool(listed))
    (await stack.http.delete(f"/schedules/{made['id']}")).raise_for_status()
    at = datetime.fromisoformat(run["scheduled_at"]).astimezone(UTC)
    return f"schedule/{made['id']}-{at:%Y-%m-%dT%H:%M:%SZ}"


TREE_SCENARIOS: dict[str, Callable[[Stack], Awaitable[str]]] = {
    "every_delegation": _every_delegation,
    "promoted": _promoted,
    "turns": _turns,
    "fan_out": _fan_out,
    "woken": _woken,
    "read_apart": _read_apart,
    "handed_over": _handed_over,
    "deferred": _deferred,
    "terminated": _terminated,
    "instances": _instances,
    "hooked_tree": _hooked_tree,
    "rerun": _rerun,
    "attempts": _attempts,
    "notification_delivery": _delivered,
    "tick": _ticked,
}


async def renewed(stack: Stack) -> str:
    """A conversation whose history becomes long while something waits in it: it continues as new twice."""
    gate = Gate()
    talk = await Talk.done(stack, chain([async_task(gate.then("Late."))], last="Off."))
    for turn in range(4):
        await talk.ended(await talk.say(chain([async_task(say(f"Part {turn}{n}.")) for n in range(3)], last="Off.")))
    gate.open()
    await talk.posted(13)
    await talk.fire()
    return await _closed(talk)
