"""/conversations/{id}/interrupt and …/terminate: stop what is at work; and let nothing begin again."""

from fastapi import APIRouter, Depends

from api.auth import Stopper
from api.control import stop as stopping
from api.control.stop import Stop
from api.http.accept_header import accepts_json
from api.http.lookup import own_conversation
from api.openapi import problems
from api.schemas.conversations import Interrupted, Terminated
from domain.sessions.session import Reason
from store import conversation_reads, conversations

router = APIRouter(tags=["conversations"], dependencies=[Depends(accepts_json)])


@router.post(
    "/conversations/{conversation_id}/interrupt",
    status_code=202,
    responses=problems(403, 404),
    summary="Stop everything that is at work in a conversation",
)
async def interrupt_conversation(call: Stopper, conversation_id: str) -> Interrupted:
    """Subagents too. Each keeps what it has; the conversation goes on with the next message. Nothing at work: 0."""
    await own_conversation(call, conversation_id)
    live = await conversation_reads.unfinished(call.pool, call.tenant, conversation_id)
    await stopping.stop_all(call, live, Stop(Reason.INTERRUPTED))
    return Interrupted(interrupted=len(live), session_ids=live)


@router.post(
    "/conversations/{conversation_id}/terminate",
    status_code=202,
    responses=problems(403, 404),
    summary="End a conversation for good",
)
async def terminate_conversation(call: Stopper, conversation_id: str) -> Terminated:
    """From here on nothing new is accepted; all that is at work or waits is stopped. It can still be read."""
    await own_conversation(call, conversation_id)
    await conversations.terminate(call.pool, call.tenant, conversation_id, call.caller.created_by)
    stopped = await conversation_reads.unfinished(call.pool, call.tenant, conversation_id, queued=True)
    await stopping.stop_all(call, stopped, Stop(Reason.TERMINATED))
    if not await call.services.workflows.tell_terminated(conversation_id):
        call.services.retry_queue.add(
            f"the end of {conversation_id}", lambda: call.services.workflows.tell_terminated(conversation_id)
        )
    return Terminated(conversation_id=conversation_id, status="terminated", stopped=len(stopped), session_ids=stopped)
