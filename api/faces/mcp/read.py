"""Reads the data for a task's view."""

from api.faces.mcp.task_view import McpTask, view, withheld
from api.http.auth import Call
from api.http.lookup import check_acting, session_of
from domain.agents.prompt import VariableKind
from domain.agents.variable_scope import graph_variables
from domain.errors import NotAllowed
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind
from store import agent_graph, agents, children, files, input_requests
from store.keys import Right
from store.sessions import SessionRow


async def requests_of(call: Call, session: SessionRow) -> list[InputRequest]:
    """The open requests of the task and its subagents, except waits for events, which no person answers."""
    if session.status.terminal:
        return []
    below = await children.descendants(call.pool, call.tenant, session.id)
    found = await input_requests.of_sessions(call.pool, call.tenant, [session.id, *below])
    return [one for one in found if one.kind is not RequestKind.EXTERNAL_EVENT]


async def read(call: Call, session: SessionRow, requests: list[InputRequest] | None = None) -> McpTask:
    waiting = await requests_of(call, session) if requests is None else requests
    artifacts = await files.of_session(call.pool, call.tenant, session.id)
    task = view(session, waiting, artifacts, call.settings.poll_interval_ms)
    # acting needs no right to read, so that every tool's result passes here
    return task if call.caller.may(Right.READ) else withheld(task)


async def read_id(call: Call, task_id: str) -> McpTask:
    return await read(call, await session_of(call, task_id))


async def askable(call: Call, session: SessionRow, requests: list[InputRequest]) -> list[InputRequest]:
    """The requests that can be shown as forms: the caller may answer them, and they do not ask for a secret."""
    try:
        await check_acting(call, session)
    except NotAllowed:
        return []
    found = []
    for one in requests:
        right = Right.APPROVE if one.kind in APPROVALS else Right.ANSWER
        if call.caller.may(right, Right.SUPERVISE) and not await _asks_for_secret(call, session, one):
            found.append(one)
    return found


async def _asks_for_secret(call: Call, session: SessionRow, request: InputRequest) -> bool:
    if request.kind is not RequestKind.MISSING_VARIABLES:
        return False
    asking = session if request.session_id == session.id else await session_of(call, request.session_id)
    definition = await agents.load(call.pool, asking.agent_ref)
    known = graph_variables(await agent_graph.reachable(call.pool, call.tenant, definition))
    names = request.details.get("variables", {})
    # a name that no agent declares may be a secret, and a form shows what is typed
    return any(name not in known or known[name].kind is VariableKind.SECRET for name in names)
