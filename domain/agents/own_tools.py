"""The names of an agent's own tools, and which of them a tool that the caller brings cannot have."""

from domain.agents.definition import AgentDefinition
from domain.agents.mcp_server import pinned_tools
from domain.sessions.session import SIDES

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
    found = {*(ASKING if may_ask else ()), *reserved_names(agent, plans=plans)}
    for view in agent.views:
        found |= {*view.tools, *(DELEGATING if view.subagents else ())}
        found |= {*(ADDRESSING if any(tool.resumable for tool in view.subagent_tools) else ())}
    return found


def reserved_names(agent: AgentDefinition, *, plans: bool) -> set[str]:
    """The names that a caller's tool cannot have: those of the agent's own parts, and of the tools that the task's
    rules depend on. Every other tool of the platform gives way to the caller's."""
    found = {*(PLANNING if plans else ()), *(name for name, *_ in pinned_tools(agent.mcp_servers))}
    for view in agent.views:
        found |= {*view.handoffs, *(tool.name for tool in view.declared_tools)}
        found |= {tool.name for tool in view.subagent_tools}
    for side in (agent.side(name) for name in SIDES):
        found |= {*([side.stop_tool] if side.stop_tool else ()), *(one.name for one in side.bindings().values())}
    return found - {tool.name for tool in agent.external_tools}
