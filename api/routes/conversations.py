"""/conversations: run a turn, list, show, read the turns, change, interrupt, terminate; /threads: end the thread of one
subagent; the mailbox, and the turn that consumes it; forks."""

from typing import Annotated, Any, Literal

from errand import models
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from api.conversations import control, deferred, fire, run
from api.conversations.bodies import (
    ConversationChange,
    FireBody,
    ForkBody,
    MessageBody,
    RunBody,
    check_message,
    check_value,
    handle,
)
from api.conversations.control import ResetDone, Stop
from api.conversations.run import NewTurn, check_transport, respond_turn, turn_responses
from api.http.auth import Call, Reader, Stopper, Submitter
from api.http.body import check_input_length, json_body, parse_json
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import conversation_of, find, own_conversation, session_of
from api.http.paging import ListParameters, cursor, moment_and_id
from api.http.problems import refuse
from api.openapi import problems
from api.submission import submit
from api.views.conversation import display_messages, whole
from domain.conversations.mailbox import ConversationStatus
from domain.errors import Conflict, Refusal
from domain.events import EventRow, TaskCompleted
from domain.json_object import JsonObject
from domain.sessions.new_session import TRANSPORT, Trigger
from domain.sessions.session import Reason, SessionRef, Usage
from domain.sessions.writes import Acceptance, SessionEnding
from domain.task import Tag, UserId
from store import conversations, mailbox, sessions, threads, workspaces
from store.conversations import ConversationRow
from store.idempotency import key_reused
from store.sessions import SessionRow

router = APIRouter(tags=["conversations"])

_RUNS = {
    "root": {
        "summary": "A new conversation; the response is its event stream",
        "value": {"agent": "assistant", "input": "What is in the workspace?"},
    },
    "continuation": {
        "summary": "A further turn; wait until the running one ends",
        "value": {
            "conversation_id": "01m7h5pjrzy5zk03zj8xz0xsa9",
            "input": "And which file is the largest?",
            "transport": "stream",
            "if_busy": "queue",
        },
    },
    "fork": {
        "summary": "A new conversation from where a session ended",
        "value": {
            "fork_from": "01m7h5pjrzy5zk03zj8xz0xsa9",
            "input": "Try it the other way.",
            "transport": "stream",
            "metadata": {"ticket": "4711"},
        },
    },
}


class Terminated(BaseModel):
    conversation_id: str
    status: str
    stopped: int
    session_ids: list[str]


@router.post(
    "/conversations/run",
    tags=["core"],
    response_class=Response,
    responses=turn_responses(404, 409),
    summary="Run a turn: of a new conversation, of one that exists, or of a fork",
)
async def run_turn(
    request: Request,
    call: Submitter,
    body: Annotated[RunBody, json_body(RunBody, check_value=check_value, check_model=check_message, examples=_RUNS)],
    idempotency_key: Key = None,
) -> Response:
    """`transport=sse` responds with the session's events, `transport=stream` with a handle; nothing else differs, and a
    reader may disconnect at any time. A conversation runs at most one session at a time: see `if_busy`."""
    check_transport(request, body.transport)
    key = IdempotencyKey.of(call, "POST /conversations/run", body, idempotency_key)
    if body.answers is not None and body.conversation_id is not None:
        turn = await deferred.answer(call, body.conversation_id, body, key)
    else:
        turn = await run.run(call, body, key)
    return respond_turn(call, turn, body.transport)


@router.post(
    "/conversations/{conversation_id}/messages",
    response_class=Response,
    responses=turn_responses(409),
    summary="Send a further message; it waits while a session is running",
)
async def send_message(
    request: Request,
    call: Submitter,
    conversation_id: str,
    body: Annotated[
        MessageBody,
        json_body(
            MessageBody,
            check_value=check_value,
            check_model=check_message,
            example={"input": "And which file is the largest?"},
        ),
    ],
    idempotency_key: Key = None,
) -> Response:
    check_transport(request, body.transport)
    key = IdempotencyKey.of(call, f"POST /conversations/{conversation_id}/messages", body, idempotency_key)
    continue_ = run.further if body.answers is None else deferred.answer
    return respond_turn(call, await continue_(call, conversation_id, body, key), body.transport)


