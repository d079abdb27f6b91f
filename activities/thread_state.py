"""The state object for tools and hooks: the variables and files of their thread, its status, and its parent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from temporalio import activity

from activities.attempt import call_attempt
from activities.delegation.messages import Subagents
from activities.tools.support.paths import Workspace
from activities.tools.tool import clean
from activities.workspaces import Workspaces
from domain.agents.definition import AgentDefinition, GivenVariables
from domain.agents.variables import (
    find_unnamed,
    graph_variables,
    hidden_names,
    open_secrets,
    resolve_values,
    seal_for_thread,
    tool_values,
)
from domain.events import EventRow, Progress
from domain.messages import QueuedTool
from domain.redaction import Redactor
from domain.sealing import KeyRing
from domain.sessions.session import AgentRef, SessionRef
from store import agents as stored_agents
from store import sessions, threads
from store import variables as stored_variables
from store.agents import load_view
from store.database import Pool
from store.workspaces import Fence

MOST_STATUS = 500  # characters
VARIABLES = TypeAdapter(GivenVariables)


class Variables(dict[str, str]):
    """Values by name, secrets in plain text. Its repr shows only the names."""

    def __repr__(self) -> str:
        return f"Variables({', '.join(sorted(self))})"


class ThreadFiles:
    """The files of the thread's workspace. Paths are relative to it, and no link is followed."""

    def __init__(self, folder: Path) -> None:
        self._workspace = Workspace(folder)

    async def read(self, path: str, limit: int = 20_971_520) -> bytes:
        return await asyncio.to_thread(self._workspace.read, path, limit)

    async def write(self, path: str, content: bytes) -> None:
        await asyncio.to_thread(self._workspace.write, path, content)


class ThreadState:
    """The access of a user's tool or hook to its thread. Every operation is safe to repeat: the n-th message of a
    repeated call is the same message."""

    def __init__(
        self,
        pool: Pool,
        subagents: Subagents,
        ref: SessionRef,
        key: str,
        folder: Path,
        variables: Mapping[str, str],
        redactor: Redactor,
        keep: Callable[[], Awaitable[object]],
        store: Callable[[Mapping[str, str]], Awaitable[Iterable[str]]],
    ) -> None:
        self._pool = pool
        self._subagents = subagents
        self._ref = ref
        self._key = key  # of the call or the hook; equal in every attempt
        self._by = call_attempt() if activity.in_activity() else None
        self._acts = 0
        self._keep = keep  # saves changed files of the workspace to the store
        self._store = store  # stores values, and returns the names of those that no model may see
        self.variables = Variables(variables)
        self.files = ThreadFiles(folder)
        self.redactor = redactor  # removes values that must not reach a model, an event or a log

    async def notify_parent(self, content: str, *, needs_answer: bool = False, attachments: Sequence[str] = ()) -> bool:
        """Send a message to the thread that started this one, with copies of these files of the workspace. It begins a
        turn there. False if it could not be sent, because there is no parent or no such file."""
        text = clean(self.redactor.text(content)).strip()
        if not text:
            raise ValueError("a message needs a text")
        if attachments:
            await self._keep()  # the files may have just been written
        _, failed = await self._subagents.notify_parent(self._ref, text, needs_answer, self._next(), attachments)
        return not failed

    async def queue_tool(self, name: str, **arguments: object) -> bool:
        """Queue a call of one of the agent's tools on this thread. It runs before the next model step, or in a turn of
        its own if none is running. The rules apply as to a call of the model, which is shown the result. False if it
        cannot be queued."""
        return await self._subagents.queue_tool(self._ref, QueuedTool(name=name, arguments=arguments), self._next())

    async def set_variables(self, **values: str) -> None:
        """Set variables of this thread and of the active threads below it that inherit them. The agents' declarations
        decide whether a value is secret; a variable that no agent names is a secret for the tools of this thread alone.
        A repetition sets the same values again."""
        try:
            given = VARIABLES.validate_python(values, strict=True)
        except ValidationError as error:  # its text contains the values and would be logged
            names = sorted({str(one["loc"][0]) for one in error.errors(include_input=False) if one["loc"]})
            raise ValueError(f"these variables have no valid name or value: {', '.join(names)}") from None
        hidden = await self._store(given)
        self.variables = Variables({**self.variables, **given})
        self.redactor.add(given[name] for name in hidden)

    async def set_status(self, status: str) -> None:
        """Publish a status, in the session's progress and in the registry of the thread that started it."""
        text = " ".join(clean(self.redactor.text(status)).split())[:MOST_STATUS]
        if not text:
            raise ValueError("a status needs a text")
        event = EventRow.of(self._ref, Progress(message=text), by=self._by)
        await sessions.set_status_text(self._pool, self._ref, text, self._next(), [event])

    def _next(self) -> str:
        self._acts += 1
        return f"{self._key}#{self._acts}"


@dataclass
class ThreadStates:
    _pool: Pool
    _keys: KeyRing
    _subagents: Subagents
    _workspaces: Workspaces

    async def load(
        self,
        ref: SessionRef,
        agents: Sequence[AgentRef],
        stored: Mapping[str, str],
        workspace_id: str,
        folder: Path,
        key: str,
        fence: Fence | None = None,
    ) -> ThreadState:
        """`agents`: from the session's own to the one whose tool or hook runs, which receives its own variables.
        `stored`: the session's values as its row holds them. `fence`: of the call, which may be over."""
        definitions = [await load_view(self._pool, agent) for agent in agents]
        values: Mapping[str, str] = {}
        redactor = Redactor()
        if stored or any(one.env or one.all_variables for one in definitions):  # most agents have no variables
            plain = {**stored, **open_secrets(self._keys, ref.tenant, stored)}
            hidden = hidden_names(definitions, stored)
            known = [
                value for one in definitions for name, value in resolve_values(one, plain).items() if name in hidden
            ]
            values = tool_values(definitions[-1], plain)
            redactor = Redactor([*known, *find_unnamed(plain).values()])
        return ThreadState(
            self._pool,
            self._subagents,
            ref,
            key,
            folder,
            values,
            redactor,
            keep=partial(self._workspaces.keep, ref.tenant, workspace_id, fence),
            store=partial(self._store, ref, definitions[-1]),
        )

    async def _store(self, ref: SessionRef, agent: AgentDefinition, values: Mapping[str, str]) -> list[str]:
        """Set values for the session's thread. Secrets, and values that no agent of the graph names, are encrypted."""
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        thread = await threads.get(self._pool, ref.tenant, session.thread_id) if session else None
        assert thread is not None
        known = graph_variables(await stored_agents.find_reachable(self._pool, ref.tenant, agent))
        sealed = seal_for_thread(self._keys, ref.tenant, values, known)
        by = f"session {ref.session_id}"
        await stored_variables.set_for_thread(self._pool, ref.tenant, thread, sealed, by)
        return [name for name in values if name not in known or known[name].hidden]
