"""Helpers for tests of conversations: agents that delegate, their sessions, the mailbox and fire."""

import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from errand.models import MailboxMessage
from temporalio.service import RPCError

from domain.ids import new_id
from offline.scripts.marked import BETWEEN
from store import mailbox, sessions
from store.sessions import SessionRow
from tests.support.launch import TESTER
from tests.support.stack import Stack, eventually

T = TypeVar("T")
_HEAD = re.compile(r"^(?:Async subagent '[^']*'|## \S+ \[\w+\]) \(session: (\w+)\)", re.MULTILINE)
Call = tuple[str, dict[str, Any]]
TOOLS = [*TESTER["tools"], "wait_for"]
ALLOWED = {"permission": "delegation", "action": "allow"}


def agent(name: str, *subagents: Any, **more: Any) -> dict[str, Any]:
    fields = {"name": name, "description": f"The {name} of the tests.", "prompt": "You are tested.", "tools": TOOLS}
    return fields | {"subagents": list(subagents)} | more


AGENTS = [
    agent("helper", mode="subagent"),
    agent("scribe", mode="subagent", tools=["list_files", "update_plan"], description="Writes things down."),
    agent("boss"),
    agent("lost", mode="subagent", model="no-such-model"),
    agent("lead", "helper", "scribe", "boss", "lost"),
    agent("waker", {"agent": "helper", "delivery": "wake"}, "scribe"),
    agent("quiet", {"agent": "helper", "delivery": "explicit"}),
    agent(
        "strict", "helper", "scribe", permissions=[{"permission": "delegation", "pattern": "scribe", "action": "deny"}]
    ),
    agent("third", "helper", permissions=[ALLOWED], max_depth=3),
    agent("second", "third", "helper", permissions=[ALLOWED], max_depth=3),
    agent("first", "second", "helper", max_depth=3),
    agent("tight", "second", max_depth=2),
    agent("inquirer", mode="subagent", may_ask=True, permissions=[{"permission": "bash", "action": "ask"}]),
    agent("patron", {"agent": "inquirer", "may_ask": True}),
    agent("boss", mode="primary"),
]


def chain(*steps: list[Call], text: str = "", last: str = "", delay: float = 0) -> str:
    """Build the marker for replies that call these tools step by step; `$n` is the session id in the n-th result."""
    replies = [[{"name": name, "input": given} for name, given in step] for step in steps]
    more = f" text={json.dumps(text)}" if text else ""
    more += f" last={json.dumps(last)}" if last else ""
    return f"[[script:chain json={json.dumps(replies)}{more} delay={delay}]]"


def say(text: str = "Said.", **options: Any) -> str:
    return f"[[script:say text={json.dumps(text)}{''.join(f' {name}={value}' for name, value in options.items())}]]"


def slow(seconds: float, pieces: int = 10) -> str:
    """A script whose answer takes about this long."""
    return f"[[script:say words={pieces} delay={seconds / pieces}]]"


HANG = "[[script:say words=30]] [[fault:hang after=6 times=always]]"  # streams a few words, then hangs
MUTE = "[[script:say words=30]] [[fault:hang times=always]]"
BROKEN = "[[script:say]] [[fault:400 times=always]]"  # fails without output


def async_delegate(name: str, prompt: str, **more: Any) -> Call:
    return "async_delegate", {"name": name, "prompt": prompt, **more}


def async_task(prompt: str, agent: str = "helper", description: str = "a small part") -> Call:
    return "async_task", {"agent": agent, "prompt": prompt, "description": description}


def task(prompt: str, agent: str = "helper", description: str = "a small part", **more: Any) -> Call:
    return "task", {"agent": agent, "prompt": prompt, "description": description, **more}


def gather(*ids: str, **more: Any) -> Call:
    return "gather", {"task_ids": list(ids), **more}


def steer(task_id: str, message: str) -> Call:
    return "steer_subagent", {"task_id": task_id, "message": message}


def result_of(task_id: str) -> Call:
    return "async_task_result", {"task_id": task_id}


