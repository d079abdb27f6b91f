"""Accepting a session: everything that can be refused is refused first, then one transaction makes it durable."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from api.auth import Call
from api.http.idempotency import IdempotencyKey, reused
from api.schemas.tasks import TaskAccepted
from api.services import Services
from api.submission import budgets as tree_rules
from api.submission import quotas, rules
from api.submission import start as starting
from api.submission import tools_and_variables as declared
from domain.agents.definition import AgentDefinition
from domain.errors import Conflict, TooMany
from domain.events import TaskSubmitted
from domain.ids import derive_id, new_id
from domain.sessions.session import AgentRef, Limits, SessionRef, Status
from domain.task import TaskSpec, opening, title_of
from store import accepting, events
from store.accepting import Accepted, NewMessage
from store.sessions import SessionRow
from store.workspaces import Manifest

TRY_AGAIN_SECONDS = 10  # until a live task may have ended


@dataclass(frozen=True)
class AcceptedResponse:
    body: str
    replayed: bool = False


@dataclass(frozen=True)
class SessionPlace:
    """Where a session goes: into a conversation of its own, or on with another one."""

    conversation_id: str | None = None  # None: its own
    workspace_id: str | None = None
    parent: SessionRow | None = None  # what it goes on from, if the thread itself does not say
    manifest: Manifest = field(default_factory=dict)  # what its workspace starts with
    transport: str = "stream"
    await_children: bool = True
    trigger: str = "api"


@dataclass(frozen=True)
class Checked:
    """A task that nothing speaks against."""

    spec: TaskSpec
    agent: AgentRef
    definition: AgentDefinition
    models: list[str]
    limits: Limits
    files: Manifest
    retention_ms: int
    columns: dict[str, Any]  # rules, tools and variables that follow from task and agent


@dataclass(frozen=True)
class Prepared:
    """A session as it will be written down."""

    ref: SessionRef
    document: dict[str, Any]
    inbox: list[NewMessage]
    files: Manifest
    tree: dict[str, Any] | None = None  # the budget of the whole conversation, if the task brings one

    @property
    def opening_text(self) -> str:
        text: str = json.loads(self.inbox[-1].parts)[0]["text"]
        return text


async def check(call: Call, spec: TaskSpec, *, schema: bool = True, variables: dict[str, str] | None = None) -> Checked:
    """Without `schema` the input is not the agent's first one, and need not have its form; `variables` are known."""
    settings, pool, tenant = call.settings, call.pool, call.tenant
    agent, definition = await rules.agent(pool, tenant, spec.agent)
    if schema:
        rules.check_input(definition, spec.input)
    models = rules.models(spec, definition, settings)
    limits = rules.limits(spec, definition, settings)
    rules.check_plan(spec, definition)
    await rules.check_tool_names(pool, spec, definition)
    rules.check_prices(limits, spec.config.tree, models, call.services.prices, call.settings)
    await rules.check_sandbox(pool, spec, definition, settings)
    await rules.check_notify(pool, tenant, spec.config, limits.ttl_ms)
    retention = spec.config.retention or settings.retention_ms
    files = await rules.manifest(pool, tenant, spec)
    await quotas.check_workspaces(call, files)
    columns = await declared.columns(pool, spec, definition, variables or {})
    return Checked(spec, agent, definition, models, limits, files, retention, columns)


def prepare(call: Call, task: Checked, place: SessionPlace, session_id: str | None = None) -> Prepared:
    now = datetime.now(UTC)
    session_id = session_id or new_id()
    own = place.conversation_id is None
    conversation_id = place.conversation_id or session_id
    document = row(task, title_of(task.spec), place, call.caller.created_by) | {
        "id": session_id,
        "conversation_id": conversation_id,
        "thread_id": conversation_id,
        "workspace_id": place.workspace_id or session_id,
        "parent_session_id": place.parent.id if place.parent else None,
        "base_head": place.parent.head if place.parent else None,
        "deadline": (now + timedelta(milliseconds=task.limits.ttl_ms)).isoformat(),
        "manifest": json.dumps({**place.manifest, **task.files} if own else {}),
        "created_at": now.isoformat(),
    }
    ref = SessionRef(tenant=call.tenant, session_id=session_id, conversation_id=conversation_id)
    inbox = _inbox(session_id, task.spec, sorted(task.files))
    tree = tree_rules.budget(task.spec.config, now, call.settings)
    return Prepared(ref, document, inbox, {} if own else task.files, tree)


