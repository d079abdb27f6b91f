"""Answers to input requests: check them, build their rows, signal the waiting session."""

import json
from typing import Any

from api.http.auth import Call, Caller
from api.http.problems import finding
from api.services import Services
from api.submission import rules as submission_rules
from domain.agents.secret_variables import seal_secrets
from domain.agents.variable_scope import graph_variables
from domain.errors import Conflict, Invalid, NotAllowed
from domain.events import EventRow, InputReceived
from domain.json_object import JsonObject
from domain.policy.approval_rules import ApprovalRules
from domain.policy.rules import Action
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind, RequestStatus
from domain.sessions.request_writes import RequestAnswer
from store import agent_graph, agents
from store.keys import Right
from store.sessions import SessionRow


async def check(caller: Caller, request: InputRequest, value: Any) -> None:
    """Refuse an answer that the caller may not give, or that does not fit the request."""
    # the right first: a key without it must not find out whether the request is still open
    right = Right.APPROVE if request.kind in APPROVALS else Right.ANSWER
    if not caller.may(right, Right.SUPERVISE):
        raise NotAllowed(f"This is a {request.kind}, which needs a key with the right {right}.", needed=[right])
    if request.status is not RequestStatus.OPEN:
        raise settled(request.status)
    if request.answer_schema is not None:
        await submission_rules.check_answer(request.answer_schema, value)
    if request.gate is not None and "arguments" in value:
        _check_change(ApprovalRules.model_validate(request.gate), value["arguments"])


def _check_change(approval_rules: ApprovalRules, arguments: JsonObject) -> None:
    """Refuse changes of an approver that a rule denies to everybody; the request stays open."""
    found = approval_rules.verdict(arguments)
    if found.action is not Action.DENY or found.rule is None:
        return
    denied = finding("/input/arguments", "denied", f"a rule denies this: {found.rule}")
    rule = found.rule.model_dump(mode="json")
    raise Invalid("The rules of the task forbid this call.", type="denied-by-rule", rule=rule, errors=[denied])


async def sealed(call: Call, session: SessionRow, request: InputRequest, value: Any) -> Any:
    """The answer as it is stored: values of secret variables are encrypted."""
    if request.kind is not RequestKind.MISSING_VARIABLES:
        return value
    # the whole graph, because a value may be for a subagent, whose definition says whether it is a secret
    definition = await agents.load(call.pool, session.agent_ref)
    known = graph_variables(await agent_graph.reachable(call.pool, call.tenant, definition))
    return seal_secrets(call.services.keys, call.tenant, value, known)


def to_write(caller: Caller, session: SessionRow, request: InputRequest, value: Any) -> RequestAnswer:
    """The answer as the store takes it, with its event."""
    received = InputReceived(request_id=request.id, kind=request.kind, by=caller.name)
    return RequestAnswer(
        tenant=caller.tenant,
        id=request.id,
        session_id=session.id,
        answer=json.dumps(value),
        by=caller.name,
        # the id, because names of keys may repeat
        actor=caller.created_by,
        events=[EventRow.of(session.ref, received)],
    )


def unknown(session: SessionRow) -> Conflict:
    return Conflict("The task has no such request.", type="unknown-request", task_status=session.status)


def settled(status: RequestStatus) -> Conflict:
    details = {
        RequestStatus.ANSWERED: "This request has been answered already.",
        RequestStatus.EXPIRED: "Nobody answered this request in time.",
        RequestStatus.WITHDRAWN: "The task no longer waits for this.",
    }
    return Conflict(details[status], type="request-settled", request_status=status)


async def signal(services: Services, session_id: str, request_id: str) -> None:
    """Signal to the session that its request was answered; retry in the background if Temporal is unreachable."""
    # The row is written before this. A lost signal only delays the session: the sweeper finds answered requests.
    if not await services.workflows.answered(session_id, request_id):
        services.retry_queue.add(
            f"the answer to {request_id}", lambda: services.workflows.answered(session_id, request_id)
        )
