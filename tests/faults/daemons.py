"""Background work under faults: messages from channels, ticks, signed events, runs of missions."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

from domain.ids import new_id
from domain.sessions.session import TERMINAL
from tests.behaviour.notifications.receivers import http_receiver
from tests.faults.caller import GIVE_UP, Accepted, Caller
from tests.support import signing

COUNT = 3
MESSAGES = 6  # of each person
SECRET = "a-secret-of-the-fault-bench"
SAY = "[[script:say words=5 delay=0.05]]"


async def messages(caller: Caller, random: Random, folder: Path) -> None:
    """Messages of two people, each sent twice at the same time: answered in order, each answer under one id."""
    name = f"c-{new_id()}"
    async with http_receiver() as receiver:
        body = {"kind": "webhook", "agent": "tester", "target": f"{receiver.url}/in"}
        assert (await caller.ask("PUT", f"/connectors/{name}", body)).status_code == 200

        async def say(user: str, number: int) -> tuple[str, str]:
            message = {"text": SAY, "message_id": f"{user}-{number}"}
            answer = await caller.ask("POST", f"/channels/{name}/room/{user}/messages", message)
            assert answer.status_code == 202, answer.text
            return answer.json()["conversation_id"], answer.json()["session_id"]

        async def person(user: str) -> None:
            found = [await asyncio.gather(say(user, number), say(user, number)) for number in range(MESSAGES)]
            assert all(first == second for first, second in found), found
            [conversation_id] = {conversation_id for (conversation_id, _), _ in found}
            await _ended(caller, conversation_id, "messages", MESSAGES)
            caller.accepted[-1].order = [session_id for (_, session_id), _ in found]

        await asyncio.gather(person("ann"), person("bob"))
        sent: dict[str, set[str]] = {}
        for _ in range(int(GIVE_UP / 0.5)):
            for request in receiver.requests:
                sent.setdefault(request.json["data"]["in_reply_to"], set()).add(request.headers["webhook-id"])
            if len(sent) == 2 * MESSAGES:
                break
            await asyncio.sleep(0.5)
        assert len(sent) == 2 * MESSAGES and all(len(ids) == 1 for ids in sent.values()), sent


async def ticks(caller: Caller, random: Random, folder: Path) -> None:
    """A range of ticks, requested twice: each tick has one row and one session."""
    task = {"agent": "tester", "input": SAY}
    made = await _made(caller, "/schedules", {"cron": "0 * * * *", "overlap": "queue", "task": task})
    span = {"start": "2026-01-05T00:30:00Z", "end": f"2026-01-05T0{COUNT}:30:00Z"}
    for _ in range(2):
        answer = await caller.ask("POST", f"/schedules/{made['id']}/backfill", span)
        assert answer.status_code == 202, answer.text
    await _ended(caller, made["conversation_id"], "ticks", COUNT)
    rows = (await caller.ask("GET", f"/schedules/{made['id']}/runs")).json()["items"]
    assert [row["status"] for row in rows] == ["fired"] * COUNT, rows


async def events(caller: Caller, random: Random, folder: Path) -> None:
    """Signed events, each sent three times at the same time: each becomes one message."""
    name = f"t-{new_id()}"
    body: dict[str, Any] = {"signature": "github", "secret": SECRET, "task": {"agent": "tester", "input": SAY}}
    assert (await caller.ask("PUT", f"/triggers/{name}", body)).status_code == 200

    async def send(number: int) -> str:
        raw = json.dumps({"n": number}).encode()
        headers = {"Content-Type": "application/json", **signing.github(SECRET, raw)}
        answer = await caller.ask("POST", f"/triggers/{name}", content=raw, headers=headers)
        assert answer.status_code == 202, answer.text
        conversation_id: str = answer.json()["conversation_id"]
        return conversation_id

    found = set(await asyncio.gather(*(send(number) for number in list(range(COUNT)) * 3)))
    assert len(found) == 1, found
    await _ended(caller, found.pop(), "events", COUNT)


async def missions(caller: Caller, random: Random, folder: Path) -> None:
    """A mission runs until its budget of runs is used up, and ends once."""
    task, bounds = {"agent": "tester", "input": SAY}, {"total": {"runs": COUNT}}
    made = await _made(caller, "/schedules", {"cron": "0 0 1 1 *", "task": task, "mission": bounds})
    for _ in range(int(GIVE_UP)):
        shown = (await caller.ask("GET", f"/schedules/{made['id']}")).json()["mission"]
        if shown["status"] != "working":
            break
        listed = await _sessions(caller, made["conversation_id"])
        if all(one["status"] in TERMINAL for one in listed):
            assert (await caller.ask("POST", f"/schedules/{made['id']}/trigger")).status_code in (202, 409)
        await asyncio.sleep(1)
    assert (shown["status"], shown["total"]["runs"]) == ("out_of_budget", COUNT), shown
    await _ended(caller, made["conversation_id"], "missions", COUNT)


DAEMONS = (messages, ticks, events, missions)


async def _made(caller: Caller, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create something once: a 409 means that the first request succeeded and its answer was lost."""
    name = f"d-{new_id()}"
    answer = await caller.ask("POST", path, {"name": name, **body})
    assert answer.status_code in (201, 409), answer.text
    found: dict[str, Any] = (await caller.ask("GET", f"{path}?name={name}")).json()["items"][0]
    return found


async def _sessions(caller: Caller, conversation_id: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await caller.ask("GET", f"/tasks?conversation_id={conversation_id}")).json()[
        "items"
    ]
    return listed


async def _ended(caller: Caller, conversation_id: str, kind: str, count: int) -> None:
    """Wait until the conversation has this many sessions and all have ended; the checker examines them later."""
    for _ in range(int(GIVE_UP / 0.5)):
        listed = await _sessions(caller, conversation_id)
        if len(listed) >= count and all(one["status"] in TERMINAL for one in listed):
            break
        await asyncio.sleep(0.5)
    assert len(listed) == count, f"{kind}: {len(listed)} sessions of {count} in {conversation_id}"
    caller.accepted += [Accepted(one["task_id"], kind) for one in listed]
