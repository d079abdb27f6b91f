"""open_request and settle_request: a question becomes a row that people see, and its answer becomes a result. The text
for people and the form of their answer are below."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from activities.attempt import run_of, with_heartbeats
from activities.delegation.settle import DelegationRecord
from activities.requests import external_tools
from activities.requests.approved_files import command_of, diff_of, files_to_approve
from activities.requests.external_tools import Described, Unaskable, make_callers_tool
from activities.tools import risks
from activities.tools.builtin import ask_user, wait_for_event
from activities.tools.offered import Toolbox
from activities.tools.risks import find_risk
from activities.tools.rules import judge_call, load_layers
from activities.tools.tool import BEGIN_DELEGATIONS, HAND_OVER, Tool, list_problems
from domain import events as ev
from domain.agents.definition import ExternalTool
from domain.conversations.requests import Nothing
from domain.events import EventRow, InputEscalated, InputExpired, InputReminder, InputRequired
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.json_schema import run_check
from domain.messages import calls_of
from domain.plan import Plan, PlanStep
from domain.policy.rules import Action, ApprovalRules, SubjectKind, literal_pattern, rules_about
from domain.sessions.input_request import (
    ALWAYS_SCHEMA,
    PLAN_SCHEMA,
    InputRequest,
    OnExpiry,
    OpenedRequest,
    OpenRequest,
    RemindRequest,
    RequestKind,
    RequestStatus,
    SettledRequest,
    approval_schema,
)
from domain.sessions.session import AgentRef, CallState, EffectKind, SandboxMode, preview
from domain.sessions.writes import NewRequest, RequestOpening, RequestSettlement, ShownRequest, SpentSoFar
from store import events, input_requests, messages, sessions, tool_calls, triggers, variables
from store.agents import load_view
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


@dataclass
class InputRequests:
    _pool: Pool
    _questions: "Questions"
    _workflows: WorkflowClient
    _max_questions: int  # of a session

    @activity.defn(name="open_request")
    @with_heartbeats
    async def open_request(self, request: OpenRequest) -> OpenedRequest:
        session = await sessions.load(self._pool, request.ref)
        if request.form and not session.may_ask:
            return OpenedRequest(deadline=request.deadline, refused=True)
        try:
            awaited = await self._questions.find_awaited_event(request, session)
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
            shown=_describe_row(row),
            remind_at=_later(config.reminder_after),
            escalate_at=_later(config.escalate_after) if config.escalates_to(request.kind) else None,
        )

    async def _refuse(self, request: OpenRequest, tool: str, why: str, *, described: bool = False) -> OpenedRequest:
        record = DelegationRecord(self._pool, request.ref, request.node)
        await record.claim(request.index, tool, "")
        await record.settle(request.index, tool, CallState.OK if described else CallState.FAILED, why, [])
        return OpenedRequest(deadline=request.deadline, refused=not described, described=described)

    @activity.defn(name="settle_request")
    @with_heartbeats
    async def settle_request(self, settle: OpenRequest) -> SettledRequest:
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
            return settle_variables(request, cancel=_cancels(request))
        if request.kind in (RequestKind.EXTERNAL_RESULT, RequestKind.EXTERNAL_EVENT):
            return await self._external(settle, request)
        return await self._answer(settle, request)

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

    async def _external(self, settle: OpenRequest, request: InputRequest) -> SettledRequest:
        if request.kind is RequestKind.EXTERNAL_EVENT:
            (state, text), about = read_event(request), request.question
        else:
            (state, text), about = external_tools.read_result(request), external_tools.summarise_call(request)
        await self._result(settle, request.details["tool"], state, text, about)
        return SettledRequest(
            status=request.status, approved=state is CallState.OK, cancel=_cancels(request), preview=preview(text, 160)
        )

    async def _answer(self, settle: OpenRequest, request: InputRequest) -> SettledRequest:
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

    async def _tool(self, settle: OpenRequest, request: InputRequest) -> SettledRequest:
        answer = request.answer or {}
        session = await sessions.load(self._pool, settle.ref)
        external = "external" in request.details
        tool = await self._questions.tool(session, settle.agents, request.details["tool"], external)
        if request.status is not RequestStatus.ANSWERED:
            why = NOBODY
        elif not answer["approved"]:
            why = f"A person denied this call: {answer.get('notes') or 'no reason given'}."
        elif forbidden := await self._find_forbidden(settle, tool, answer):
            why = f"A person approved this call with other arguments, which the rules of this task forbid: {forbidden}."
        else:
            await risks.resume_mission(self._pool, self._workflows, settle.ref, session.rules)
            return SettledRequest(status=request.status, approved=True)
        summary = tool.call_summary(request.details["arguments"])
        await self._result(settle, tool.name, CallState.FAILED, f"{why} It was not run.", summary, asks=tool.asks)
        return SettledRequest(status=request.status, cancel=_cancels(request), preview=preview(why, 160))

    async def _find_forbidden(self, settle: OpenRequest, tool: Tool, answer: JsonObject) -> str | None:
        """An approver may change a call, but only within the rules. The API refuses other changes when the request is
        answered; this check is the one that decides."""
        if "arguments" not in answer:
            return None
        layers = await load_layers(self._pool, settle.ref, settle.agents)
        found = judge_call(tool, answer["arguments"], layers)
        return found.because if found.action is Action.DENY else None

    async def _plan(self, settle: OpenRequest, request: InputRequest) -> SettledRequest:
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
        self, settle: OpenRequest, tool: str, state: CallState, text: str, summary: str = "", *, asks: bool = False
    ) -> None:
        record = DelegationRecord(self._pool, settle.ref, settle.node)
        await record.claim(settle.index, tool, summary, asks=asks)
        await record.settle(settle.index, tool, state, text, [])


def _later(milliseconds: int | None) -> datetime | None:
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds) if milliseconds else None


def _cancels(request: InputRequest) -> bool:
    return request.status is RequestStatus.EXPIRED and request.on_expiry is OnExpiry.CANCEL


def _describe_row(row: NewRequest) -> str:
    """The question and the rule that caused it, for Temporal's Web UI."""
    rule = row.details.get("rule")
    because = f' (rule: {rule["action"]} {rule["permission"]} "{rule["pattern"]}")' if rule else ""
    return preview(row.question) + because[:200]


