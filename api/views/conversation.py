"""A conversation for its reader: its sessions as a tree, its agent's settings, and the messages of a session."""

from errand import models

from api.conversations.bodies import stream_key
from api.http import lookup
from api.http.auth import Call
from domain.channels import AddressKind
from domain.conversations.display_messages import display_messages as displayed
from domain.messages import Node
from domain.sessions.input_request import InputRequest
from store import addresses, channels, conversations, input_requests, mailbox, messages, resets, sessions
from store import threads as stored_threads
from store.conversations import ConversationRow
from store.database import Pool
from store.sessions import SessionRow

MOST = 1_000  # sessions, and threads
PARTS = {AddressKind.CHANNEL: ("connector", "channel_id", "user_id")}  # all other kinds have an id


async def whole(call: Call, found: ConversationRow) -> models.Conversation:
    pool, tenant = call.pool, call.tenant
    branches = await conversations.find_branches(pool, tenant, found.id, MOST + 1)
    threads = await conversations.find_threads(pool, tenant, found.id, MOST + 1)
    complete = len(branches) <= MOST and len(threads) <= MOST
    # the newest, which people look for; `complete` says that there are more
    branches = branches[-MOST:]
    root = [branch for branch in branches if branch.thread_id == found.id]
    active = next((branch for branch in root if branch.live), None)
    return models.Conversation(
        conversation_id=found.id,
        descriptor=await descriptor(call, found.id),
        state=await agent_state(call, found),
        **found.model_dump(exclude={"id", "generation"}),
        latest_session=root[-1].session_id if root else None,
        active_session=_active(active) if active else None,
        live_sessions=[branch.session_id for branch in branches if branch.live],
        input_requests=[
            request_record(one) for one in await input_requests.find(pool, tenant, conversation_id=found.id)
        ],
        mailbox=models.MailboxState(pending_count=await mailbox.count_pending(pool, tenant, found.id)),
        usage=await conversations.sum_usage_by_model(pool, tenant, found.id),
        threads=threads[:MOST],
        children=await stored_threads.get_registry(pool, tenant, found.id, found.id),
        sessions=tree(branches),
        complete=complete,
    )


def request_record(request: InputRequest) -> models.InputRequest:
    # by its dump, which hides a secret answer
    return models.InputRequest.model_validate(request.model_dump())


def _active(branch: models.SessionBranch) -> models.ActiveSession:
    return models.ActiveSession(
        session_id=branch.session_id, stream_key=stream_key(branch.session_id), transport=branch.transport
    )


def tree(branches: list[models.SessionBranch]) -> list[models.SessionBranch]:
    """The tree: subagents below the session that started them; one whose starter is not shown is at the top."""
    nodes = {branch.session_id: branch for branch in branches}
    top: list[models.SessionBranch] = []
    for node in nodes.values():
        spawner = nodes.get(node.spawned_by or "")
        (spawner.children if spawner else top).append(node)
    return top


async def descriptor(call: Call, conversation_id: str) -> models.Descriptor:
    address = await addresses.of_conversation(call.pool, call.tenant, conversation_id)
    if address is None:
        return models.Descriptor(type="task", identity={"id": conversation_id})
    names = PARTS.get(address.kind, ("id",))
    return models.Descriptor(type=address.kind, identity=dict(zip(names, address.parts, strict=False)))


async def agent_state(call: Call, found: ConversationRow) -> models.AgentState:
    latest = await sessions.newest_of_thread(call.pool, call.tenant, found.id)
    latest = latest or await lookup.session_of(call, found.id)
    channel = await channels.of_conversation(call.pool, call.tenant, found.id)
    routing: dict[str, str | None] = dict(channel.model_dump()) if channel else {}
    if channel is not None:
        routing["thread"] = latest.task.channel.thread if latest.task.channel else None
    marked = await resets.markers(call.pool, call.tenant, found.id)
    return models.AgentState(
        agent=latest.agent,
        agent_version=latest.agent_version,
        models=latest.models,
        permissions=[[models.AgentRule.model_validate(rule) for rule in layer] for layer in latest.rules],
        routing=routing,
        generation=found.generation,
        markers=[
            models.HistoryMarker(kind="start", at=found.created_at),
            *(models.HistoryMarker(kind="reset", at=one.at, by=one.by) for one in marked),
        ],
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


async def display_messages(pool: Pool, session: SessionRow) -> list[models.DisplayMessage]:
    """The session's own part of the history, oldest first; before its first reply, the messages that opened it."""
    if own := await own_nodes(pool, session):
        return displayed(own)
    opening = [await conversations.message_text(pool, session.tenant, message_id) for message_id in session.inbox]
    return [models.DisplayMessage(type="user", text=text) for text in opening if text]


async def own_nodes(pool: Pool, session: SessionRow) -> list[Node]:
    """The nodes that a session added to the history; for a rerun, also those copied at its start."""
    known = None if session.rerun else session.base_head
    nodes = await messages.path(pool, session.tenant, session.head, known)
    return [node for node in nodes if node.session_id == session.id]
