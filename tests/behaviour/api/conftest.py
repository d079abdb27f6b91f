"""A database and real servers for the API tests. Temporal does not run, on purpose: none of these tests needs it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import uvicorn

from activities.handlers.registry import HANDLERS
from activities.tools.registry import TOOLS
from agents.loader import check_agents
from agents.problems import Catalogue
from api.__main__ import HeadTimeoutProtocol
from api.app import create_app
from deploy.postgres import API_ROLE
from domain.agents.definition import AgentDefinition, Mode, VariableKind
from domain.agents.variables import NeededVariable
from domain.conversations.requests import SpawnRequest
from domain.conversations.subagents import DelegationTool
from domain.conversations.variable_request import VariableRequest
from domain.events import ENDED, Event, EventRow, MailboxUpdated
from domain.ids import new_id
from domain.sessions.new_session import NewSession, Supervision
from domain.sessions.session import AgentRef, DeliveryMode, Limits, Reason, SessionRef, Usage
from domain.sessions.writes import Acceptance, SessionEnding
from settings import ROOT, Settings
from store import agents, database, events, keys, sessions, variables
from store.database import Pool
from store.keys import Right
from store.migrate import migrate
from tests.support.launch import SECRET_KEYS, as_role, empty_database, free_port
from tests.support.stack import Stack

NO_TEMPORAL = f"127.0.0.1:{free_port()}"


class Server(uvicorn.Server):
    """A server in the event loop of the tests, which does not replace their signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest_asyncio.fixture(scope="session")
async def database_url(stack: Stack) -> AsyncIterator[str]:
    async with empty_database(stack.database_url) as url:
        yield url


@pytest_asyncio.fixture(scope="session")
async def pool(database_url: str) -> AsyncIterator[Pool]:
    await migrate(database_url)
    pool = await database.connect(database_url)
    shipped = (await asyncio.to_thread(check_agents, ROOT / "agents", Catalogue(TOOLS, HANDLERS))).agents
    for definition in shipped.values():
        await agents.put(pool, agents.SHIPPED, definition)
    helper = AgentDefinition(name="helper", description="Helps.", mode=Mode.SUBAGENT, prompt="Help.")
    await agents.put(pool, agents.SHIPPED, helper)
    yield pool
    pool.terminate()  # the database server may have been restarted by other tests


@pytest.fixture(scope="session")
def settings(stack: Stack, database_url: str) -> Settings:
    return Settings(
        database_url=as_role(stack, database_url, API_ROLE),
        poll_interval_ms=1_500,
        secret_keys=SECRET_KEYS,
        waiting_tasks=0,  # without Temporal all tasks of all these tests wait
    )


@contextlib.asynccontextmanager
async def serving(settings: Settings, temporal: str = NO_TEMPORAL) -> AsyncIterator[str]:
    """Run a real server on loopback, whichever address the settings name."""
    port = free_port()
    app = create_app(settings)
    server = Server(
        uvicorn.Config(app, port=port, log_config=None, lifespan="on", http=HeadTimeoutProtocol, ws="wsproto")
    )
    # the variable is read when the server starts; other tests must not see it
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEMPORAL_ADDRESS", temporal)
        running = asyncio.create_task(server.serve())
        while not server.started:
            assert not running.done()
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.services.listener.drain()  # a SIGTERM would do this
        server.should_exit = True
        await running


@pytest_asyncio.fixture(scope="session")
async def open_url(settings: Settings, pool: Pool) -> AsyncIterator[str]:
    async with serving(settings) as url:
        yield url


@pytest_asyncio.fixture(scope="session")
async def keyed_url(settings: Settings, pool: Pool) -> AsyncIterator[str]:
    """A server whose settings name every address, so that it requires a key."""
    async with serving(replace(settings, host="0.0.0.0", requests_per_minute=100_000)) as url:
        yield url


@pytest_asyncio.fixture(scope="session")
async def api(open_url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=open_url, timeout=20) as client:
        yield client


async def key_for(pool: Pool, tenant: str, *rights: Right, name: str = "test") -> dict[str, str]:
    _, secret = await keys.create(pool, tenant, name, rights or list(Right))
    return {"Authorization": f"Bearer {secret}"}