# Waits for events: requests that only an event answers. The event becomes the result of the call.


async def open_wait(
    pool: Pool, request: OpenRequest, session: SessionRow, arguments: dict[str, Any]
) -> OpenedRequest | None:
    """Open the wait; None if the session has ended. Raises Unaskable, with the other session for the model, if another
    session waits for the key."""
    try:
        given = wait_for_event.Input.model_validate(arguments)
    except ValidationError as error:
        raise Unaskable(WAIT_TOOL.name, "; ".join(list_problems(error))) from None
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


# The content of an input request: the text for people, and the form of their answer.


LONGEST_VALUE = 10_000  # characters of a value


@dataclass
class Questions:
    _pool: Pool
    _toolbox: Toolbox

    async def tool(self, session: SessionRow, agents: list[AgentRef], name: str, external: bool) -> Tool:
        """A tool of the platform, of the agent, or of the caller. If its
        definition no longer exists, people are shown the bare call."""
        if not external and name in self._toolbox.tools:
            return self._toolbox.tools[name]
        if not external:
            agent = await load_view(self._pool, agents[-1])
            own = await self._toolbox.find_own(session.tenant, agent, agents[-1].side, name)
            if own is not None:
                return own
        gone = ExternalTool.model_construct(name=name, description="", input_schema={})
        return make_callers_tool(next((given for given in session.external_tools if given.name == name), gone))

    async def find_awaited_event(self, request: OpenRequest, session: SessionRow) -> JsonObject | None:
        """The arguments of a call that waits for an event; None if people are asked."""
        if request.kind is not RequestKind.EXTERNAL_RESULT or request.external:
            return None
        [node] = await messages.path(self._pool, request.ref.tenant, request.node, limit=1)
        call = calls_of(node)[request.index]
        if call.name != wait_for_event.TOOL.name:
            return None
        arguments = await self._find_arguments(request, call.arguments)
        summary = wait_for_event.TOOL.call_summary(arguments)
        await self._claim(request, call.name, summary)
        if session.dry_run:
            raise Described(call.name, summary)
        return arguments

    async def of(self, request: OpenRequest, session: SessionRow) -> ShownRequest:
        """The request for people. Raises Unaskable if nobody could answer it."""
        usage = session.usage
        spent = SpentSoFar(cost_usd=usage.cost_usd, tokens=usage.tokens, steps=session.step)
        if request.kind is RequestKind.MISSING_VARIABLES:
            return ask_for_variables(session.missing, spent)
        if request.kind is RequestKind.PLAN_APPROVAL:
            steps = [step.title for step in session.plan.steps] if session.plan else []
            return ShownRequest(
                question="May this plan be carried out?",
                details={"plan": steps, "so_far": spent.model_dump()},
                answer_schema=approval_schema(plan=PLAN_SCHEMA),
            )
        [node] = await messages.path(self._pool, request.ref.tenant, request.node, limit=1)
        call = calls_of(node)[request.index]
        if request.form:
            tool = await self.tool(session, request.agents, call.name, request.external)
            return await self._form(request, tool, spent)
        if request.kind is RequestKind.TOOL_APPROVAL:
            tool = await self.tool(session, request.agents, call.name, request.external)
            return await self._approval(request, session, tool, call.arguments, spent)
        if request.kind is RequestKind.EXTERNAL_RESULT:
            tool = await self.tool(session, request.agents, call.name, request.external)
            arguments = await self._find_arguments(request, call.arguments)
            question = await external_tools.ask_for_result(tool, arguments, spent)
            await self._claim(request, tool.name, tool.call_summary(arguments), tool.kind)
            if session.dry_run:
                raise Described(tool.name, tool.call_summary(arguments))
            return question
        summary = preview(str(call.arguments.get("question", "")), 200)
        await self._claim(request, call.name, summary, asks=ask_user.TOOL.asks)
        return await _question(call.arguments, spent)

    async def _form(self, request: OpenRequest, tool: Tool, spent: SpentSoFar) -> ShownRequest:
        """A question of the other side of a call. Its text is not an instruction, and people are shown its source."""
        remote = await tool_calls.get_remote(self._pool, request.ref.tenant, request.node, request.index)
        assert remote is not None
        form = remote.forms[request.form - 1]
        host = tool.subject.fixed if tool.subject else None
        lines = [f"> {line}" for line in form.message.splitlines()]
        return ShownRequest(
            question="\n".join([f"{tool.name} asks in the name of {host or 'its server'}:", *lines]),
            details={"tool": tool.name, "so_far": spent.model_dump()},
            answer_schema=form.answer_schema,
        )

    async def _claim(
        self, request: OpenRequest, tool: str, summary: str, kind: EffectKind | None = None, *, asks: bool = False
    ) -> None:
        record = DelegationRecord(self._pool, request.ref, request.node)
        known = await record.claim(request.index, tool, summary, kind, asks=asks)
        if known is None:
            return
        if known.spent:
            raise Unaskable(tool, "no more calls are allowed")
        if (
            known.state is CallState.FAILED
            and await input_requests.get(self._pool, request.ref.tenant, request.id) is None
        ):
            # An earlier attempt refused it and was cut off. The model sees that result, so nobody may be asked now.
            raise Unaskable(tool, known.preview)

    async def _find_arguments(self, request: OpenRequest, arguments: JsonObject) -> JsonObject:
        """The approved arguments, if a rule required an approval."""
        approval_id = derive_id(request.node, RequestKind.TOOL_APPROVAL, request.index)
        approval = await input_requests.get(self._pool, request.ref.tenant, approval_id)
        changed: JsonObject | None = (approval.answer or {}).get("arguments") if approval else None
        return arguments if changed is None else changed

    # approvals: the call, the rule, what it would change or run, and possible changes

    async def _approval(
        self, request: OpenRequest, session: SessionRow, tool: Tool, arguments: JsonObject, spent: SpentSoFar
    ) -> ShownRequest:
        details: JsonObject = {"tool": tool.name, "arguments": arguments, "so_far": spent.model_dump()}
        details |= {"external": True} if tool.external else {}
        all_layers = await load_layers(self._pool, request.ref, request.agents)
        layers = rules_about(all_layers, tool)
        rule = judge_call(tool, arguments, layers).rule
        details |= {"rule": rule.model_dump(mode="json")} if rule else {}
        details |= {"always": [literal_pattern(one) for one in tool.call_subjects(arguments) or [""]]}
        details |= await self._reach(session, request.agents, tool, arguments)
        if (command := command_of(tool, arguments)) is not None:  # approved with the present content of its files only
            files = await files_to_approve(self._pool, session.tenant, session.workspace_id, command)
            details |= files.model_dump(mode="json", exclude_defaults=True)
        question = f"May {tool.name} run: {tool.call_summary(arguments)}?"
        found = await find_risk(self._pool, session.tenant, session.rules, tool.name, arguments)
        if found is not None:
            mission, risk = found
            question += f" The mission {mission.rules.name} is paused, as this is a risk: {risk.text}."
            details |= {"schedule_id": mission.id, "risk": risk.model_dump()}
        return ShownRequest(
            question=question,
            details=details | await self._change(session, tool, arguments),
            answer_schema=_changeable(tool),
            gate=ApprovalRules(tool=tool, layers=layers),
        )

    async def _reach(
        self, session: SessionRow, agents: list[AgentRef], tool: Tool, arguments: JsonObject
    ) -> JsonObject:
        """What is known for certain: whether it may run twice, the hosts it names, that its command has no network."""
        found: JsonObject = {} if tool.external else {"effect": tool.effect.value}
        if tool.subject and tool.subject.kind is SubjectKind.HOST:
            found["hosts"] = tool.call_subjects(arguments) or []
        config = session.task.config
        if tool.kind is EffectKind.COMMAND and config.environment is None:
            agent = await load_view(self._pool, agents[-1])
            if config.sandbox is SandboxMode.ISOLATED or not agent.network:
                found["network"] = False
        return found

    async def _change(self, session: SessionRow, tool: Tool, arguments: JsonObject) -> dict[str, str]:
        if tool.change is None:
            return {}
        try:
            change = tool.change(tool.input.model_validate(arguments))
        except ValidationError:
            return {}
        return await diff_of(self._pool, session.tenant, session.workspace_id, change)


