"""open_request and settle_request: a question becomes a row that people see, and its answer becomes a result."""

import json
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.attempt import run_of, with_heartbeats
from activities.definitions import Definitions
from activities.delegation.record import DelegationRecord
from activities.requests import event_waits, external_tools, missing_variables
from activities.requests.external_tools import Described, Unaskable
from activities.requests.questions import Questions
from activities.tools import risks
from activities.tools.builtin import ask_user
from activities.tools.offered import Toolbox
from activities.tools.rules import Rulebook, judge_call
from activities.tools.tool import Tool
from domain import events as ev
from domain.events import EventRow, InputExpired, InputRequired
from domain.json_object import JsonObject
from domain.plan import Plan, PlanStep
from domain.policy.rules import Action
from domain.sessions.input_request import (
    InputRequest,
    OnExpiry,
    OpenedRequest,
    OpenRequest,
    RequestKind,
    RequestStatus,
    SettledRequest,
    SettleRequest,
)
from domain.sessions.request_writes import NewRequest, RequestOpening, RequestSettlement
from domain.sessions.step import CallState, preview
from store import input_requests, sessions, thread_variables
from store.database import Pool
from workflows.client import WorkflowClient

APPROVED = "Your plan was approved. Carry it out."
NOBODY = "Nobody answered in time."
ENOUGH = (
    "You have asked as many questions as one task may, so nobody was asked. Decide this yourself, and say in your "
    "result what you assumed."
)


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
                opened_wait = await event_waits.open_wait(self._pool, request, session, awaited)
                return opened_wait or await self._refuse(request, event_waits.TOOL.name, "The session has ended.")
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
            await thread_variables.set_asked(self._pool, settle.ref, request.answer or {})
            return missing_variables.settled(request, cancel=_cancels(request))
        if request.kind is RequestKind.EXTERNAL_RESULT:
            return await self._external(settle, request)
        if request.kind is RequestKind.EXTERNAL_EVENT:
            state, text = event_waits.outcome(request)
            await self._result(settle, event_waits.TOOL.name, state, text, request.question)
            return SettledRequest(status=request.status, approved=state is CallState.OK, preview=preview(text, 160))
        return await self._answer(settle, request)

    async def _external(self, settle: SettleRequest, request: InputRequest) -> SettledRequest:
        state, text = external_tools.outcome(request)
        await self._result(settle, request.details["tool"], state, text, external_tools.summary(request))
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
