"""Answers to input requests: who may give them, whether they fit, and how they are written down."""

from typing import Any

from api.auth import Caller
from api.http.problems import finding
from api.services import Services
from api.submission import rules as submission_rules
from domain.errors import Conflict, Invalid, NotAllowed
from domain.events import InputReceived
from domain.policy.approval_rules import ApprovalRules
from domain.policy.rules import Action
from domain.sessions.input_request import APPROVALS, InputRequest, RequestStatus
from store import events
from store.keys import Right
from store.sessions import SessionRow


def check(caller: Caller, request: InputRequest, value: Any) -> None:
    right = Right.APPROVE if request.kind in APPROVALS else Right.ANSWER
    if not caller.may(right, Right.SUPERVISE):
        raise NotAllowed(f"This is a {request.kind}, which needs a key with the right {right}.", needed=[right])
    if request.status is not RequestStatus.OPEN:
        raise settled(request.status)
    if request.answer_schema is not None:
        submission_rules.check_answer(request.answer_schema, value)
    if request.gate is not None and "arguments" in value:
        _check_change(ApprovalRules.model_validate(request.gate), value["arguments"])


def _check_change(approval_rules: ApprovalRules, arguments: dict[str, Any]) -> None:
    """An approver may change a call, but not to what a rule denies to everybody; the request stays open."""
    found = approval_rules.verdict(arguments)
    if found.action is not Action.DENY or found.rule is None:
        return
    denied = finding("/input/arguments", "denied", f"a rule denies this: {found.rule}")
    rule = found.rule.model_dump(mode="json")
    raise Invalid("The rules of the task forbid this call.", type="denied-by-rule", rule=rule, errors=[denied])


def document(caller: Caller, session: SessionRow, request: InputRequest, value: Any) -> dict[str, Any]:
    """As the store takes it."""
    told = InputReceived(request_id=request.id, kind=request.kind, by=caller.name)
    return {
        "tenant": caller.tenant,
        "id": request.id,
        "session_id": session.id,
        "answer": submission_rules.as_json(value),
        "by": caller.name,
        "actor": caller.created_by,
        "events": [events.to_row(session.ref, told)],
    }


def unknown(session: SessionRow) -> Conflict:
    return Conflict("The task has no such request.", type="unknown-request", task_status=session.status)


def settled(status: RequestStatus) -> Conflict:
    words = {
        RequestStatus.ANSWERED: "This request has been answered already.",
        RequestStatus.EXPIRED: "Nobody answered this request in time.",
        RequestStatus.WITHDRAWN: "The task no longer waits for this.",
    }
    return Conflict(words[status], type="request-settled", request_status=status)


async def tell(services: Services, session_id: str, request_id: str) -> None:
    """The answer stands in its row; the session is told that it is there."""
    if not await services.workflows.answered(session_id, request_id):
        services.retry_queue.add(
            f"the answer to {request_id}", lambda: services.workflows.answered(session_id, request_id)
        )