def row(task: Checked, title: str, place: SessionPlace, created_by: str) -> dict[str, Any]:
    """The columns that follow from the task itself."""
    waits = task.spec.config.await_children
    return {
        "session_type": "agent",
        "spawned_by": None,
        "trigger": place.trigger,
        "agent_owner": task.agent.owner,
        "agent": task.agent.name,
        "agent_version": task.agent.version,
        "models": task.models,
        "title": title,
        "spec": spec_of(task.spec.model_dump(mode="json"), place),
        "limits": task.limits.model_dump_json(),
        "await_children": place.await_children if waits is None else waits,
        "created_by": created_by,
        "dry_run": task.spec.config.dry_run,
        "retention_ms": task.retention_ms,
        **task.columns,
    }


def spec_of(spec: dict[str, Any], place: SessionPlace) -> str:
    return json.dumps({**spec, "transport": place.transport})


async def accept(
    call: Call,
    prepared: Prepared,
    key: IdempotencyKey,
    response: str,
    by: Callable[..., Awaitable[Accepted]] = accepting.accept,
    **more: Any,
) -> Accepted:
    """The one transaction; what it refuses for everybody alike is refused here."""
    document = prepared.document
    submitted = TaskSubmitted(agent=document["agent"], agent_version=document["agent_version"], title=document["title"])
    if prepared.files:
        by = partial(accepting.accept_with_files, files=prepared.files)
    accepted = await by(
        call.pool,
        call.tenant,
        document,
        prepared.inbox,
        [events.to_row(prepared.ref, submitted)],
        key.record(response),
        live_quota(call),
        tree=prepared.tree,
        **more,
    )
    if accepted.reused:
        raise reused()
    if accepted.budget is not None:
        detail = f"The conversation's budget of {accepted.budget} is spent; a message may bring a new one."
        raise Conflict(detail, type="budget-spent", budget=accepted.budget)
    if accepted.quota is not None:
        detail = f"This key has {accepted.quota} live tasks, as many as it may have."
        raise TooMany(detail, type="live-tasks", retry_after=TRY_AGAIN_SECONDS)
    return accepted


def live_quota(call: Call) -> int | None:
    return call.settings.live_tasks if call.caller.key_id else None


async def submit(call: Call, spec: TaskSpec, key: IdempotencyKey) -> AcceptedResponse:
    """The handle of a task, once a GET on it works; Temporal may be away."""
    if (known := await key.answered(call.pool, call.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    task = await check(call, spec)
    previous = await rules.previous(call.pool, call.tenant, spec)
    prepared = prepare(call, task, SessionPlace(parent=previous))
    response = handle(call.services, prepared)
    accepted = await accept(call, prepared, key, response)
    if accepted.replay:
        return AcceptedResponse(accepted.replay["response"], replayed=True)
    await starting.start(call.services, prepared.ref)
    return AcceptedResponse(response)


def handle(services: Services, prepared: Prepared) -> str:
    return TaskAccepted(
        task_id=prepared.ref.session_id,
        status=Status.SUBMITTED,
        created_at=prepared.document["created_at"],
        poll_interval=services.settings.poll_interval_ms,
        conversation_id=prepared.ref.conversation_id,
    ).model_dump_json()


def _inbox(session_id: str, spec: TaskSpec, files: list[str]) -> list[NewMessage]:
    """Earlier messages in their order, then the one that opens the session."""
    words = [(message.role, message.content) for message in spec.context.history]
    words.append(("user", opening(spec, files)))
    return [
        NewMessage(
            id=derive_id(session_id, "inbox", place), kind=kind, parts=json.dumps([{"type": "text", "text": text}])
        )
        for place, (kind, text) in enumerate(words)
    ]
