"""Invariants that must hold once all work has ended, each as a count of violations; all counts must be zero."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import asyncpg
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from domain.events import Recorded
from store import events
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Talk, asked
from tests.faults.caller import Accepted, Caller
from tests.faults.workload import MARK
from tests.support.launch import MODEL_KEY
from tests.support.secrets import secrets_found
from tests.support.stack import PATIENCE, Stack, eventually
from workflows.replay import histories, replay

REPLAYED = 60  # at most so many histories of each kind; a run may have thousands


@dataclass
class Violations:
    lost: int = 0  # tasks that were accepted and have not ended
    wrong: int = 0  # tasks that ended in a way they must not
    double: int = 0  # tasks without exactly one terminal event
    disagree: int = 0  # tasks whose row, stream and workflow show different ends
    gaps: int = 0  # streams or readers with a missing or repeated event number or step
    outcomes: int = 0  # outcomes of subagents that were not delivered exactly once
    messages: int = 0  # messages to a task that were not read exactly once, or are twice in a request to the model
    order: int = 0  # addresses whose messages were answered in another order than they were acknowledged
    effects: int = 0  # effects of a `once` tool that happened twice, or are recorded as done and did not happen
    orphans: int = 0  # commands that outlived their task
    secrets: int = 0
    replay: int = 0  # histories that do not replay
    foreign: int = 0  # tasks that another tenant can see
    named: list[str] = field(default_factory=list)  # each violation with its place

    @property
    def total(self) -> int:
        return sum(value for value in asdict(self).values() if isinstance(value, int))

    def merge(self, other: "Violations") -> None:
        for kind, value in asdict(other).items():
            setattr(self, kind, getattr(self, kind) + value)

    def add(self, kind: str, where: str, count: int = 1) -> None:
        if count:
            setattr(self, kind, getattr(self, kind) + count)
            self.named.append(f"{kind}: {where}")


async def check(stack: Stack, caller: Caller, *, forgets: bool = False) -> Violations:
    """`forgets`: workflows were deleted on purpose, so Temporal may not know a task; what it does know must agree."""
    found = Violations()
    await eventually(lambda: _reachable(stack), what="the database answers")
    for task in caller.accepted:
        record = await caller.ended(task.id)
        if record is None:
            found.add("lost", f"{task.kind} {task.id}")
            continue
        if record["status"] not in task.ends:
            found.add("wrong", f"{task.kind} {task.id} {record['status']} ({record['reason']}): {record.get('error')}")
        await _ends(stack, task, record["status"], found, forgets)
    for task in caller.accepted:
        if task.results:
            await _results(stack, task, found)
        if task.children or task.messages:
            await _deliveries(stack, task, found)
        if task.order:
            await _order(stack, task, found)
        if task.replies or task.sent or task.started is not None:
            await _graph(stack, task, found)
        if task.ledger:
            await _effects(stack, task, task.ledger, found)
    await asyncio.sleep(1)
    orphans = await asyncio.to_thread(_orphans)
    found.add("orphans", "; ".join(orphans), len(orphans))
    leaks = await secrets_found(stack, [MODEL_KEY.encode()])
    found.add("secrets", ", ".join(leaks), len(leaks))
    await _replays(stack, caller, found, forgets)
    return found


async def _reachable(stack: Stack) -> bool:
    try:
        await stack.pool.expire_connections()
        await stack.pool.fetchval("SELECT 1")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return True


async def _ends(stack: Stack, task: Accepted, status: str, found: Violations, forgets: bool) -> None:
    tenant = await stack.pool.fetchval("SELECT tenant FROM sessions WHERE id = $1", task.id)
    log = await events.of_session(stack.pool, tenant, task.id, 0, 1_000_000)
    # a minute after the end the pieces of texts are deleted, which leaves gaps
    if await stack.pool.fetchval("SELECT count(*) FROM ended_streams WHERE session_id = $1", task.id):
        found.add("gaps", f"events of {task.id}", int(_numbers(log) != list(range(1, len(log) + 1))))
    ends = [event.type for event in log if event.type in ("task_completed", "task_failed", "task_cancelled")]
    if len(ends) != 1:
        found.add("double", f"{task.id}: {ends}")
    if task.steps:
        numbers = [event.data.get("step") for event in log]
        first = [log[numbers.index(step)].type for step in range(1, task.steps + 1) if step in numbers]
        began = [event.data["step"] for event in log if event.type == "step_started"]
        right = began == list(range(1, task.steps + 1)) and set(first) == {"step_started"}
        found.add("gaps", f"steps of {task.kind} {task.id}: {began}, {first}", int(not right))
    try:
        async with asyncio.timeout(PATIENCE):
            outcome = await stack.session(task.id).result()
    except TimeoutError:
        found.add("lost", f"the workflow of {task.id}, which is {status} in its row")
        return
    except (RPCError, WorkflowFailureError):
        if not forgets:
            raise
        outcome = {"status": status}
    if ends != [f"task_{status}"] or outcome["status"] != status:
        found.add("disagree", f"{task.id}: row {status}, events {ends}, Temporal {outcome['status']}")


def _numbers(log: list[Recorded]) -> list[int]:
    return [event.seq for event in log]


async def _deliveries(stack: Stack, task: Accepted, found: Violations) -> None:
    talk = Talk(stack, task.id)

    await _await_words(talk, talk.sessions, task.messages)
    try:
        await talk.rest()
    except AssertionError as error:
        found.add("lost", str(error))
        return
    if task.children:
        delivered = Counter(await talk.delivered_sources())
        spawned = {row.id for row in await talk.children()}
        missing = task.children - len(set(delivered) & spawned)
        found.add(
            "outcomes",
            f"{task.id}: {dict(delivered)} of {sorted(spawned)}",
            missing + sum(delivered.values()) - len(delivered),
        )
    prompts = [prompt for row in await talk.sessions() for prompt in await talk.prompts(row.id)]
    for word in task.messages:
        times = sum(prompt.count(word) for prompt in prompts)
        found.add("messages", f"{task.id}: {word!r} {times} times", int(times != 1))
        given = [  # without replies, which may quote a message
            [message for message in request["messages"] if message["role"] == "user"]
            for request in await asked(stack, word)
        ]
        shown = [str(messages).count(word) for messages in given]
        found.add("messages", f"{task.id}: {word!r} {shown} times in requests", int(max(shown, default=0) > 1))


async def _await_words(talk: Talk, readers: Callable[[], Awaitable[list[SessionRow]]], words: list[str]) -> None:
    """A session that has ended may have left a message to another one, which is not there yet."""

    async def read() -> bool:
        prompts = [prompt for row in await readers() for prompt in await talk.prompts(row.id)]
        return all(any(word in prompt for prompt in prompts) for word in words)

    with contextlib.suppress(AssertionError):  # then its count says so
        await eventually(read, what=f"messages to {talk.id}")


async def _order(stack: Stack, task: Accepted, found: Violations) -> None:
    rows = await stack.pool.fetch(
        "SELECT id FROM sessions WHERE id = ANY($1::text[]) ORDER BY started_at, id", task.order
    )
    began = [row["id"] for row in rows]
    found.add("order", f"{task.kind} {task.id}: {began}, not {task.order}", int(began != task.order))


async def _results(stack: Stack, task: Accepted, found: Violations) -> None:
    nodes = [node for node in await stack.nodes(task.id) if node["kind"] == "tool_results"]
    texts = [one["text"] for node in nodes for one in node["body"]["results"]]
    for wanted in task.results:
        times = sum(wanted in text for text in texts)
        found.add("outcomes", f"{task.kind} {task.id}: {wanted!r} in {times} results", int(times != 1))


async def _graph(stack: Stack, task: Accepted, found: Violations) -> None:
    """Check turns of two sides, handoffs, subagents that the platform starts, and messages to subagents."""
    talk = Talk(stack, task.id)
    if task.started is not None:
        try:
            await eventually(lambda: _reported(talk, task), what=f"{task.kind} {task.id}: subagents began and reported")
        except AssertionError as error:
            found.add("lost", str(error))
            return
        agents = sorted(row.agent for row in await talk.children())
        found.add("outcomes", f"{task.kind} {task.id}: started {agents}", int(agents != task.started))
        bad = [row.id for row in await talk.children() if row.status != "completed"]
        found.add("wrong", f"{task.kind} {task.id}: subagents {bad}", len(bad))
    if task.sent:
        await _await_words(talk, talk.children, task.sent)
        await talk.rest()
    read = [prompt for row in await talk.children() for prompt in await talk.prompts(row.id)] if task.sent else []
    for text in task.sent:
        times = sum(prompt.count(text) for prompt in read)
        found.add("messages", f"{task.kind} {task.id}: {text!r} {times} times", int(times != 1))
    said = [one["text"] for one in await stack.events(task.id) if one["type"] == "message"]
    found.add("messages", f"{task.kind} {task.id}: {said}", int(bool(task.replies) and said != task.replies))


async def _reported(talk: Talk, task: Accepted) -> bool:
    await talk.rest()
    sent = [one for row in await talk.sessions() if row.thread_id == talk.id for one in await talk.prompts(row.id)]
    reports = [one for one in sent if one.startswith("Subagent (reference: ")]
    return len(await talk.children()) >= len(task.started or []) and len(reports) == task.reports


async def _effects(stack: Stack, task: Accepted, ledger: Path, found: Violations) -> None:
    written = await asyncio.to_thread(lambda: ledger.read_text().splitlines() if ledger.exists() else [])
    times = Counter(line.split()[0] for line in written)
    rows = await stack.pool.fetch("SELECT node, call_index, tool, state FROM tool_calls WHERE session_id = $1", task.id)
    for row in rows:
        key = f"{row['node']}:{row['call_index']}"
        if row["tool"] == "ledger_once" and times[key] > 1:
            found.add("effects", f"{key} done {times[key]} times")
        if row["tool"].startswith("ledger") and row["state"] == "ok" and not times[key]:
            found.add("effects", f"{key} is said to be done")


async def _replays(stack: Stack, caller: Caller, found: Violations, forgets: bool) -> None:
    for task in caller.accepted[:REPLAYED]:
        try:
            past = await histories(stack.client, task.id)
            if task.children or task.messages:
                past.append(await stack.client.get_workflow_handle(f"conversation/{task.id}").fetch_history())
        except RPCError:
            if not forgets:
                raise
            continue
        for history in past:
            verdict = await replay(history)
            found.add("replay", f"{verdict.workflow_id} at {verdict.event_id}: {verdict.reason}", int(not verdict.same))


def _orphans() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes()
            found += [line.decode(errors="replace").replace("\0", " ")] if MARK.encode() in line else []
    return found
