"""/threads/{id}/terminate: end the thread of one subagent permanently."""

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from api.control import stop as stopping
from api.control.stop import Stop
from api.http.auth import Stopper
from api.http.body import accepts_json
from api.http.lookup import own_conversation
from api.openapi import problems
from domain.errors import Conflict, NotFound
from domain.ids import is_id
from domain.sessions.session import Reason
from store import threads

router = APIRouter(tags=["conversations"], dependencies=[Depends(accepts_json)])


class TerminatedThread(BaseModel):
    thread_id: str
    conversation_id: str
    status: str
    stopped: int
    session_ids: list[str]


@router.post(
    "/threads/{thread_id}/terminate",
    status_code=202,
    responses=problems(403, 404, 409),
    summary="End the thread of a subagent permanently",
)
async def terminate_thread(call: Stopper, thread_id: str) -> TerminatedThread:
    """The thread and those below it accept neither sessions nor messages any more. Their running sessions are stopped.
    The parent continues, and its registry shows the child as terminated."""
    found = await threads.get(call.pool, call.tenant, thread_id) if is_id(thread_id) else None
    if found is None:
        raise NotFound("There is no such thread.", type="unknown-thread")
    await own_conversation(call, found.conversation_id)
    if found.parent_thread_id is None:
        detail = "This is the conversation's own thread: terminate the conversation instead."
        raise Conflict(detail, type="not-a-subagent")
    unfinished = await threads.terminate(call.pool, call.tenant, found, call.caller.created_by)
    await stopping.stop_all(call, unfinished, Stop(Reason.TERMINATED, tree=True))
    return TerminatedThread(
        thread_id=thread_id,
        conversation_id=found.conversation_id,
        status="terminated",
        stopped=len(unfinished),
        session_ids=unfinished,
    )
