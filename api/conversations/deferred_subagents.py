"""Subagents that wait for values of their variables: find a request, store the values, start the subagent."""

import logging

from api.http.auth import Call
from api.http.lookup import check_open, conversation_of
from api.http.problems import finding
from domain.agents.secret_variables import open_secrets, seal_secrets
from domain.agents.variable_scope import given_for
from domain.conversations.requests import Spawn
from domain.conversations.variable_request import VariableRequest, VariableRequestStatus
from domain.errors import Conflict, Invalid, NotFound, Unavailable
from domain.ids import is_id
from store import threads, variable_requests

log = logging.getLogger("errand.api")


async def find(call: Call, thread_id: str, request_id: str) -> VariableRequest:
    """The request; unknown, malformed and foreign ids get the same refusal."""
    known = is_id(thread_id) and is_id(request_id)
    request = await variable_requests.get(call.pool, call.tenant, thread_id, request_id) if known else None
    if request is None:
        raise NotFound()
    return request


async def give(call: Call, request: VariableRequest, given: dict[str, str]) -> VariableRequest:
    """Store the values and start the subagent. A repetition with the same values gets the same response."""
    check_open(await conversation_of(call, request.conversation_id))
    if await threads.is_terminated(call.pool, call.tenant, request.thread_id):
        raise Conflict("The thread was terminated.", type="thread-terminated")
    _check(request, given)
    if request.status is VariableRequestStatus.OPEN:
        spawn = await _with_values(call, request, given)
        answered = await variable_requests.answer(call.pool, request, spawn, call.caller.created_by)
        # somebody else was faster; `_check_same` then decides whether both gave the same values
        request = answered or await find(call, request.thread_id, request.id)
    _check_same(call, request, given)
    return await _start(call, request) if request.status is VariableRequestStatus.ANSWERED else request


async def _start(call: Call, request: VariableRequest) -> VariableRequest:
    """Ask the conversation to start the subagent. If Temporal is unreachable, the sweeper does it."""
    try:
        answer = await call.services.workflows.spawn(call.tenant, request.conversation_id, request.spawn)
    except Unavailable as error:
        log.info("the subagent of %s starts later: %s", request.id, error)
        return request
    refusal = answer.answers[0].error
    await variable_requests.settle(call.pool, request, started=refusal is None)
    if refusal is not None:
        raise Conflict(f"The subagent cannot start now: {refusal}", type="not-started-now")
    return await find(call, request.thread_id, request.id)


def _check(request: VariableRequest, given: dict[str, str]) -> None:
    asked = request.missing_names
    found = [
        finding(f"/variables/{name}", "unknown_variable", "is not asked for", asked)
        for name in given
        if name not in asked
    ]
    found += [finding(f"/variables/{name}", "missing", "needs a value") for name in asked if name not in given]
    if found:
        raise Invalid("The values do not fit what is missing.", errors=found[:50])


async def _with_values(call: Call, request: VariableRequest, given: dict[str, str]) -> Spawn:
    """The original call with the values; secrets are encrypted before anything is stored."""
    # If agents disagree about a name it is a secret: that kind sorts last.
    kinds = {one.name: one for one in sorted(request.missing, key=lambda one: one.kind, reverse=True)}
    sealed = seal_secrets(call.services.keys, call.tenant, given, kinds)
    [child] = request.spawn.children
    session = child.session.model_copy(
        update={"variables": {**child.session.variables, **given_for(request.agent, request.missing, sealed)}}
    )
    return request.spawn.model_copy(
        update={
            # A new id for each attempt: Temporal would repeat its first refusal for the same one.
            "request_id": f"{request.id}/{request.attempts + 1}",
            "children": [child.model_copy(update={"session": session})],
        }
    )


def _check_same(call: Call, request: VariableRequest, given: dict[str, str]) -> None:
    """Refuse values that differ from those with which it begins."""
    stored = request.spawn.children[0].session.variables
    # decrypted, because the same secret is encrypted differently every time
    known = {**stored, **open_secrets(call.services.keys, call.tenant, stored)}
    wanted = given_for(request.agent, request.missing, given)
    if {name: known.get(name) for name in wanted} != wanted:
        raise Conflict("Other values were given before.", type="request-settled", request_status=request.status)
