"""The record of a whole conversation, built from its rows without a worker."""

from errand import models

from api.http.auth import Call
from api.schemas.conversations import (
    kind_of,
    stream_key,
)
from api.views.agent_state import agent_state, descriptor
from domain.sessions.input_request import InputRequest
from store import children, conversation_reads, input_requests, mailbox
from store.conversation_reads import Branch
from store.conversations import ConversationRow

MOST = 1_000  # sessions, and threads


async def whole(call: Call, found: ConversationRow) -> models.Conversation:
    pool, tenant = call.pool, call.tenant
    branches = await conversation_reads.branches(pool, tenant, found.id, MOST + 1)
    threads = await conversation_reads.threads(pool, tenant, found.id, MOST + 1)
    usage = await conversation_reads.usage_by_model(pool, tenant, found.id)
    complete = len(branches) <= MOST and len(threads) <= MOST
    # the newest, which people look for; `complete` says that there are more
    branches = branches[-MOST:]
    root = [branch for branch in branches if branch.thread_id == found.id]
    active = next((branch for branch in root if branch.live), None)
    return models.Conversation(
        conversation_id=found.id,
        descriptor=await descriptor(call, found.id),
        state=await agent_state(call, found),
        title=found.title,
        status=found.status,
        delivery=found.delivery.value if found.delivery else None,
        metadata=found.metadata,
        created_at=found.created_at,
        updated_at=found.updated_at,
        latest_session=root[-1].session_id if root else None,
        active_session=_active(active) if active else None,
        live_sessions=[branch.session_id for branch in branches if branch.live],
        input_requests=[
            request_record(one) for one in await input_requests.find(pool, tenant, conversation_id=found.id)
        ],
        mailbox=models.MailboxState(pending_count=await mailbox.pending_count(pool, tenant, found.id)),
        usage={
            model: models.ModelUsage(
                requests=used.llm_calls, **used.model_dump(exclude={"llm_calls", "tool_invocations"})
            )
            for model, used in usage.items()
        },
        threads=[models.Thread.model_validate(one) for one in threads[:MOST]],
        children=[
            models.RegistryEntry.model_validate(one)
            for one in await children.registry(pool, tenant, found.id, found.id)
        ],
        sessions=tree(branches),
        complete=complete,
    )


def request_record(request: InputRequest) -> models.InputRequest:
    # by its dump, which hides a secret answer
    return models.InputRequest.model_validate(request.model_dump())


def _active(branch: Branch) -> models.ActiveSession:
    return models.ActiveSession(
        session_id=branch.session_id, stream_key=stream_key(branch.session_id), transport=branch.transport
    )


def tree(branches: list[Branch]) -> list[models.SessionBranch]:
    """The tree: subagents below the session that started them; one whose starter is not shown is at the top."""
    nodes = {branch.session_id: _node(branch) for branch in branches}
    top: list[models.SessionBranch] = []
    for node in nodes.values():
        spawner = nodes.get(node.spawned_by or "")
        (spawner.children if spawner else top).append(node)
    return top


def _node(branch: Branch) -> models.SessionBranch:
    kind = kind_of(branch.spawned_by, branch.blocking, branch.transport)
    return models.SessionBranch(kind=kind, **branch.model_dump(exclude={"blocking", "delivery"}))
