"""Additions of a task: tools that its caller answers, variables of its agent, and a form of its answer."""

import asyncio
from collections.abc import Mapping
from functools import partial

from api.http.auth import Call
from api.http.problems import finding
from api.submission import rules as submission_rules
from domain.agents.definition import AgentDefinition
from domain.agents.own_tools import PLANNING, reserved_names
from domain.agents.prompt import Variable
from domain.agents.secret_variables import seal_secrets
from domain.agents.variable_scope import Graph, graph_variables, kept, missing_of, without_shared
from domain.errors import Invalid
from domain.external_tool import ExternalTool, tool_problems
from domain.json_schema import run_check, schema_problems
from domain.sessions.new_session import Supervision
from domain.task import TaskSpec
from store import agent_graph
from store.agents import TaskAgent


def check_plan(spec: TaskSpec, definition: AgentDefinition) -> None:
    """Check that the agent of a task with plan approval can submit a plan."""
    if spec.config.approval_required and not any(PLANNING & {*view.tools} for view in definition.views):
        why = f"this agent has no {' or '.join(sorted(PLANNING))}"
        problem = finding("/config/approval_required", "unavailable", why, [False])
        raise Invalid("This agent cannot submit a plan.", errors=[problem])


async def supervision(call: Call, spec: TaskSpec, agent: TaskAgent, before: dict[str, str]) -> Supervision:
    """A task's rules, tools and variables; `before` are the variables that the thread already has."""
    definition = agent.definition
    rules = submission_rules.supervision(spec, definition)
    has_shared = agent.tenant_has_variables or bool(call.settings.variables)
    asks = any(view.subagent_tools for view in definition.views)  # its subagents may ask for missing values
    # Otherwise the agents that it refers to do not matter now and need not be read.
    wide = bool(before or spec.context.variables or asks or (has_shared and definition.references))
    graph = await agent_graph.reachable(call.pool, call.tenant, definition) if wide else {definition.name: definition}
    common = await call.services.shared_variables.of_graph(call.pool, call.tenant, graph) if has_shared else {}
    before = {**without_shared(before), **common}
    looked_up = partial(variables, spec, definition, graph, before, rules.may_ask)
    # a large graph takes long to look through, and other requests do not wait for that
    values, missing = await asyncio.to_thread(looked_up) if len(graph) > 1 else looked_up()
    tools = await _tools(spec, definition, reserved_names(definition, plans=rules.approval_required))
    return rules.model_copy(update={"external_tools": tools, "variables": values, "missing": missing})


async def sealed(call: Call, spec: TaskSpec, definition: AgentDefinition) -> TaskSpec:
    """The task with its secret variables encrypted, before any of it is stored."""
    if not spec.context.variables:
        return spec
    known = graph_variables(await agent_graph.reachable(call.pool, call.tenant, definition))
    _check_known(spec, known)  # before anything is done with them
    values = seal_secrets(call.services.keys, call.tenant, spec.context.variables, known)
    return spec.model_copy(update={"context": spec.context.model_copy(update={"variables": values})})


async def _tools(spec: TaskSpec, definition: AgentDefinition, reserved: set[str]) -> list[ExternalTool]:
    """The agent's external tools and the task's own, which may replace one of the same name."""
    given = spec.config.external_tools
    if given and (found := await run_check(tool_problems, "config.external_tools", given, reserved)):
        problems = [finding("/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed) for one in found]
        raise Invalid("An external tool cannot be used.", errors=problems[:50])
    return list({tool.name: tool for tool in (*definition.external_tools, *given)}.values())


def variables(
    spec: TaskSpec, definition: AgentDefinition, graph: Graph, before: dict[str, str], may_ask: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """The known values, and the descriptions of those to ask for; refused if nobody can be asked. A value may be for
    any agent of the graph, because subagents inherit it. Variables scoped to a subagent are asked for when it is
    created."""
    _check_known(spec, graph_variables(graph))
    values = kept(before | spec.context.variables, graph)
    missing = missing_of(definition, values, graph)
    if missing and not may_ask:
        problems = [finding(f"/context/variables/{name}", "missing", text) for name, text in missing.items()]
        raise Invalid("The agent needs variables, and may not ask for them.", type="missing-variables", errors=problems)
    return values, missing


def _check_known(spec: TaskSpec, known: Mapping[str, Variable]) -> None:
    if unknown := [name for name in spec.context.variables if name not in known]:
        problems = [
            finding(f"/context/variables/{name}", "unknown_variable", "there is none", sorted(known))
            for name in unknown
        ]
        raise Invalid("The agent has no such variables.", errors=problems)


async def check_output_schema(spec: TaskSpec, definition: AgentDefinition) -> None:
    """Check a form of the answer: it needs a usable schema, and an agent with a single final answer."""
    schema, pointer = spec.config.output_schema, "/config/output_schema"
    if schema is None:
        return
    if definition.dual:
        problem = finding(pointer, "unavailable", "an agent with two sides has no single answer", [])
        raise Invalid("This agent has no single answer.", errors=[problem])
    if found := await run_check(schema_problems, "config.output_schema", schema):
        problems = [finding("/" + one.field.replace(".", "/"), "invalid", one.message, one.allowed) for one in found]
        raise Invalid("The output schema cannot be used.", errors=problems[:50])
