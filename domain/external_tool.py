"""External tools: a caller declares them, the model calls them, and the caller answers each call itself."""

from collections.abc import Collection, Sequence

from pydantic import Field

from domain.agents.mcp_server import PREFIX
from domain.agents.spelling import AgentPart
from domain.json_object import JsonObject
from domain.json_schema import SchemaProblem, schema_problems

MAX_TOOLS = 32

# the caller's answer to a call: its result or an error
RESULT_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"result": {}, "error": {"type": "string", "minLength": 1, "maxLength": 60_000}},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}


class ExternalTool(AgentPart):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(min_length=1, max_length=2_000)
    input_schema: JsonObject


def tool_problems(where: str, tools: Sequence[ExternalTool], known: Collection[str]) -> list[SchemaProblem]:
    """List the faults of these tools; `known` are the names of the agent's own tools."""
    found: list[SchemaProblem] = []
    names = [tool.name for tool in tools]
    for index, tool in enumerate(tools):
        field = f"{where}.{index}"
        if tool.name in known:
            found.append(SchemaProblem(f"{field}.name", "the agent already has a tool by this name"))
        elif tool.name.startswith(PREFIX):
            found.append(SchemaProblem(f"{field}.name", f"names with {PREFIX} are those of tools of MCP servers"))
        elif tool.name in names[:index]:
            found.append(SchemaProblem(f"{field}.name", "it is listed twice"))
        schema = tool.input_schema
        if schema.get("type") != "object":
            found.append(
                SchemaProblem(f"{field}.input_schema.type", "the arguments of a tool are an object", ("object",))
            )
        else:
            found += schema_problems(f"{field}.input_schema", schema)
    return found