async def asked(stack: Stack, text: str) -> list[dict[str, Any]]:
    """Return the requests to the model that contain this text, oldest first."""
    async with httpx2.AsyncClient(base_url=stack.model_url, timeout=20) as http:
        answer = await http.get("/_requests", headers={"x-api-key": "k"}, params={"contains": text})
    return [request.get("body", request) for request in answer.json()["requests"]]


class Gate:
    """A file for which sessions wait until the test creates it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir()) / f"errand-gate-{new_id()}"

    @property
    def call(self) -> Call:
        return "wait_for", {"path": str(self.path)}

    def then(self, text: str = "Through.") -> str:
        """A prompt that waits for the gate and then says this text."""
        return chain([self.call], last=text)

    def open(self) -> None:
        self.path.touch()


@dataclass
class Scenes:
    """The scenes of one module. All of them run concurrently as soon as its first test needs one."""

    at_once: int = 6
    _listed: list[Callable[[Stack], Awaitable[Any]]] = field(default_factory=list)
    _running: dict[Any, "asyncio.Task[Any]"] = field(default_factory=dict)

    def __call__(self, scene: Callable[[Stack], Awaitable[T]]) -> Callable[[Stack], Awaitable[T]]:
        async def played(stack: Stack) -> T:
            if not self._running:
                room = asyncio.Semaphore(self.at_once)
                self._running = {one: asyncio.create_task(self._run(room, one, stack)) for one in self._listed}
            outcome: T = await self._running[scene]
            return outcome

        self._listed.append(scene)
        return played

    @staticmethod
    async def _run(room: asyncio.Semaphore, scene: Callable[[Stack], Awaitable[Any]], stack: Stack) -> Any:
        async with room:
            return await scene(stack)


class Talk:
    """One conversation, identified by the id of its root session."""

    def __init__(self, stack: Stack, conversation_id: str) -> None:
        self.stack = stack
        self.id = conversation_id

    @classmethod
    async def begin(cls, stack: Stack, input: str, agent: str = "lead", **more: Any) -> "Talk":
        body = {"agent": agent, "input": f"{input}\nref {new_id()}", "transport": "stream", **more}
        answer = await stack.http.post("/conversations/run", json=body)
        assert answer.status_code == 202, answer.text
        return cls(stack, answer.json()["conversation_id"])

    @classmethod
    async def done(cls, stack: Stack, input: str, agent: str = "lead", **more: Any) -> "Talk":
        """Start a new conversation and wait until its first session has ended."""
        talk = await cls.begin(stack, input, agent, **more)
        await talk.ended(talk.id)
        return talk

    async def say(self, input: str, **more: Any) -> str:
        """Send a further turn; return the id of its session."""
        body = {"conversation_id": self.id, "input": input, "transport": "stream", **more}
        answer = await self.stack.http.post("/conversations/run", json=body)
        assert answer.status_code == 202, answer.text
        session_id: str = answer.json()["session_id"]
        return session_id

    async def try_fire(self, input: str | None = None, **more: Any) -> httpx2.Response:
        body = {**more, **({"input": input} if input else {})}
        return await self.stack.http.post(f"/conversations/{self.id}/fire", json=body)

    async def fire(self, input: str | None = None, **more: Any) -> SessionRow:
        """Fire the mailbox and wait until the new session has ended."""
        answer = await self.try_fire(input, **more)
        assert answer.status_code == 202, answer.text
        return await self.ended(answer.json()["session_id"])

    async def shown(self, path: str = "", **params: Any) -> Any:
        answer = await self.stack.http.get(f"/conversations/{self.id}{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def output(self, session_id: str | None = None) -> str:
        row = await self.ended(session_id or self.id)
        assert row.output is not None, (row.status, row.error)
        return row.output

    async def results(self, session_id: str | None = None) -> list[str]:
        """Return the results of the calls of a chain."""
        return (await self.output(session_id)).split(BETWEEN)

    async def sessions(self) -> list[SessionRow]:
        """Return all sessions, oldest first."""
        rows = await sessions.find(self.stack.pool, "default", conversation_id=self.id, limit=500)
        # not by their ids: those of sessions that messages open derive from the ids of the messages' senders
        rows.sort(key=lambda short: (short.created_at, short.id))
        return [row for short in rows if (row := await self.session(short.id))]

    async def session(self, session_id: str) -> SessionRow:
        row = await sessions.get(self.stack.pool, "default", session_id)
        assert row is not None
        return row

    async def children(self, of: str | None = None) -> list[SessionRow]:
        return [row for row in await self.sessions() if row.spawned_by and of in (None, row.spawned_by)]

    async def mail(self, *, pending_only: bool = False) -> list[MailboxMessage]:
        return await mailbox.of_conversation(self.stack.pool, "default", self.id, pending_only=pending_only)

    async def posted(self, count: int) -> list[MailboxMessage]:
        """Return the whole mailbox as soon as it has this many outcomes."""

        async def look() -> list[MailboxMessage] | None:
            mail = await self.mail()
            return mail if len(mail) >= count else None

        return await eventually(look, what=f"{count} outcomes in {self.id}")

    async def say_when_idle(self, input: str) -> str:
        """Send a further turn as soon as no other session runs, such as one that reads a report."""
        body = {"conversation_id": self.id, "input": input, "transport": "stream"}

        async def look() -> str | None:
            answer = await self.stack.http.post("/conversations/run", json=body)
            assert answer.status_code in (202, 409), answer.text
            return str(answer.json()["session_id"]) if answer.status_code == 202 else None

        return await eventually(look, what=f"a turn in {self.id}")

    async def rest(self) -> None:
        """Wait until no session is live."""

        async def look() -> bool:
            return not [row for row in await self.sessions() if not row.status.terminal]

        await eventually(look, what=f"{self.id} rests")

    async def ended(self, session_id: str) -> SessionRow:
        async def look() -> SessionRow | None:
            row = await sessions.get(self.stack.pool, "default", session_id)
            return row if row and row.status.terminal else None

        return await eventually(look, what=f"{session_id} ended")

    async def child(self, place: int = 0) -> SessionRow:
        """Return the session of the n-th subagent, once it exists."""

        async def look() -> SessionRow | None:
            rows = await self.children()
            return rows[place] if len(rows) > place else None

        return await eventually(look, what=f"a subagent of {self.id}")

    async def speaking(self, session_id: str) -> None:
        await self.stack.seen(session_id, "message_delta")

    async def reword(self, session_id: str, old: str, new: str) -> None:
        """Change stored messages of a session. The product never does this: it only appends messages."""
        for update in (
            "UPDATE messages SET body = replace(body, $2, $3) WHERE session_id = $1 AND kind = 'assistant'",
            "UPDATE sessions SET output = replace(output, $2, $3) WHERE id = $1",
        ):
            await self.stack.pool.execute(update, session_id, old, new)

    async def prompts(self, session_id: str) -> list[str]:
        """Return the messages that entered this session's context from outside, oldest first."""
        return [
            "\n\n".join(part["text"] for part in node["body"]["parts"])
            for node in await self.stack.nodes(session_id)
            if node["kind"] == "user"
        ]

    async def delivered_sources(self) -> list[str]:
        """Return the sources of all outcomes that reached a session of the conversation. A session that ended before it
        said anything has returned its outcomes: nothing continues from it."""
        rows = [row for row in await self.sessions() if row.committed]
        prompts = [prompt for row in rows for prompt in await self.prompts(row.id)]
        return [source for prompt in prompts for source in _HEAD.findall(prompt)]

    async def signalled(self, session_id: str, signal: str, count: int) -> None:
        """Wait until the conversation has sent a session this many signals of this name."""

        async def look() -> bool:
            try:
                history = await self.stack.session(session_id).fetch_history()
            except RPCError:
                return False
            names = [event.workflow_execution_signaled_event_attributes.signal_name for event in history.events]
            return names.count(signal) >= count

        await eventually(look, what=f"{count} {signal} for {session_id}")
