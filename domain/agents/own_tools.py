"""The names of an agent's own tools. A tool that the caller brings cannot have one of these names."""

from domain.agents.definition import AgentDefinition
from domain.agents.mcp_server import pinned_tools

# The only place outside the tools that lists their names: for processes that do not load the tools. A test compares
# each list with what the tools declare about themselves.
ASKING = frozenset({"ask_user"})
PLANNING = frozenset({"update_plan"})
DELEGATING = frozenset(
    {
        "delegate",
        "task",
        "async_delegate",
        "async_task",
        "async_task_result",
        "gather",
        "steer_subagent",
        "cancel_subagent",
        "list_subagents",
    }
)
ADDRESSING = frozenset({"subagent_create", "subagent_message", "subagent_terminate"})
HAVE_OWN_EVENT = frozenset({"update_plan", "report_progress"})  # their calls are shown by their own events


def own_tools(agent: AgentDefinition, *, may_ask: bool, plans: bool) -> set[str]:
    """`plans`: whether the task's plan must be approved."""
    found: set[str] = {*(ASKING if may_ask else ()), *(PLANNING if plans else ())}
    found |= {name for name, *_ in pinned_tools(agent.mcp_servers)}
    for view in agent.views:
        found |= {*view.tools, *view.handoffs, *(tool.name for tool in view.declared_tools)}
        found |= {*(DELEGATING if view.subagents else ())}
        found |= {tool.name for tool in view.subagent_tools}
        found |= {*(ADDRESSING if any(tool.resumable for tool in view.subagent_tools) else ())}
    return found