class ConversationQuery(ListParameters):
    q: str | None = Field(default=None, max_length=200, description="search words; all of them must occur")
    metadata: str | None = Field(
        default=None, max_length=2_000, description='JSON that the metadata must contain: {"ticket": "4711"}'
    )
    tag: Tag | None = Field(default=None, description="a tag of one of its threads")
    user_id: UserId | None = Field(default=None, description="the person that it belongs to")
    status: ConversationStatus | None = None
    own: bool = Field(default=False, description="true: only those with a session of the caller's own key")
    order: Literal["created", "updated"] = Field(default="created", description="updated: by the last activity")


@router.get("/conversations", summary="List conversations, the newest first")
async def list_conversations(call: Reader, query: Annotated[ConversationQuery, Query()]) -> models.ConversationPage:
    """A search covers titles, inputs and final messages; `match_source` says where it matched."""
    filters = query.filters
    by_activity = query.order == "updated"
    page = await conversations.find(
        call.pool,
        call.tenant,
        search=query.q,
        metadata=_metadata(query.metadata),
        **query.model_dump(include={"tag", "user_id", "status"}),
        created_by=call.caller.created_by if query.own else None,
        by_activity=by_activity,
        after=moment_and_id(filters, query.cursor),
        limit=query.limit + 1,
    )
    shown, more = page[: query.limit], len(page) > query.limit
    return models.ConversationPage(
        items=[
            _summary(one, pending_count=one.pending_count, match_source=one.match_source if query.q else None)
            for one in shown
        ],
        next_cursor=cursor(filters, shown[-1].id, shown[-1].updated_at if by_activity else None) if more else None,
    )


def _summary(found: ConversationRow, **more: Any) -> models.ConversationSummary:
    same = found.model_dump(include=set(models.ConversationSummary.model_fields) - more.keys())
    return models.ConversationSummary(conversation_id=found.id, **same, **more)


def _metadata(given: str | None) -> JsonObject | None:
    if given is None:
        return None
    try:
        value = parse_json(given.encode())
    except Refusal:
        value = None
    if not isinstance(value, dict):
        raise refuse("/metadata", "json_object", "must be a JSON object", place="query")
    return value


@router.get("/conversations/{conversation_id}", summary="Show a conversation")
async def show_conversation(call: Reader, conversation_id: str) -> models.Conversation:
    """Its threads, its sessions as a tree, running sessions, pending outcomes, and usage by model."""
    return await whole(call, await conversation_of(call, conversation_id))


class TurnQuery(ListParameters):
    full: bool = Field(default=False, description="with all messages and tool calls")
    newest: bool = Field(default=False, description="true: the newest first")


@router.get("/conversations/{conversation_id}/turns", summary="Read the turns: input and final message of each")
async def show_turns(call: Reader, conversation_id: str, query: Annotated[TurnQuery, Query()]) -> models.TurnPage:
    await conversation_of(call, conversation_id)
    after_id = query.after(turns=conversation_id)
    found = await conversations.find_turns(
        call.pool, call.tenant, conversation_id, after_id, query.limit + 1, newest=query.newest
    )
    shown, more = query.page(found, lambda turn: turn.session_id, turns=conversation_id)
    if query.full:
        for place, turn in enumerate(shown):
            said = await display_messages(call.pool, await session_of(call, turn.session_id))
            shown[place] = turn.model_copy(update={"display_messages": said})
    return models.TurnPage(items=shown, next_cursor=more)


@router.patch("/conversations/{conversation_id}", summary="Change title, delivery or metadata")
async def change_conversation(
    call: Submitter,
    conversation_id: str,
    body: Annotated[
        ConversationChange,
        json_body(
            ConversationChange,
            check_value=check_input_length,
            example={"metadata": {"ticket": None}, "title": "Parser"},
        ),
    ],
) -> models.Conversation:
    await own_conversation(call, conversation_id)
    given = body.model_dump(include=body.model_fields_set - ({"title"} if body.title is None else set()))
    update = conversations.ConversationUpdate(**given)
    changed = await conversations.change(call.pool, call.tenant, conversation_id, update)
    assert changed is not None
    return await whole(call, changed)


