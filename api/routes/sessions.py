"""/sessions/{id}: a task, its messages and its place in the conversation."""

from fastapi import APIRouter, Depends

from api.conversations import deferred
from api.http.auth import Reader
from api.http.body import accepts_json
from api.http.lookup import session_of
from api.openapi import problems
from api.schemas.conversations import ChildRecord, SessionRecord, kind_of
from api.schemas.tasks import task_record
from api.views.messages import display_messages
from store import children, mailbox, tool_calls

router = APIRouter(tags=["tasks"], dependencies=[Depends(accepts_json)])


@router.get("/sessions/{session_id}", responses=problems(404), summary="Show a session: the task and its messages")
async def show_session(call: Reader, session_id: str) -> SessionRecord:
    """The task with its messages as people read them, its subagents, and the session that consumed its outcome."""
    [session] = await tool_calls.up_to_date(call.pool, call.tenant, [await session_of(call, session_id)])
    transport = session.task.transport
    outcome = await mailbox.of_source(call.pool, call.tenant, session_id)
    spawned = await children.of_session(call.pool, call.tenant, session_id)
    waiting = await deferred.shown(call, [session])
    return SessionRecord(
        **task_record(session, call.settings.poll_interval_ms, waiting.get(session.id)).model_dump(),
        session_id=session.id,
        thread_id=session.thread_id,
        session_type=session.session_type,
        kind=kind_of(session.spawned_by, session.blocking, transport),
        transport=transport,
        trigger=session.trigger,
        subagent_name=session.subagent_name,
        delivery=session.delivery,
        output=session.output,
        outcome_message_id=outcome.message_id if outcome else None,
        delivered_to=outcome.delivered_to if outcome else None,
        children=[ChildRecord(**child.model_dump(include=set(ChildRecord.model_fields))) for child in spawned],
        display_messages=await display_messages(call.pool, session),
    )
