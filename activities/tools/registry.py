"""All tools by name. Adding one is its file and a line in TOOLS; users add theirs from a module of their own."""

import importlib
import re
from types import ModuleType

from activities.tools.builtin import (
    ask_agent,
    ask_user,
    async_delegate,
    async_task,
    async_task_result,
    bash,
    cancel_subagent,
    delegate,
    edit_file,
    emit_event,
    fetch_url,
    gather,
    list_files,
    list_subagents,
    manage_schedule,
    notify_parent,
    read_file,
    report_progress,
    save_artifact,
    search_files,
    send_agent_message,
    set_status,
    start_background_agent,
    steer_subagent,
    subagent_create,
    subagent_message,
    subagent_terminate,
    subscribe_events,
    task,
    update_plan,
    wait_for_event,
    write_file,
)
from activities.tools.tool import Tool

TOOLS: dict[str, Tool] = {
    module.TOOL.name: module.TOOL
    for module in (
        list_files,
        read_file,
        write_file,
        edit_file,
        search_files,
        bash,
        fetch_url,
        update_plan,
        report_progress,
        save_artifact,
        ask_user,
        delegate,
        task,
        async_delegate,
        async_task,
        async_task_result,
        gather,
        steer_subagent,
        cancel_subagent,
        list_subagents,
        subagent_create,
        subagent_message,
        subagent_terminate,
        notify_parent,
        set_status,
        start_background_agent,
        send_agent_message,
        ask_agent,
        manage_schedule,
        wait_for_event,
        emit_event,
        subscribe_events,
    )
}

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# the platform's own parts in a session; and what a user's tool does must be visible as an activity of its own
_RESERVED = ("bookkeeping", "asks", "plans", "delegates", "starts", "activity")


class ToolsError(Exception):
    """The module of the user's own tools cannot be used; the message says what to change."""


def load_tools(module: str | None) -> dict[str, Tool]:
    """The built-in tools and those in `TOOLS` of the named module."""
    if module is None:
        return dict(TOOLS)
    tools = dict(TOOLS)
    for tool in _tools_of(users_module(module)):
        if tool.name in tools:
            raise ToolsError(
                f"ERRAND_TOOLS_MODULE: {module}: there is already a tool named {tool.name!r}; rename yours"
            )
        tools[tool.name] = tool
    return tools


def users_module(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ToolsError(f"ERRAND_TOOLS_MODULE: {module!r} cannot be imported: {error!r}") from error


def _tools_of(module: ModuleType) -> list[Tool]:
    where = f"ERRAND_TOOLS_MODULE: {module.__name__}"
    # a module may have nothing but handlers or hooks
    others = hasattr(module, "HANDLERS") or hasattr(module, "HOOKS")
    listed = getattr(module, "TOOLS", () if others else None)
    if not isinstance(listed, list | tuple):
        raise ToolsError(f"{where} needs an attribute TOOLS, a list of activities.tools.tool.Tool")
    for tool in listed:
        if not isinstance(tool, Tool):
            raise ToolsError(f"{where}: TOOLS holds {tool!r}, which is not an activities.tools.tool.Tool")
        if not _NAME.fullmatch(tool.name):
            raise ToolsError(f"{where}: {tool.name!r} is not a tool name (a-z, 0-9 and _, at most 64, a letter first)")
        if taken := [trait for trait in _RESERVED if getattr(tool, trait)]:
            raise ToolsError(f"{where}: {tool.name!r} sets {', '.join(taken)}, which only built-in tools may")
    return list(listed)
