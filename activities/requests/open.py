"""open_request and settle_request: a question becomes a row that people see, and its answer becomes a result."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.attempt import run_of, with_heartbeats
from activities.delegation.settle import DelegationRecord
from activities.requests import external_tools, questions
from activities.requests.external_tools import Described, Unaskable
from activities.requests.questions import Questions
from activities.tools import risks
from activities.tools.builtin import ask_user, wait_for_event
from activities.tools.offered import Toolbox
from activities.tools.rules import Rulebook, judge_call
from activities.tools.tool import Tool
from domain import events as ev
from domain.conversations.requests import Nothing
from domain.events import EventRow, InputEscalated, InputExpired, InputReminder, InputRequired
from domain.json_object import JsonObject
from domain.plan import Plan, PlanStep
from domain.policy.rules import Action
from domain.sessions.input_request import (
    InputRequest,
    OnExpiry,
    OpenedRequest,
    OpenRequest,
    RemindRequest,
    RequestKind,
    RequestStatus,
    SettledRequest,
    SettleRequest,
)
from domain.sessions.session import CallState, preview
from domain.sessions.writes import NewRequest, RequestOpening, RequestSettlement
from store import events, input_requests, sessions, triggers, variables
from store.agents import Definitions
from store.database import Pool
from store.sessions import SessionRow
from workflows.client import WorkflowClient

APPROVED = "Your plan was approved. Carry it out."
NOBODY = "Nobody answered in time."

ENOUGH = (
    "You have asked as many questions as one task may, so nobody was asked. Decide this yourself, and say in your "
    "result what you assumed."
)

WAIT_TOOL = wait_for_event.TOOL


class InputRequests:
    def __init__(
        self,
        pool: Pool,
        toolbox: Toolbox,
        definitions: Definitions,
        rulebook: Rulebook,
        conversations: WorkflowClient,
        max_questions: int,
    ) -> None:
        self._pool = pool
        self._conversations = conversations
        self._questions = Questions(pool, toolbox, definitions, rulebook)
        self._rulebook = rulebook
        self._max_questions = max_questions

    @activity.defn(name="open_request")
    @with_heartbeats
    async def open_request(self, request: OpenRequest) -> OpenedRequest:
        session = await self._session(request)
        if request.form and not session.may_ask:
            return OpenedRequest(deadline=request.deadline, refused=True)
        try:
            awaited = await self._questions.awaited_event(request, session)
            if awaited is not None:
                opened_wait = await open_wait(self._pool, request, session, awaited)
                return opened_wait or await self._refuse(request, WAIT_TOOL.name, "The session has ended.")
            question = await self._questions.of(request, session)
        except Unaskable as error:
            return await self._refuse(request, error.tool, str(error), described=isinstance(error, Described))
        config = session.task.config
        deadline = min(request.deadline, _later(config.input_timeout) or request.deadline)
        row = NewRequest(
            **dict(question),
            id=request.id,
            conversation_id=request.ref.conversation_id,
            session_id=request.ref.session_id,
            kind=request.kind,
            deadline=deadline,
            on_expiry=config.on_input_timeout or OnExpiry.CANCEL,
        )
        event = InputRequired(
            request_id=request.id,
            kind=request.kind,
            question=row.question,
            options=row.details.get("options") or [],
            deadline=deadline,
        )
        opening = RequestOpening(
            tenant=request.ref.tenant,
            run=run_of(request.ref),
            request=row,
            most=self._max_questions if request.kind is RequestKind.CLARIFICATION else None,
            events=[EventRow.of(request.ref, event)],
        )
        opened = await input_requests.open_request(self._pool, opening)
        if opened is None and request.form:
            return OpenedRequest(deadline=request.deadline, refused=True)
        if opened is None:
            return await self._refuse(request, ask_user.TOOL.name, ENOUGH)
        return OpenedRequest(
            deadline=opened.deadline,
            settled=opened.status is not RequestStatus.OPEN,
            shown=_shown(row),
            remind_at=_later(config.reminder_after),
            escalate_at=_later(config.escalate_after) if config.escalates_to(request.kind) else None,
        )

    async def _session(self, request: OpenRequest | SettleRequest) -> sessions.SessionRow:
        session = await sessions.get(self._pool, request.ref.tenant, request.ref.session_id)
        assert session is not None
        return session

    async def _refuse(self, request: OpenRequest, tool: str, why: str, *, described: bool = False) -> OpenedRequest:
        record = DelegationRecord(self._pool, request.ref, request.node)
        await record.claim(request.index, tool, "")
        await record.settle(request.index, tool, CallState.OK if described else CallState.FAILED, why, [])
        return OpenedRequest(deadline=request.deadline, refused=not described, described=described)

    @activity.defn(name="settle_request")
    @with_heartbeats
    async def settle_request(self, settle: SettleRequest) -> SettledRequest:
        expired = InputExpired(request_id=settle.id, kind=settle.kind)
        request = await input_requests.settle(
            self._pool,
            RequestSettlement(
                tenant=settle.ref.tenant,
                run=run_of(settle.ref),
                id=settle.id,
                expired=[EventRow.of(settle.ref, expired)],
            ),
        )
        if settle.form:  # the call that it belongs to continues, and sends the answer on
            answered = request.status is RequestStatus.ANSWERED
            return SettledRequest(status=request.status, approved=answered, cancel=_cancels(request))
        if request.kind is RequestKind.PLAN_APPROVAL:
            return await self._plan(settle, request)
        if request.kind is RequestKind.TOOL_APPROVAL:
            return await self._tool(settle, request)
        if request.kind is RequestKind.MISSING_VARIABLES:
            await variables.set_for_session(self._pool, settle.ref, request.answer or {})
            return questions.settle_variables(request, cancel=_cancels(request))
        if request.kind is RequestKind.EXTERNAL_RESULT:
            return await self._external(settle, request)
        if request.kind is RequestKind.EXTERNAL_EVENT:
            state, text = read_event(request)
            await self._result(settle, WAIT_TOOL.name, state, text, request.question)
            return SettledRequest(status=request.status, approved=state is CallState.OK, preview=preview(text, 160))
        return await self._answer(settle, request)

    async def _external(self, settle: SettleRequest, request: InputRequest) -> SettledRequest:
        state, text = external_tools.read_result(request)
        await self._result(settle, request.details["tool"], state, text, external_tools.summarise_call(request))
        return SettledRequest(
            status=request.status, approved=state is CallState.OK, cancel=_cancels(request), preview=preview(text, 160)
        )

    async def _answer(self, settle: SettleRequest, request: InputRequest) -> SettledRequest:
        answer, known = request.answer, request.status is RequestStatus.ANSWERED
        if not known and request.on_expiry is OnExpiry.DEFAULT:
            answer, known = request.default_answer, request.default_answer is not None
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        if not known:
            text = f"{NOBODY} Continue without an answer."
        elif request.status is not RequestStatus.ANSWERED:
            text = f"{NOBODY} Continue with what you named as the default: {text}"
        await self._result(settle, ask_user.TOOL.name, CallState.OK if known else CallState.FAILED, text)
        return SettledRequest(
            status=request.status, approved=known, cancel=_cancels(request), preview=preview(text, 160)
        )

    async def _tool(self, settle: SettleRequest, request: InputRequest) -> SettledRequest:
        answer = request.answer or {}
        session = await self._session(settle)
        external = "external" in request.details
        tool = await self._questions.tool(session, settle.agents, request.details["tool"], external)
        if request.status is not RequestStatus.ANSWERED:
            why = NOBODY
        elif not answer["approved"]:
            why = f"A person denied this call: {answer.get('notes') or 'no reason given'}."
        elif forbidden := await self._forbidden(settle, tool, answer):
            why = f"A person approved this call with other arguments, which the rules of this task forbid: {forbidden}."
        else:
            await risks.resume_mission(self._pool, self._conversations, settle.ref, session.rules)
            return SettledRequest(status=request.status, approved=True)
        summary = tool.call_summary(request.details["arguments"])
        await self._result(settle, tool.name, CallState.FAILED, f"{why} It was not run.", summary, asks=tool.asks)
        return SettledRequest(status=request.status, cancel=_cancels(request), preview=preview(why, 160))

    async def _forbidden(self, settle: SettleRequest, tool: Tool, answer: JsonObject) -> str | None:
        """An approver may change a call, but only within the rules. The API refuses other changes when the request is
        answered; this check is the one that decides."""
        if "arguments" not in answer:
            return None
        found = judge_call(tool, answer["arguments"], await self._rulebook.layers(settle.ref, settle.agents))
        return found.because if found.action is Action.DENY else None

    async def _plan(self, settle: SettleRequest, request: InputRequest) -> SettledRequest:
        answer = request.answer or {}
        notes = f" Notes: {answer['notes']}" if answer.get("notes") else ""
        if not answer.get("approved"):
            why = "Your plan was not approved." if answer else NOBODY
            note = f"{why}{notes} Change it and submit it again with update_plan; nothing with an effect runs before."
            return SettledRequest(status=request.status, cancel=_cancels(request), note=note)
        if titles := answer.get("plan"):
            plan = Plan(steps=[PlanStep(title=title) for title in titles])
            await input_requests.set_plan(
                self._pool, settle.ref, plan, [EventRow.of(settle.ref, ev.PlanUpdated(steps=plan.steps))]
            )
            steps = "\n".join(f"{number}. {title}" for number, title in enumerate(titles, start=1))
            return SettledRequest(
                status=request.status, approved=True, note=f"{APPROVED} It was changed to:\n{steps}\n{notes}".rstrip()
            )
        return SettledRequest(status=request.status, approved=True, note=APPROVED + notes)

    async def _result(
        self, settle: SettleRequest, tool: str, state: CallState, text: str, summary: str = "", *, asks: bool = False
    ) -> None:
        record = DelegationRecord(self._pool, settle.ref, settle.node)
        await record.claim(settle.index, tool, summary, asks=asks)
        await record.settle(settle.index, tool, state, text, [])


def _later(milliseconds: int | None) -> datetime | None:
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds) if milliseconds else None


def _cancels(request: InputRequest) -> bool:
    return request.status is RequestStatus.EXPIRED and request.on_expiry is OnExpiry.CANCEL


def _shown(row: NewRequest) -> str:
    """The question and the rule that caused it, for Temporal's Web UI."""
    rule = row.details.get("rule")
    because = f' (rule: {rule["action"]} {rule["permission"]} "{rule["pattern"]}")' if rule else ""
    return preview(row.question) + because[:200]