async def _question(arguments: JsonObject, spent: SpentSoFar) -> ShownRequest:
    try:
        asked = ask_user.Input.model_validate(arguments)
    except ValidationError as error:
        raise Unaskable(ask_user.TOOL.name, "; ".join(list_problems(error))) from None
    if reason := await run_check(ask_user.find_fault, asked):
        raise Unaskable(ask_user.TOOL.name, reason)
    return ShownRequest(
        question=asked.question,
        details={"options": asked.options, "so_far": spent.model_dump()},
        answer_schema=asked.answer_schema or None,
        default_answer=asked.default,
    )


def _changeable(tool: Tool) -> JsonObject:
    """The schema of an answer. A person may change neither the agent nor the prompt of a delegation."""
    if tool.delegates or tool.activity in (BEGIN_DELEGATIONS, HAND_OVER):
        return approval_schema(always=ALWAYS_SCHEMA)
    return approval_schema(arguments=tool.definition.input_schema, always=ALWAYS_SCHEMA)


# Missing variables: one request asks for all values that a session needs before it can begin.


def ask_for_variables(missing: dict[str, str], spent: SpentSoFar) -> ShownRequest:
    named = "; ".join(f"{name} ({description})" for name, description in missing.items())
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "string", "minLength": 1, "maxLength": LONGEST_VALUE, "description": description}
            for name, description in missing.items()
        },
        "required": list(missing),
        "additionalProperties": False,
    }
    return ShownRequest(
        question=f"Before it can begin, this task needs: {named}",
        details={"variables": missing, "so_far": spent.model_dump()},
        answer_schema=schema,
    )


def settle_variables(request: InputRequest, *, cancel: bool) -> SettledRequest:
    """The result for the agent. The values stay in the row; the agent only learns which ones it will not get."""
    if request.status is RequestStatus.ANSWERED:
        return SettledRequest(status=request.status, approved=True)
    names = ", ".join(request.details["variables"])
    note = f"Nobody gave these variables in time: {names}. Do what is possible without them, and say what is not."
    return SettledRequest(status=request.status, cancel=cancel, note=note)