@router.post(
    "/conversations/{conversation_id}/interrupt", status_code=202, summary="Stop all running sessions of a conversation"
)
async def interrupt_conversation(call: Stopper, conversation_id: str) -> models.Interrupted:
    """This includes subagents. Each keeps its results so far; the conversation continues with the next message."""
    await own_conversation(call, conversation_id)
    live = await conversations.find_unfinished(call.pool, call.tenant, conversation_id)
    await control.stop_sessions(call, live, Stop(Reason.INTERRUPTED))
    return models.Interrupted(interrupted=len(live), session_ids=live)


@router.post("/conversations/{conversation_id}/reset", responses=problems(409), summary="Reset a conversation")
async def reset_conversation(call: Stopper, conversation_id: str) -> ResetDone:
    """The id and the history stay, but the next message is answered without the earlier messages. Waiting messages are
    dropped, and the running session is interrupted."""
    return await control.reset_conversation(call, conversation_id)


@router.post("/conversations/{conversation_id}/terminate", status_code=202, summary="End a conversation permanently")
async def terminate_conversation(call: Stopper, conversation_id: str) -> Terminated:
    """It accepts nothing new, and all running and queued sessions are stopped. It can still be read."""
    await own_conversation(call, conversation_id)
    await conversations.terminate(call.pool, call.tenant, conversation_id, call.caller.created_by)
    stopped = await conversations.find_unfinished(call.pool, call.tenant, conversation_id, queued=True)
    await control.stop_sessions(call, stopped, Stop(Reason.TERMINATED))
    await call.services.workflows.signal_termination(
        conversation_id
    )  # if Temporal does not take it, a sweep repeats it
    return Terminated(conversation_id=conversation_id, status="terminated", stopped=len(stopped), session_ids=stopped)


# /threads/{id}/terminate: end the thread of one subagent permanently.


class TerminatedThread(Terminated):
    thread_id: str


@router.post(
    "/threads/{thread_id}/terminate",
    status_code=202,
    responses=problems(409),
    summary="End the thread of a subagent permanently",
)
async def terminate_thread(call: Stopper, thread_id: str) -> TerminatedThread:
    """The thread and those below it accept neither sessions nor messages any more. Their running sessions are stopped.
    The parent continues, and its registry shows the child as terminated."""
    found = await find(call, threads.get, thread_id, "There is no such thread.", type="unknown-thread")
    await own_conversation(call, found.conversation_id)
    if found.parent_thread_id is None:
        detail = "This is the conversation's own thread: terminate the conversation instead."
        raise Conflict(detail, type="not-a-subagent")
    unfinished = await threads.terminate(call.pool, call.tenant, found, call.caller.created_by)
    await control.stop_sessions(call, unfinished, Stop(Reason.TERMINATED, tree=True))
    return TerminatedThread(
        thread_id=thread_id,
        conversation_id=found.conversation_id,
        status="terminated",
        stopped=len(unfinished),
        session_ids=unfinished,
    )


# /conversations/{id}/mailbox and …/fire: pending outcomes of subagents, and the turn that consumes them.


class MailboxQuery(ListParameters):
    all: bool = Field(default=False, description="delivered outcomes too")
    live: bool = Field(default=False, description="as the running conversation sees it; needs a worker")
    limit: int = Field(default=200, ge=1, le=1_000)


@router.get("/conversations/{conversation_id}/mailbox", tags=["core"], summary="Show the mailbox")
async def show_mailbox(
    call: Reader, conversation_id: str, query: Annotated[MailboxQuery, Query()]
) -> models.MailboxPage:
    """The pending outcomes in the order of their arrival. Reading consumes nothing."""
    await conversation_of(call, conversation_id)
    pool, tenant = call.pool, call.tenant
    if query.live:
        pending = await call.services.workflows.mailbox(conversation_id) or []
        found = await mailbox.by_ids(pool, tenant, [outcome.id for outcome in pending])
        return models.MailboxPage(items=found, pending_count=len(pending), next_cursor=None)
    page = await mailbox.of_conversation(
        pool,
        tenant,
        conversation_id,
        pending_only=not query.all,
        after_id=query.after(mailbox=conversation_id),
        limit=query.limit + 1,
    )
    shown, more = query.page(page, lambda message: message.message_id, mailbox=conversation_id)
    waiting = await mailbox.count_pending(pool, tenant, conversation_id)
    return models.MailboxPage(items=shown, pending_count=waiting, next_cursor=more)


