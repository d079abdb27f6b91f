"""The requests of callers while things break: tasks, effects, model faults, subagents, fires, storms, cancels,
duplicates."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from domain.ids import new_id
from tests.behaviour.conversations.talk import async_task, chain, gather, say
from tests.faults.caller import GIVE_UP, Accepted, Caller
from tests.support.stack import steps

MODEL_FAULTS = (
    *("429 retry_after=0.3", "500", "529", "cut after=2", "drop after=1"),
    *("overloaded_midstream after=1", "api_midstream after=2", "slow delay=0.2"),
)
Action = Callable[[Caller, Random, Path], Awaitable[None]]
MARK = f"errand-fault-bench-{os.getpid()}"  # in every command, so that one that outlives its task is found


async def messages(caller: Caller, random: Random, folder: Path) -> None:
    await caller.submit("messages", f"[[script:say words=20 delay={random.uniform(0.02, 0.1):.2f}]]")


async def effects(caller: Caller, random: Random, folder: Path) -> None:
    """Effects outside the platform: only the ledger file shows what really happened."""
    ledger = folder / new_id()
    given = {"path": str(ledger), "seconds": round(random.uniform(0, 1), 2)}
    command = {"command": f"sleep 0.3; echo {MARK}"}
    task = await caller.submit("effects", steps([("ledger_once", given)], [("ledger_again", given), ("bash", command)]))
    task.ledger = ledger


async def model_faults(caller: Caller, random: Random, folder: Path) -> None:
    fault = random.choice(MODEL_FAULTS)
    await caller.submit("model_faults", f"[[script:say words=12 delay=0.02]] [[fault:{fault}]]")


async def travels(caller: Caller, random: Random, folder: Path) -> None:
    """A vendor has an outage in the middle of a task; the other takes over, and sometimes gives it back."""
    away = f"[[fault:529 retry_after=0 times=always at={random.randint(1, 3)} model=claude-sonnet-4-5]]"
    back = "[[fault:529 retry_after=0 times=always at=4 model=gpt-4o]]" if random.random() < 0.5 else ""
    ledger = folder / new_id()
    given = {"path": str(ledger), "seconds": round(random.uniform(0, 0.5), 2)}
    calls = steps([("ledger_once", given)], [("ledger_again", given)], [("list_files", {"path": "."})])
    task = await caller.submit("travels", f"{calls} {away} {back}", agent="fm_traveller")
    task.ledger = ledger


async def subagents(caller: Caller, random: Random, folder: Path) -> None:
    """Three background subagents; then several concurrent fires, one of which gets all outcomes."""
    key, count = new_id(), 3
    calls = [async_task(say(f"Found {n}.", delay=round(random.uniform(0, 0.3), 2))) for n in range(count)]
    body = {"agent": "lead", "input": f"{chain(calls, last='Off.')}\nref {new_id()}", "transport": "stream"}
    answer = await caller.ask("POST", "/conversations/run", body, key)
    assert answer.status_code == 202, answer.text
    talk = Accepted(answer.json()["conversation_id"], "subagents", children=count)
    caller.accepted.append(talk)
    for _ in range(int(GIVE_UP / 0.3)):
        mailbox = (await caller.ask("GET", f"/conversations/{talk.id}/mailbox")).json()
        if mailbox["pending_count"] == count:
            break
        await asyncio.sleep(0.3)
    await caller.ended(talk.id)
    fires = [caller.ask("POST", f"/conversations/{talk.id}/fire", {}, new_id()) for _ in range(3)]
    for fired in await asyncio.gather(*fires):
        assert fired.status_code in (202, 409, 422), fired.text
        if fired.status_code == 202:
            caller.accepted.append(Accepted(fired.json()["session_id"], "fire"))


async def storm(caller: Caller, random: Random, folder: Path) -> None:
    """Many messages to a running task: each is read once, whether now or by the session after."""
    task = await caller.submit("storm", '[[script:count n=6 tool=bash input={"command": "sleep 0.3"}]]', agent="lead")

    async def steer(number: int) -> None:
        await asyncio.sleep(random.uniform(0, 1.5))
        text = f"word {new_id()}"
        body = {"conversation_id": task.id, "input": text, "transport": "stream", "if_busy": "steer"}
        answer = await caller.ask("POST", "/conversations/run", body, new_id())
        assert answer.status_code == 202, answer.text
        task.messages.append(text)

    await asyncio.gather(*(steer(number) for number in range(8)))


async def cancels(caller: Caller, random: Random, folder: Path) -> None:
    """Cancel at any time, and twice: an accepted cancel is final."""
    task = await caller.submit("cancels", "[[script:say words=20 delay=0.05]]")
    await asyncio.sleep(random.uniform(0, 2))
    answers = [caller.ask("POST", f"/tasks/{task.id}/cancel", {"reason": "enough"}, new_id()) for _ in range(2)]
    codes = {answer.status_code for answer in await asyncio.gather(*answers)}
    assert codes <= {200, 202}, codes
    # without a 202 the cancel came too late, or its first answer was lost
    task.ends = frozenset({"cancelled"} if 202 in codes else {"completed", "cancelled"})


async def duplicates(caller: Caller, random: Random, folder: Path) -> None:
    key, body = new_id(), {"agent": "tester", "input": f"[[script:say text=once]]\nref {new_id()}"}
    answers = await asyncio.gather(*(caller.ask("POST", "/tasks", body, key) for _ in range(8)))
    ids = {answer.json()["task_id"] for answer in answers if answer.status_code == 202}
    assert len(ids) == 1 and {answer.status_code for answer in answers} <= {202, 409}, answers
    caller.accepted.append(Accepted(ids.pop(), "duplicates"))


async def gathers(caller: Caller, random: Random, folder: Path) -> None:
    """Subagents whose outcomes the task itself fetches: each is in the result of `gather` once."""
    found = [f"found-{new_id()}" for _ in range(3)]
    parts = [async_task(say(text, delay=round(random.uniform(0, 0.2), 2))) for text in found]
    work = chain(parts, [gather("$0", "$1", "$2", timeout_s=100)], last="All there.")
    task = await caller.submit("gathers", work, agent="lead")
    task.results = found


async def workspaces(caller: Caller, random: Random, folder: Path) -> None:
    """Each step may run on another worker, and must find the files that earlier steps wrote."""
    contents = {f"part-{number}.txt": f"text-{new_id()}" for number in range(3)}
    writes = [[("write_file", {"path": path, "content": text})] for path, text in contents.items()]
    reads = [("read_file", {"path": path}) for path in contents]
    task = await caller.submit("workspaces", steps(*writes, reads))
    task.results = list(contents.values())


async def duets(caller: Caller, random: Random, folder: Path) -> None:
    """Two sides take turns; a call of one side has an outside effect, and the other side ends the session."""
    task = await caller.submit("duets", f"Draft {random.randrange(10**6)}.", agent="fm_duet")
    task.replies = ["fm one.", "fm two.", "fm three.", "fm four."]


async def handoffs(caller: Caller, random: Random, folder: Path) -> None:
    """Another agent takes over; its prompt starts a subagent before its first step."""
    task = await caller.submit("handoffs", chain([("fm_heir", {})], last="Taken over."), agent="fm_desk")
    task.started = ["fm_scout"]
    task.replies = ["Taken over."]


async def immediates(caller: Caller, random: Random, folder: Path) -> None:
    """Immediate subagents: each starts once, before its parent's first model step."""
    task = await caller.submit("immediates", say("All clear."), agent="fm_lead")
    task.started = ["fm_guard", "fm_scout"]


