"""The names in a task's rules: one that fits no tool would forbid nothing, and nobody would notice."""

from api.http.problems import finding
from domain.agents.definition import AgentDefinition
from domain.errors import Invalid
from domain.policy.rules import names_a_tool
from domain.task import TaskSpec
from store import workers
from store.database import Pool


async def check(pool: Pool, spec: TaskSpec, definition: AgentDefinition) -> None:
    named = [(f"/permissions/{place}/permission", rule.permission) for place, rule in enumerate(spec.permissions)]
    if spec.boundary and spec.boundary.tools:
        named += [(f"/boundary/tools/{place}", name) for place, name in enumerate(spec.boundary.tools)]
    tools = await workers.tools(pool) if named else set()
    if not tools:  # no worker is there to say what it has; a task is accepted all the same
        return
    tools |= {tool.name for tool in (*definition.external_tools, *spec.config.external_tools)}
    found = [
        finding(pointer, "unknown_tool", "no tool has this name", sorted(tools))
        for pointer, name in named
        if not names_a_tool(name, tools)
    ]
    if found:
        raise Invalid("A rule names a tool that does not exist.", type="invalid-spec", errors=found[:20])