@router.post(
    "/conversations/{conversation_id}/fire",
    tags=["core"],
    response_class=Response,
    responses=turn_responses(409),
    summary="Deliver everything in the mailbox as one turn",
)
async def fire_mailbox(
    request: Request,
    call: Submitter,
    conversation_id: str,
    body: Annotated[
        FireBody,
        json_body(FireBody, optional=True, check_value=check_value, example={"input": "Compare what they found."}),
    ],
    idempotency_key: Key = None,
) -> Response:
    """All pending outcomes and your own message become one session, which continues the latest that committed a step.
    An empty mailbox is 422 and nothing is created. If the session ends without a commit, the outcomes are pending
    again."""
    check_transport(request, body.transport)
    key = IdempotencyKey.of(call, f"POST /conversations/{conversation_id}/fire", body, idempotency_key)
    turn = await fire.fire(call, conversation_id, body, key)
    return respond_turn(call, turn, body.transport)


# /conversations/{id}/fork: a new conversation from the end of a session.


@router.post(
    "/conversations/{conversation_id}/fork",
    status_code=202,
    response_model=models.SessionHandle,
    responses=problems(409),
    summary="Fork a conversation",
)
async def fork_conversation(
    call: Submitter,
    conversation_id: str,
    body: Annotated[ForkBody, json_body(ForkBody, optional=True, example={"title": "Another way"})],
    idempotency_key: Key = None,
) -> Response:
    """The new conversation gets a copy of the history and of the workspace. Nothing runs; the next message to it
    continues from there. To run a message at once, see `fork_from` of POST /conversations/run."""
    key = IdempotencyKey.of(call, f"POST /conversations/{conversation_id}/fork", body, idempotency_key)
    if (before := await run.find_turn(call, key)) is not None:
        return respond_turn(call, before, TRANSPORT)
    source = await _source(call, conversation_id, body)
    return respond_turn(call, await _prepare(call, body, source, key), TRANSPORT)


async def _source(call: Call, conversation_id: str, body: ForkBody) -> SessionRow:
    await own_conversation(call, conversation_id)
    if body.from_session is not None:
        return await run.fork_source(call, body.from_session, conversation_id)
    latest = await conversations.find_latest_committed(call.pool, call.tenant, conversation_id)
    if latest is None:
        raise Conflict("The conversation has nothing to fork from yet.", type="not-committed")
    return await session_of(call, latest)


async def _prepare(call: Call, body: ForkBody, source: SessionRow, key: IdempotencyKey) -> NewTurn:
    """Write a session for the copied state: it ended where its source did, and nothing is executed."""
    spec = MessageBody(input="Fork").task(source.agent)
    task = await submit.check_task(call, spec, schema=False, variables=source.variables)
    _, manifest, _ = await workspaces.get_all(call.pool, call.tenant, source.workspace_id)
    place = submit.SessionPlace(
        parent=source,
        manifest=manifest,
        trigger=Trigger.FORK,
        await_children=False,
        tree=source.task.config,
    )
    prepared = submit.prepare_session(call, task, place).acceptance
    copied = {"title": body.title or f"{source.title[:190]} (fork)", "spec": {**source.spec, "transport": TRANSPORT}}
    session = prepared.session.model_copy(update=copied)
    made = handle(session.id, session.conversation_id)
    acceptance = Acceptance(
        session=session,
        manifest=prepared.manifest,
        idempotency=key.record(made.model_dump_json()),
        metadata=body.metadata or {},
    )
    ending = _ending(source, session.ref)
    accepted = await sessions.accept_and(
        call.pool, acceptance, lambda connection, _: sessions.finish_session(connection, ending)
    )
    if accepted.reused:
        raise key_reused()
    if accepted.replay:
        return NewTurn(models.SessionHandle.model_validate_json(accepted.replay.response), replayed=True)
    return NewTurn(made)


def _ending(source: SessionRow, ref: SessionRef) -> SessionEnding:
    reason = Reason.GOAL_REACHED
    ended = TaskCompleted(status=reason.status, reason=reason, partial=False, usage=Usage(), output=source.output)
    return SessionEnding(
        ref=ref,
        reason=reason,
        output=source.output,
        head=source.head,
        step=0,
        version=1,
        events=[EventRow.of(ref, ended)],
    )
