"""activate: starts the subagents that begin with a prompt, before its first model step.

The calls are recorded as a reply of the platform and run like those of a model; the same claims make sure that they run
once. Models are shown their results, but neither the calls nor their arguments.
"""

from errand.models import RegistryEntry
from temporalio import activity

from activities.delegation.agent_tools import CREATE, find_enabled
from activities.model.call_model import CallModel
from activities.tools.offered import Offered
from domain.agents.definition import AgentDefinition, Immediate, SubagentTool
from domain.agents.variables import resolve_values
from domain.conversations.subagents import TERMINATED
from domain.messages import USER, ModelResponse, Node, ToolCallBlock, text_of
from domain.policy.rules import Rule
from domain.redaction import is_sealed
from domain.sessions.session import ModelCall, ModelReply, StopReason
from store.messages import StepFacts

BEGIN = "Begin."  # the first message of a child whose parent has no text to pass on
MOST_NAME = 63


class Activate(CallModel):
    """The activity. It works like a model call, but the reply follows from the agent's definition."""

    platform_alone = True

    @activity.defn(name="activate")
    async def activate(self, call: ModelCall) -> ModelReply:
        return await self.reply_to(call)

    async def offered(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        return await self.toolbox.immediate(call, agents[-1], facts)

    async def ask(
        self,
        call: ModelCall,
        agent: AgentDefinition,
        nodes: list[Node],
        tools: Offered,
        facts: StepFacts,
        turn: ModelResponse,
    ) -> None:
        variables = {
            name: value for name, value in resolve_values(agent, facts.variables).items() if not is_sealed(value)
        }
        task = _task(nodes)
        turn.immediate, turn.stop_reason = True, StopReason.TOOL_CALLS
        for one in find_enabled(agent, facts.variables):
            if one.immediate is None or (CREATE if one.resumable else one.name) not in tools:
                continue
            name = _name(one, one.immediate, variables)
            if one.resumable and _is_there(facts.registry, one.name, name):
                continue  # started by an earlier activation; it keeps its thread
            text = variables.get(one.immediate.description_env or "", "").strip() or task
            arguments = {one.init_user_message_property or "message": text}
            if one.immediate.name_env:
                arguments[one.init_agent_name_property or "name"] = name
            if one.resumable:
                arguments = {"agent": one.name, "name": name, "message": text}
            turn.content.append(
                ToolCallBlock(
                    id=f"immediate_{call.step}_{len(turn.content)}",
                    name=CREATE if one.resumable else one.name,
                    arguments=arguments,
                )
            )


def _task(nodes: list[Node]) -> str:
    """The thread's latest request."""
    asked = [text_of(node) for node in nodes if node.kind == USER]
    return next((text for text in reversed(asked) if text.strip()), BEGIN)


def _name(tool: SubagentTool, immediate: Immediate, variables: dict[str, str]) -> str:
    return variables.get(immediate.name_env or "", "").strip()[:MOST_NAME] or tool.name


def _is_there(registry: list[RegistryEntry], agent: str, name: str) -> bool:
    return any(
        entry.resumable and entry.agent == agent and entry.name == name and entry.status != TERMINATED
        for entry in registry
    )
