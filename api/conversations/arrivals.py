"""A message of a channel: checked as a task of the connector's agent, accepted at its address, and started."""

import asyncio
import logging
import re

from api.conversations import channel_answers
from api.http import lookup
from api.http.auth import Call
from api.http.idempotency import IdempotencyKey, reused
from api.http.problems import finding, pointers_moved
from api.schemas.channels import ChannelAccepted
from api.schemas.conversations import stream_key
from api.submission import accept as submit
from api.submission.accept import SessionPlace
from domain.amounts import counted
from domain.channels import ChannelMessage, ChannelRef, ConnectorConfig, ConnectorKind, message_key
from domain.conversations.address import Address, ArrivingMessage
from domain.errors import Conflict, Invalid, TooMany
from domain.ids import new_id
from domain.sessions.new_session import NewSession, Trigger
from domain.task import TaskContext, TaskSpec, opening, title_of
from store import addresses, channels
from store.new_sessions import Accepted
from store.sessions import SessionRow

log = logging.getLogger("errand.api")

_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_starts: set["asyncio.Task[None]"] = set()  # debounced starts; the event loop itself keeps only weak references


async def accept(
    call: Call, connector: ConnectorConfig, channel: ChannelRef, body: ChannelMessage, key: IdempotencyKey | None = None
) -> ChannelAccepted:
    """Accept a message once. `key` identifies it if the service gave it no id."""
    record = key.record("") if key else None
    if connector.kind is ConnectorKind.EMAIL and not _EMAIL.fullmatch(channel.user_id):
        problem = finding("/user_id", "invalid_address", "must be one e-mail address", ["name@example.org"])
        raise Invalid(
            "Answers of this connector are sent to the user id, which is not an e-mail address.", errors=[problem]
        )
    text, session, files = await _session(call, connector, body)
    message = ArrivingMessage(
        key=message_key(body.message_id) if body.message_id else f"key/{record.key}" if record else new_id(),
        text=text,
        author=channel.user_id,
        visible=body.visible,
        session=session,
        files=files,
        idempotency=record,
        live_quota=submit.live_quota(call),
    )
    if not body.wake:
        return await _silent(call, channel, message)
    # an answer is shown with its request, and an invisible message must be shown nowhere
    if body.visible and (answered := await _answer(call, channel, body, message)) is not None:
        return answered
    debounced = connector.debounce_ms > 0
    # merge and debounce are decided under the lock of the address, so that of two messages only one starts a session
    found = await channels.accept(
        call.pool, call.tenant, channel, message, merge=connector.merge or debounced, wait=debounced
    )
    if found.key_reused:
        raise reused()
    arrival = found.arrival
    if arrival.refused is not None:
        raise refusal(arrival.refused)
    assert arrival.session is not None
    # the request that accepted the first one starts the session, or else the sweeper
    if not arrival.duplicate and not found.merged:
        await _start(call, arrival.session, connector.debounce_ms / 1_000)
    return ChannelAccepted(
        conversation_id=arrival.session.conversation_id,
        session_id=arrival.session.id,
        stream_key=stream_key(arrival.session.id),
        queued=not arrival.session.live and not arrival.session.status.terminal,
        merged=found.merged,
        duplicate=arrival.duplicate,
    )


async def _answer(
    call: Call, channel: ChannelRef, body: ChannelMessage, message: ArrivingMessage
) -> ChannelAccepted | None:
    """The session that asked, if the message answers a question."""
    found = await channel_answers.answer_question(call, channel, body, message)
    if found is None:
        return None
    arrived, request_id, rejected = found
    if arrived.key_reused:
        raise reused()
    session, duplicate = arrived.arrival.session, arrived.arrival.duplicate
    assert session is not None
    return ChannelAccepted(
        conversation_id=session.conversation_id,
        session_id=session.id,
        stream_key=stream_key(session.id),
        queued=not session.live and not session.status.terminal,
        merged=False,
        duplicate=duplicate,
        answered=None if duplicate or rejected else request_id,
        rejected=rejected,
    )


async def _silent(call: Call, channel: ChannelRef, message: ArrivingMessage) -> ChannelAccepted:
    if message.files:
        raise Invalid("A silent message brings no files.", errors=[finding("/files", "excluded", "send them with one")])
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    conversation_id = await addresses.find(call.pool, call.tenant, address)
    if conversation_id is None:
        # a silent message opens no conversation, because nobody would ever see it there
        raise Conflict("Nobody has written from this address: there is no conversation to enter silently.")
    await lookup.open_conversation(call, conversation_id)
    found = await channels.add_silent(call.pool, call.tenant, conversation_id, message)
    if found.key_reused:
        raise reused()
    return ChannelAccepted(
        conversation_id=conversation_id,
        session_id=None,
        stream_key=None,
        queued=True,
        merged=False,
        duplicate=found.arrival.duplicate,
    )


async def _session(
    call: Call, connector: ConnectorConfig, body: ChannelMessage
) -> tuple[str, NewSession, dict[str, object]]:
    """The text that the agent reads, the session for the message, and the files for the workspace."""
    # not validated again: ChannelMessage has checked the same limits
    context = TaskContext.model_construct(files=body.files)
    spec = TaskSpec.model_construct(agent=connector.agent, input=body.text, context=context)
    with pointers_moved("/context", ""):
        task = await submit.check(call, spec, schema=False)
    place = SessionPlace(await_children=False, trigger=Trigger.CHANNEL)
    session = submit.new_session(task, title_of(spec), place, call.caller.created_by)
    channel = {"message_id": body.message_id, "thread": body.thread}
    session = session.model_copy(update={"spec": {**session.spec, "channel": channel, "visible": body.visible}})
    if not body.visible:
        # titles are shown in lists, where the text must not appear
        session = session.model_copy(update={"title": "(a message that is not shown)"})
    return opening(spec, sorted(task.files)), session, dict(task.files)


async def _start(call: Call, session: SessionRow, delay: float) -> None:
    if not delay:
        await call.services.starts.start(session)
        return

    async def later() -> None:
        """Start the session a debounce time after its last message. If this process ends first, the sweeper starts
        it."""
        left = delay
        while left > 0:
            await asyncio.sleep(left)
            # read from the database, because another process may have accepted the latest message
            left = await channels.debounce_left(call.pool, session.ref, delay)
        await call.services.starts.start(session)

    task = asyncio.create_task(later())
    _starts.add(task)
    task.add_done_callback(_starts.discard)


def refusal(accepted: Accepted) -> Exception:
    if accepted.terminated:
        return lookup.terminated()
    if accepted.quota is not None:
        detail = f"This key has {counted(accepted.quota, 'live task')}, as many as it may have."
        return TooMany(detail, type="live-tasks", retry_after=submit.TRY_AGAIN_SECONDS)
    if accepted.budget is not None:
        return Conflict("The conversation's budget is spent.", type="budget-spent", budget=accepted.budget)
    return Conflict()