class Reminders:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @activity.defn(name="remind_request")
    @with_heartbeats
    async def remind_request(self, remind: RemindRequest) -> Nothing:
        ref = remind.ref
        request = await input_requests.get(self._pool, ref.tenant, remind.id)
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if request is None or session is None or request.status is not RequestStatus.OPEN:
            return Nothing()
        shown = {name: getattr(request, name) for name in ("kind", "question", "deadline")}
        event: InputRequired = InputReminder(request_id=request.id, **shown)
        if remind.escalate and (to := session.task.config.escalates_to(request.kind)) is not None:
            event = InputEscalated(request_id=request.id, to=to, **shown)
        # A repeated attempt uses the same batch name, so nothing is emitted twice.
        await events.append(self._pool, f"{request.id}/{event.type}", [EventRow.of(ref, event)], again=True)
        return Nothing()


# Waits for events: requests that only an event answers. The event becomes the result of the call.


async def open_wait(
    pool: Pool, request: OpenRequest, session: SessionRow, arguments: dict[str, Any]
) -> OpenedRequest | None:
    """Open the wait; None if the session has ended. Raises Unaskable, with the other session for the model, if another
    session waits for the key."""
    try:
        given = wait_for_event.Input.model_validate(arguments)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()]
        raise Unaskable(WAIT_TOOL.name, "; ".join(lines[:20])) from None
    deadline = min(request.deadline, datetime.now(UTC) + timedelta(seconds=given.timeout_s))
    row = NewRequest(
        id=request.id,
        conversation_id=request.ref.conversation_id,
        session_id=request.ref.session_id,
        kind=RequestKind.EXTERNAL_EVENT,
        question=f"waits for the event {given.key}",
        details={"tool": WAIT_TOOL.name, "arguments": arguments, "trigger": given.trigger},
        deadline=deadline,
        on_expiry=OnExpiry.DENY,
        event_key=given.key,
    )
    opening = RequestOpening(tenant=request.ref.tenant, run=run_of(request.ref), request=row)
    found = await triggers.open_wait(pool, opening, given.trigger, session.created_at)
    if found.held_by is not None:
        raise Unaskable(WAIT_TOOL.name, f"the task {found.held_by} waits for {given.key!r} already")
    if found.opened is None:
        return None
    return OpenedRequest(deadline=found.opened.deadline, settled=found.opened.status is not RequestStatus.OPEN)


def read_event(request: InputRequest) -> tuple[CallState, str]:
    """The state and the text of the call's result."""
    if request.status is not RequestStatus.ANSWERED:
        key = request.details["arguments"]["key"]
        return CallState.FAILED, f"No event with the key {key} arrived in time."
    return CallState.OK, str(request.answer["text"])