async def variables(caller: Caller, random: Random, folder: Path) -> None:
    """A subagent that waits for its variables starts once, however often they are given, and reports once."""
    task = await caller.submit("variables", chain([("fm_keyed", {"message": "Go."})], last="Off."), agent="fm_giver")
    await caller.ended(task.id)
    listed = (await caller.ask("GET", f"/variable-requests?conversation_id={task.id}")).json()["items"]
    assert len(listed) == 1, listed
    path = f"/threads/{task.id}/variables/{listed[0]['request_id']}"
    body = {"variables": {"KEY": f"fault-bench-{task.id}"}}
    answers = await asyncio.gather(*(caller.ask("POST", path, body) for _ in range(3)))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    task.started, task.reports = ["fm_keyed"], 1


async def instances(caller: Caller, random: Random, folder: Path) -> None:
    """Messages to an instance of a subagent, which is running or idle when they arrive: it reads each once."""
    texts = [f"news-{new_id()}" for _ in range(3)]
    create = ("subagent_create", {"agent": "fm_scout", "name": "ann", "message": texts[0]})
    sends = [("subagent_message", {"target": "ann", "message": text}) for text in texts[1:]]
    work = chain([create], *[[one] for one in sends], last="Off.")
    task = await caller.submit("instances", work, agent=random.choice(["fm_waiting", "fm_sending"]))
    task.sent = texts


async def raises(caller: Caller, random: Random, folder: Path) -> None:
    """Higher limits of steps and time, acknowledged while the task runs: the task uses them, whatever faults happen."""
    work = '[[script:count n=12 tool=bash input={"command": "sleep 0.4"}]]'
    task = await caller.submit("raises", work, config={"max_steps": 10, "ttl": 100_000})
    await asyncio.sleep(random.uniform(0, 1))
    raised = await caller.ask("POST", f"/tasks/{task.id}/budget", {"max_steps": 30, "ttl": 300_000})
    assert raised.status_code in (200, 409), raised.text
    if raised.status_code == 409:  # the request came too late, or its first answer was lost
        task.ends = frozenset({"completed", "failed"})


async def removals(caller: Caller, random: Random, folder: Path) -> None:
    """An agent is removed while its tasks run: they keep their version, and no later task can start with the agent."""
    name = f"gone-{new_id()}"
    definition = {"name": name, "description": "Soon gone.", "prompt": "Work.", "tools": ["bash"]}
    assert (await caller.ask("PUT", f"/agents/{name}", definition)).status_code in (200, 201)
    for _ in range(2):
        await caller.submit("removals", '[[script:count n=3 tool=bash input={"command": "sleep 0.3"}]]', agent=name)
    removed = await caller.ask("DELETE", f"/agents/{name}")
    assert removed.status_code in (204, 404), removed.text  # 404: the answer to the first request was lost
    late = await caller.ask("POST", "/tasks", {"agent": name, "input": "Work."}, new_id())
    assert late.status_code == 422, late.text


FLAT: tuple[Action, ...] = (messages, effects, model_faults, cancels, duplicates)  # one session each
KINDS: tuple[Action, ...] = (*FLAT, subagents, storm, gathers)


async def run(
    caller: Caller, random: Random, folder: Path, rounds: int, at_once: int, kinds: tuple[Action, ...] = KINDS
) -> None:
    """Every kind of work in every round, this many at a time, in an order that the seed determines."""
    todo = [kind for _ in range(rounds) for kind in kinds]
    random.shuffle(todo)
    room = asyncio.Semaphore(at_once)

    async def do(kind: Action, seed: float) -> None:
        async with room:
            await kind(caller, Random(seed), folder)

    async with asyncio.TaskGroup() as group:
        for kind in todo:
            group.create_task(do(kind, random.random()))
