"""The content of an approval request: the call, the rule, what it would change or run, and possible changes."""

from pydantic import ValidationError

from activities.requests.approved_files import command_of, files_to_approve
from activities.requests.file_diff import diff_of
from activities.tools.risks import find_risk
from activities.tools.rules import Rulebook, judge_call
from activities.tools.tool import BEGIN_DELEGATIONS, HAND_OVER, Tool
from domain.json_object import JsonObject
from domain.policy.approval_rules import ApprovalRules
from domain.policy.rules import about, literal
from domain.sessions.input_request import ALWAYS_SCHEMA, OpenRequest, approval_schema
from domain.sessions.request_writes import ShownRequest, SpentSoFar
from store.database import Pool
from store.sessions import SessionRow


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
            layers = about(await self._rulebook.layers(request.ref, request.agents), tool)
            gate = ApprovalRules(tool=tool, layers=layers)
            rule = judge_call(tool, arguments, layers).rule
            details |= {"rule": rule.model_dump(mode="json")} if rule else {}
            details |= {"always": [literal(one) for one in tool.call_subjects(arguments) or [""]]}
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