async def submitted(client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **spec: Any) -> str:
    answer = await client.post("/tasks", json={"agent": "assistant", "input": "Say hi.", **spec}, headers=headers)
    assert answer.status_code == 202, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def run(client: httpx2.AsyncClient, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    """Create a turn and return its handle: in a new conversation, unless the body names one."""
    new = {} if {"conversation_id", "fork_from"} & set(fields) else {"agent": "assistant"}
    body = {**new, "input": "Say hi.", "transport": "stream", **fields}
    answer = await client.post("/conversations/run", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    handle: dict[str, Any] = answer.json()
    return handle


def ref(task_id: str, tenant: str = "default", conversation_id: str | None = None) -> SessionRef:
    return SessionRef(tenant=tenant, session_id=task_id, conversation_id=conversation_id or task_id)


async def spawned(
    pool: Pool, parent_id: str, *, tenant: str = "default", name: str = "helper", blocking: bool = False
) -> str:
    """Create a subagent of a session, with the rows that its conversation would write."""
    parent = await sessions.get(pool, tenant, parent_id)
    assert parent is not None
    child_id = new_id()
    agent = AgentRef(owner="*", name="helper", version=1)
    child = NewSession.for_child(
        parent,
        agent,
        Supervision(),
        tool=DelegationTool.TASK if blocking else DelegationTool.ASYNC_TASK,
        name=name,
        label="Help",
        models=["m"],
        tools=[],
        limits=Limits(),
    )
    whose = ref(child_id, tenant, parent.conversation_id)
    session = child.place(whose, thread_id=child_id, depth=parent.depth + 1, delivery=DeliveryMode.HOLD)
    acceptance = Acceptance(
        session=session.model_copy(update={"title": "Help", "tools": None}),
        parent_thread_id=parent.thread_id,
        thread_name=child_id,
    )
    assert (await sessions.accept(pool, acceptance)).session is not None
    return child_id


async def record(pool: Pool, task_id: str, *seen: Event, tenant: str = "default") -> None:
    await events.append(pool, "", [EventRow.of(ref(task_id, tenant), event) for event in seen])


async def end(
    pool: Pool,
    task_id: str,
    *,
    tenant: str = "default",
    output: str | None = "Done.",
    reason: Reason = Reason.GOAL_REACHED,
    head: str | None = None,
) -> None:
    """End a session in the way its workflow would."""
    session = await sessions.get(pool, tenant, task_id)
    assert session is not None
    usage = Usage(llm_calls=2, tool_invocations=3, input_tokens=100, output_tokens=20, cost_usd=0.001)
    ended = ENDED[reason.status](status=reason.status, reason=reason, partial=False, usage=usage, output=output)
    ending = SessionEnding(
        ref=session.ref,
        reason=reason,
        output=output,
        head=head,
        usage=usage,
        step=2,
        version=9,
        events=[EventRow.of(session.ref, event) for event in (MailboxUpdated(), ended)],
    )
    await sessions.finish_session(pool, ending)


def problem(answer: httpx2.Response, status: int, type: str) -> dict[str, Any]:
    """Assert that the response has the form of every refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body: dict[str, Any] = json.loads(answer.text)
    assert body["type"] == f"urn:errand:problem:{type}"
    assert body["status"] == status
    assert body["title"] and body["detail"]
    assert body["instance"] == answer.headers["x-request-id"]
    return body


async def waiting_subagent(pool: Pool, tenant: str, task_id: str) -> str:
    """Create a subagent of the task that waits for a variable; return the id of the request."""
    need = NeededVariable(name="TOKEN", agent="x", description="x", kind=VariableKind.TEXT, missing=True)
    spawn = SpawnRequest(request_id="x", spawned_by=task_id, thread=task_id, children=[], max_depth=1, max_children=1)
    request = VariableRequest(
        id=new_id(),
        tenant=tenant,
        conversation_id=task_id,
        thread_id=task_id,
        session_id=task_id,
        agent="x",
        name="x",
        needs=[need],
        spawn=spawn,
    )
    return (await variables.open_request(pool, request)).id
