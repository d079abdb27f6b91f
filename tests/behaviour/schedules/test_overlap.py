"""Overlap and context: what a tick does while the previous run is not over, and which history a run sees."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from domain.schedules import tick_key
from store import schedule_runs
from tests.behaviour.conversations.talk import Gate, asked
from tests.behaviour.schedules.clock import create, fired, runs, tick, trigger
from tests.support.stack import Stack

pytestmark = pytest.mark.together


async def waiting(stack: Stack, gate: Gate, overlap: str, context: str = "continue") -> tuple[dict[str, Any], str]:
    """Create a schedule whose first run waits at a gate."""
    made = await create(stack, gate.then("Through."), agent="boss", overlap=overlap, context=context)
    first = await trigger(stack, made["id"])
    await stack.seen(first["session_id"], "tool_called")
    return made, first["session_id"]


async def test_steer_gives_the_message_to_the_running_session(team: Stack) -> None:
    gate = Gate()
    made, first = await waiting(team, gate, "steer")
    second = await trigger(team, made["id"])
    assert (second["status"], second["session_id"]) == ("steered", first)
    gate.open()
    assert (await team.wait(first))["status"] == "completed"
    inbox = await team.pool.fetch("SELECT author FROM inbox WHERE taken_by = $1 ORDER BY number", first)
    assert [row["author"] for row in inbox] == [f"schedule {made['name']}"] * 2
    third = await trigger(team, made["id"])
    assert third["status"] == "fired"  # nothing was running any more


@pytest.mark.proves("S0-B32")
async def test_each_context_has_exactly_the_history_it_should(team: Stack) -> None:
    """Reported of another system: isolation is ignored. Here an isolated run must see nothing of earlier runs."""
    busy = {"skip": "skipped", "queue": "fired", "steer": "steered"}
    for overlap, status in busy.items():
        gate = Gate()
        made, first = await waiting(team, gate, overlap)
        assert (await trigger(team, made["id"]))["status"] == status
        gate.open()
        await team.wait(first)
        assert len(await runs(team, made["id"])) == 2  # each firing is recorded once
    seen: dict[str, list[int]] = {}
    for context in ("continue", "fork", "isolated"):
        secret = f"secret-{context}-{id(seen)}"
        made = await create(team, f"[[script:say text=done]] {secret}", context=context)
        for _ in range(3):
            await fired(team, made["id"])
        assert [run["status"] for run in await runs(team, made["id"])] == ["fired"] * 3
        requests = await asked(team, secret)
        seen[context] = [len(request["messages"]) for request in requests]
    assert seen == {"continue": [1, 3, 5], "fork": [1, 3, 3], "isolated": [1, 1, 1]}
    # cron with a zone; paused, resumed and triggered by hand; each due time once; a refused message is recorded
    made = await create(team, cron="30 7 * * *", timezone="Europe/Berlin", overlap="queue")
    path, zone = f"/schedules/{made['id']}", ZoneInfo("Europe/Berlin")
    assert {datetime.fromisoformat(one).astimezone(zone).strftime("%H:%M") for one in made["next_times"]} == {"07:30"}
    assert (await team.http.post(f"{path}/pause")).json()["next_times"] == []
    assert (await fired(team, made["id"]))["status"] == "completed"
    assert len((await team.http.post(f"{path}/resume")).json()["next_times"]) == 5
    call = tick(made, datetime.fromisoformat(made["next_times"][0]))
    decided = [await schedule_runs.fire(team.pool, call, "hello") for _ in range(2)]
    assert len({one[0].session_id for one in decided if one}) == 1
    keys = "SELECT key FROM address_messages WHERE conversation_id = $1 ORDER BY created_at"
    written = [row["key"] for row in await team.pool.fetch(keys, made["conversation_id"])]
    assert len(written) == 2 and written[1] == f"{made['id']}:{tick_key(call.at)}"
    await team.http.post(f"/conversations/{made['conversation_id']}/terminate")
    refused = await trigger(team, made["id"])
    assert (refused["status"], refused["manual"]) == ("failed", True)
    assert refused["reason"] == "the conversation was terminated"
