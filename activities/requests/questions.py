"""The content of an input request: the text for people, and the form of their answer."""

from pydantic import ValidationError

from activities.delegation.settle import DelegationRecord
from activities.requests import external_tools
from activities.requests.approved_files import command_of, files_to_approve
from activities.requests.external_tools import Described, Unaskable, make_callers_tool
from activities.requests.file_diff import diff_of
from activities.tools.builtin import ask_user, wait_for_event
from activities.tools.offered import Toolbox
from activities.tools.risks import find_risk
from activities.tools.rules import Rulebook, judge_call
from activities.tools.tool import BEGIN_DELEGATIONS, HAND_OVER, Tool
from domain.agents.definition import ExternalTool
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.json_schema import run_check
from domain.messages import calls_of
from domain.policy.rules import ApprovalRules, literal_pattern, rules_about
from domain.sessions.input_request import (
    ALWAYS_SCHEMA,
    PLAN_SCHEMA,
    InputRequest,
    OpenRequest,
    RequestKind,
    RequestStatus,
    SettledRequest,
    approval_schema,
)
from domain.sessions.session import AgentRef, CallState, EffectKind, preview
from domain.sessions.writes import ShownRequest, SpentSoFar
from store import input_requests, messages, tool_calls
from store.agents import Definitions
from store.database import Pool
from store.sessions import SessionRow

LONGEST_VALUE = 10_000  # characters of a value


class Questions:
    def __init__(self, pool: Pool, toolbox: Toolbox, definitions: Definitions, rulebook: Rulebook) -> None:
        self._pool = pool
        self._toolbox = toolbox
        self._definitions = definitions
        self._approvals = ApprovalQuestions(pool, rulebook)

    async def tool(self, session: SessionRow, agents: list[AgentRef], name: str, external: bool) -> Tool:
        """A tool of the platform, of the agent, or of the caller; older sessions did not record which. If its
        definition no longer exists, people are shown the bare call."""
        if not external and name in self._toolbox.tools:
            return self._toolbox.tools[name]
        if not external and agents:
            agent = await self._definitions.load(agents[-1])
            own = await self._toolbox.named(session.tenant, agent, agents[-1].side, name)
            if own is not None:
                return own
        gone = ExternalTool.model_construct(name=name, description="", input_schema={})
        return make_callers_tool(next((given for given in session.external_tools if given.name == name), gone))

    async def awaited_event(self, request: OpenRequest, session: SessionRow) -> JsonObject | None:
        """The arguments of a call that waits for an event; None if people are asked."""
        if request.kind is not RequestKind.EXTERNAL_RESULT or request.external:
            return None
        [node] = await messages.path(self._pool, request.ref.tenant, request.node, limit=1)
        call = calls_of(node)[request.index]
        if call.name != wait_for_event.TOOL.name:
            return None
        arguments = await self._approved(request, call.arguments)
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
            return await self._approvals.of(request, session, tool, call.arguments, spent)
        if request.kind is RequestKind.EXTERNAL_RESULT:
            tool = await self.tool(session, request.agents, call.name, request.external)
            arguments = await self._approved(request, call.arguments)
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

    async def _approved(self, request: OpenRequest, arguments: JsonObject) -> JsonObject:
        """The approved arguments, if a rule required an approval."""
        approval_id = derive_id(request.node, RequestKind.TOOL_APPROVAL, request.index)
        approval = await input_requests.get(self._pool, request.ref.tenant, approval_id)
        changed: JsonObject | None = (approval.answer or {}).get("arguments") if approval else None
        return arguments if changed is None else changed


async def _question(arguments: JsonObject, spent: SpentSoFar) -> ShownRequest:
    try:
        asked = ask_user.Input.model_validate(arguments)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()]
        raise Unaskable(ask_user.TOOL.name, "; ".join(lines[:20])) from None
    if reason := await run_check(ask_user.find_fault, asked):
        raise Unaskable(ask_user.TOOL.name, reason)
    return ShownRequest(
        question=asked.question,
        details={"options": asked.options, "so_far": spent.model_dump()},
        answer_schema=asked.answer_schema or None,
        default_answer=asked.default,
    )


# Approvals: the call, the rule, what it would change or run, and possible changes.


class ApprovalQuestions:
    def __init__(self, pool: Pool, rulebook: Rulebook) -> None:
        self._pool = pool
        self._rulebook = rulebook

    async def of(
        self, request: OpenRequest, session: SessionRow, tool: Tool, arguments: JsonObject, spent: SpentSoFar
    ) -> ShownRequest:
        details: JsonObject = {"tool": tool.name, "arguments": arguments, "so_far": spent.model_dump()}
        details |= {"external": True} if tool.external else {}
        gate = None
        if request.agents:
            layers = rules_about(await self._rulebook.layers(request.ref, request.agents), tool)
            gate = ApprovalRules(tool=tool, layers=layers)
            rule = judge_call(tool, arguments, layers).rule
            details |= {"rule": rule.model_dump(mode="json")} if rule else {}
            details |= {"always": [literal_pattern(one) for one in tool.call_subjects(arguments) or [""]]}
        details |= await self._files(session, tool, arguments)
        question = f"May {tool.name} run: {tool.call_summary(arguments)}?"
        found = await find_risk(self._pool, session.tenant, session.rules, tool.name, arguments)
        if found is not None:
            mission, risk = found
            question += f" The mission {mission.name} is paused, as this is a risk: {risk.text}."
            details |= {"mission_id": mission.id, "risk": risk.model_dump()}
        return ShownRequest(
            question=question,
            details=details | await self._change(session, tool, arguments),
            answer_schema=_changeable(tool),
            gate=gate,
        )

    async def _files(self, session: SessionRow, tool: Tool, arguments: JsonObject) -> JsonObject:
        """The files that a command would run. The approval covers them with their present content only."""
        if (command := command_of(tool, arguments)) is None:
            return {}
        found = await files_to_approve(self._pool, session.tenant, session.workspace_id, command)
        return found.model_dump(mode="json")

    async def _change(self, session: SessionRow, tool: Tool, arguments: JsonObject) -> dict[str, str]:
        if tool.change is None:
            return {}
        try:
            change = tool.change(tool.input.model_validate(arguments))
        except ValidationError:
            return {}
        return await diff_of(self._pool, session.tenant, session.workspace_id, change)


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
