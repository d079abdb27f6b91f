"""The view of our workflows in Temporal and its Web UI: search attributes, summaries, and details in Markdown."""

import re
from collections.abc import Iterable
from datetime import timedelta
from itertools import islice
from typing import TypedDict
from urllib.parse import quote

from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from domain.conversations.requests import ConversationState, Thread
from domain.ids import conversation_workflow_id, session_workflow_id
from domain.sessions.session import Finished, ModelReply, ToolOutcome
from domain.sessions.session_state import SessionInput, SessionState
from domain.wire import TASK_TIMEOUT

# Search attributes: ids and enums only, since no codec hides them.
TENANT = SearchAttributeKey.for_keyword("TenantId")
AGENT = SearchAttributeKey.for_keyword("AgentId")
CONVERSATION = SearchAttributeKey.for_keyword("ConversationId")
SPAWNED_BY = SearchAttributeKey.for_keyword("SpawnedBy")
STATUS = SearchAttributeKey.for_keyword("SessionStatus")
TRIGGER = SearchAttributeKey.for_keyword("Trigger")
SEARCH_ATTRIBUTES = (TENANT, AGENT, CONVERSATION, SPAWNED_BY, STATUS, TRIGGER)

_ESCAPED = re.compile(r"[\\`*_\[\]<>]")

LISTED = 20  # sessions and threads listed in the details; the rest is counted


def link(label: str, namespace: str, workflow_id: str) -> str:
    """A Markdown link to the page of a workflow's latest run. The Web UI renders details in a frame of its own origin,
    so a path without a host leads to the same installation and opens in a new tab."""
    text = _ESCAPED.sub(r"\\\g<0>", " ".join(label.split()))
    return f"[{text}](/namespaces/{quote(namespace, safe='')}/workflows/{quote(workflow_id, safe='')})"


class WorkflowOptions(TypedDict):
    """Arguments for the SDK's calls that start a workflow."""

    task_timeout: timedelta
    static_summary: str
    search_attributes: TypedSearchAttributes
    priority: Priority


class StartOptions(WorkflowOptions):
    id_reuse_policy: WorkflowIDReusePolicy
    static_details: str


class ConversationOptions(WorkflowOptions):
    id_conflict_policy: WorkflowIDConflictPolicy


def start_options(session: SessionInput, namespace: str) -> StartOptions:
    """The appearance of a session's workflow, whether the API or its conversation starts it."""
    ref = session.ref
    attributes = [
        SearchAttributePair(TENANT, ref.tenant),
        SearchAttributePair(AGENT, session.agent.name),
        SearchAttributePair(CONVERSATION, ref.conversation_id),
        SearchAttributePair(STATUS, "working"),
        SearchAttributePair(TRIGGER, session.trigger),
    ]
    if session.spawned_by:
        attributes.append(SearchAttributePair(SPAWNED_BY, session.spawned_by))
    return {
        "id_reuse_policy": WorkflowIDReusePolicy.REJECT_DUPLICATE,
        "task_timeout": TASK_TIMEOUT,
        "static_summary": f"{session.agent.name} · {session.title}",
        "static_details": static_details(session, namespace),
        "search_attributes": TypedSearchAttributes(attributes),
        "priority": fair_priority(ref.tenant),
    }


def fair_priority(tenant: str) -> Priority:
    """Tenants take turns, in the workflow's tasks and, as these inherit it, in its activities."""
    return Priority(priority_key=3, fairness_key=tenant[:64])


def conversation_options(tenant: str, conversation_id: str) -> ConversationOptions:
    attributes = [
        SearchAttributePair(TENANT, tenant),
        SearchAttributePair(CONVERSATION, conversation_id),
        SearchAttributePair(TRIGGER, "api"),
    ]
    return {
        "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
        "task_timeout": TASK_TIMEOUT,
        "static_summary": f"conversation · {conversation_id}",
        "search_attributes": TypedSearchAttributes(attributes),
        "priority": fair_priority(tenant),
    }


def static_details(start: SessionInput, namespace: str) -> str:
    limits, conversation_id = start.limits, start.ref.conversation_id
    conversation = link(conversation_id, namespace, conversation_workflow_id(conversation_id))
    lines = [
        f"**Agent** {start.agent.name} (version {start.agent.version}) · model {', then '.join(start.models)}",
        f"**Task** `{start.ref.session_id}` of conversation {conversation}",
        f"**Tenant** {start.ref.tenant} · **trigger** {start.trigger}",
        f"**Limits** steps {limits.steps} · {limits.ttl_ms / 1000:g} s"
        + (f" · {limits.tokens} tokens" if limits.tokens else "")
        + (f" · {limits.cost_usd} USD" if limits.cost_usd else ""),
    ]
    if start.spawned_by:
        lines.insert(2, f"**Spawned by** {link(start.spawned_by, namespace, session_workflow_id(start.spawned_by))}")
    return "\n\n".join(lines)


def current_details(
    start: SessionInput,
    state: SessionState,
    outcomes: list[ToolOutcome],
    namespace: str,
    finished: Finished | None = None,
    waiting: Iterable[str] = (),
) -> str:
    usage = state.usage
    cost = "unknown" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    lines = [
        f"**{finished.status if finished else 'input_required' if waiting else 'working'}**"
        + (f" ({finished.reason})" if finished else ""),
        *(f"waiting: {one}" for one in waiting),
        f"step {state.step} of at most {(state.limits or start.limits).steps} · {usage.tokens} tokens · {cost}",
    ]
    if state.line.doing and not finished:
        lines.append(f"doing: {state.line.doing}")
    lines += [f"- `{outcome.name}` {outcome.state}: {outcome.preview[:120]}" for outcome in outcomes]
    if finished and finished.preview:
        lines.append(finished.preview)
    return "\n\n".join([*lines, *_subagents(state, namespace)])


def _subagents(state: SessionState, namespace: str) -> list[str]:
    if not state.children:
        return []
    listed = [
        f"- {link(child.title, namespace, session_workflow_id(child.id))}"
        + (" (ended)" if child.id in state.ended else "")
        for child in state.children
    ]
    return [f"**Subagents** {state.children_started}", *listed, *_rest(state.children_started - len(listed))]


def conversation_details(state: ConversationState, namespace: str) -> str:
    """The threads with their running or latest session, and the number of waiting outcomes."""
    threads = [_thread(name, thread, namespace) for name, thread in islice(state.threads.items(), LISTED)]
    return "\n\n".join(
        [
            f"**{state.title or 'a new conversation'}**",
            f"sessions running: {len(state.live)} · outcomes waiting: {len(state.pending)}",
            *threads,
            *_rest(len(state.threads) - len(threads)),
        ]
    )


def _thread(thread_id: str, thread: Thread, namespace: str) -> str:
    session_id = thread.live or thread.last
    name = thread.name or "main thread"
    shown = link(name, namespace, session_workflow_id(session_id)) if session_id else name
    queued = f", {len(thread.queue)} queued" if thread.queue else ""
    return f"- {shown}: {'running' if thread.live else 'idle'}{queued}"


def _rest(count: int) -> list[str]:
    return [f"- and {count} more"] if count > 0 else []


def step_result(reply: ModelReply, outcomes: list[ToolOutcome]) -> str:
    """What came of a step, in one line: the state of each call, or why the model stopped."""
    if reply.calls:
        return ", ".join(f"{outcome.name} {outcome.state}" for outcome in outcomes)[:200]
    return reply.stop_reason
