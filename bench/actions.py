"""What Temporal Cloud would bill: `python -m bench.actions` counts the actions of a session, of a step and of a second
in a model call, and what a session stores in both databases.

Actions of a session are read from its history. Heartbeats are not there: the server's own counter, which meters as the
Cloud does, has them.
"""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass

import click
import httpx2
from temporalio.api.enums.v1 import EventType

from bench import cpu
from bench.history import size
from bench.lab import Lab, open_lab
from bench.scratch import count_stored_bytes
from domain.ids import session_workflow_id

STEPS = 10
SESSIONS = 10
PER_DELTA = 3  # words of the offline model's text in one delta

USD_PER_ACTION = 50 / 1_000_000  # the first five million of a month; more are cheaper
USD_PER_RETAINED_BYTE_HOUR = 0.00105 / 1e9
RETAINED_HOURS = 720

_HEARTBEATS = re.compile(r'^action\{[^}]*action_type="[^"]*[Hh]eartbeat[^"]*"[^}]*\} ([0-9.e+]+)$', re.MULTILINE)
_BILLED = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "start",
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: "activity",
    EventType.EVENT_TYPE_TIMER_STARTED: "timer",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signal",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "update",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attribute",
    EventType.EVENT_TYPE_MARKER_RECORDED: "local activities",  # those of one workflow task are one action
}


@dataclass(frozen=True)
class CloudFigures:
    session: dict[str, int]  # actions of a session without any step but its answer
    step: dict[str, float]  # actions of a step with a queued tool, without heartbeats
    heartbeats: dict[int, float]  # of a model call of this many seconds
    history: int  # bytes in Temporal of a session of STEPS steps with a kilobyte each
    database: int  # bytes in PostgreSQL, of the same
    database_step: float

    def actions(self, seconds: int) -> float:
        """Actions of a step whose model call takes this long."""
        return sum(self.step.values()) + self.heartbeats[seconds]

    def usd(self, seconds: int) -> float:
        """Dollars for a thousand of such steps."""
        return self.actions(seconds) * 1_000 * USD_PER_ACTION


async def measure(lab: Lab, lengths: tuple[int, ...], sessions: int = SESSIONS) -> CloudFigures:
    nothing = await _billed(lab, await lab.ours.count(0))
    some = await _billed(lab, await lab.ours.count(STEPS))
    step = {name: (some[name] - nothing[name]) / STEPS for name in some if some[name] != nothing[name]}
    heartbeats = {seconds: await _heartbeats(lab, seconds) for seconds in lengths}
    await lab.ours.look(STEPS)
    database = lab.database_url.rpartition("/")[2]
    before = await count_stored_bytes(lab.pool, database)
    tasks = [await lab.ours.look(STEPS) for _ in range(sessions)]
    middle = await count_stored_bytes(lab.pool, database)
    for _ in range(sessions):
        await lab.ours.look(2 * STEPS)
    after = await count_stored_bytes(lab.pool, database)
    return CloudFigures(
        session=dict(nothing),
        step=step,
        heartbeats=heartbeats,
        history=await size(lab.temporal, session_workflow_id(tasks[0])),
        database=(middle - before) // sessions,
        database_step=(after - middle - (middle - before)) / sessions / STEPS,
    )


async def _billed(lab: Lab, task_id: str) -> Counter[str]:
    handle = lab.temporal.get_workflow_handle(session_workflow_id(task_id))
    counted: Counter[str] = Counter()
    last = ""
    async for event in handle.fetch_history_events():
        name = _BILLED.get(event.event_type, "")
        if name != "local activities" or last != name:
            counted[name] += 1
        last = name
    del counted[""]
    return counted


async def _heartbeats(lab: Lab, seconds: int) -> float:
    """Of one model call that takes this long."""
    before = await _beats(lab)
    task_id = await lab.ours.submit(f"[[script:say words={PER_DELTA * seconds} delay=1]]", 2)
    await lab.ours.await_closing(task_id)
    return await _beats(lab) - before


async def _beats(lab: Lab) -> float:
    async with httpx2.AsyncClient(timeout=5) as http:
        for port in cpu.listening(lab.pids["temporal"]):
            try:
                answer = await http.get(f"http://127.0.0.1:{port}/metrics")
            except httpx2.HTTPError:  # it speaks another protocol there
                continue
            if answer.is_success and "action{" in answer.text:
                return sum(float(count) for count in _HEARTBEATS.findall(answer.text))
    raise RuntimeError("Temporal's metrics were not found")


def as_text(found: CloudFigures) -> str:
    lines = [f"a session without steps: {_listed(found.session)}", f"a step with a queued tool: {_listed(found.step)}"]
    for seconds in found.heartbeats:
        lines.append(
            f"a model call of {seconds} s: {found.heartbeats[seconds]:g} heartbeats; a step with it: "
            f"{found.actions(seconds):g} actions, {found.usd(seconds):.2f} USD for 1,000 of them"
        )
    kept = found.history * RETAINED_HOURS * USD_PER_RETAINED_BYTE_HOUR * 1_000
    return "\n".join(
        [
            *lines,
            f"a session of {STEPS} steps stores {found.history:,} bytes in Temporal ({kept:.4f} USD for 1,000 of them "
            f"kept {RETAINED_HOURS} hours) and {found.database:,} bytes in PostgreSQL, each further step "
            f"{found.database_step:,.0f}",
        ]
    )


def _listed(counts: dict[str, int] | dict[str, float]) -> str:
    return f"{sum(counts.values()):g} actions ({', '.join(f'{count:g} {name}' for name, count in counts.items())})"


@click.command()
@click.option("--seconds", "lengths", type=click.IntRange(min=1), multiple=True, default=(1, 60), show_default=True)
@click.option("--beat", default=1.0, show_default=True, help="Seconds between heartbeats.")
def main(lengths: tuple[int, ...], beat: float) -> None:
    """Count actions and stored bytes, with model calls of so many seconds."""

    async def run() -> CloudFigures:
        async with open_lab(cancel_heartbeat_seconds=beat) as lab:
            return await measure(lab, lengths)

    click.echo(as_text(asyncio.run(run())))


if __name__ == "__main__":
    main()
