"""All tools by name. To add one: its file, its import and its place in TOOLS; one that coordinates agents is an entry
of builtin/agents.py. Users add theirs from their own module."""

import importlib
import re
from dataclasses import dataclass, field
from types import ModuleType
from typing import Generic, TypeVar

from activities.tools.builtin import (
    agents,
    ask_user,
    bash,
    edit_file,
    fetch_url,
    list_files,
    load_skill,
    manage_schedule,
    pull_requests,
    read_file,
    report_progress,
    save_artifact,
    search_files,
    update_plan,
    wait_for_event,
    web_search,
    write_file,
)
from activities.tools.tool import Tool

TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        *(list_files.TOOL, read_file.TOOL, write_file.TOOL, edit_file.TOOL, search_files.TOOL, bash.TOOL),
        *(fetch_url.TOOL, web_search.TOOL, update_plan.TOOL, report_progress.TOOL, save_artifact.TOOL, ask_user.TOOL),
        *pull_requests.TOOLS,
        *agents.TOOLS,
        *(manage_schedule.TOOL, wait_for_event.TOOL, load_skill.TOOL),
    )
}

SEARCH = web_search.TOOL.name  # of use only where the operator has chosen a search service
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Fields for the platform's own tools only. A user's tool must be visible as a separate activity.
_RESERVED = ("bookkeeping", "asks", "plans", "delegates", "starts", "addresses", "activity")


Part = TypeVar("Part")


@dataclass(frozen=True)
class Loaded(Generic[Part]):
    """The usable built-in and user-defined parts by name, and the faults of the others."""

    found: dict[str, Part]
    problems: list[str] = field(default_factory=list)

    def note(self, module: str | None, problem: str) -> "Loaded[Part]":
        self.problems.append(f"ERRAND_TOOLS_MODULE: {module}: {problem}")
        return self


def load_tools(module: str | None) -> Loaded[Tool]:
    """The built-in tools and those in `TOOLS` of the named module."""
    loaded = Loaded(dict(TOOLS))
    own = users_module(module, loaded.problems)
    # a module may contain only handlers or hooks
    others = own is None or hasattr(own, "HANDLERS") or hasattr(own, "HOOKS")
    listed = getattr(own, "TOOLS", () if others else None)
    if not isinstance(listed, list | tuple):
        return loaded.note(module, "needs an attribute TOOLS, a list of activities.tools.tool.Tool")
    for tool in listed:
        if problem := _problem(tool, loaded.found):
            loaded.note(module, problem)
        else:
            loaded.found[tool.name] = tool.apart()
    return loaded


def users_module(module: str | None, problems: list[str]) -> ModuleType | None:
    """The named module; None if none is named or if it cannot be imported, which is recorded as a problem."""
    try:
        return importlib.import_module(module) if module is not None else None
    except (Exception, SystemExit) as error:
        problems.append(f"ERRAND_TOOLS_MODULE: {module!r} cannot be imported: {error!r}")
        return None


def _problem(tool: object, taken: dict[str, Tool]) -> str | None:
    if not isinstance(tool, Tool):
        return f"TOOLS holds {tool!r}, which is not an activities.tools.tool.Tool"
    if not isinstance(tool.name, str) or not _NAME.fullmatch(tool.name):
        return f"{tool.name!r} is not a tool name (a-z, 0-9 and _, at most 64, a letter first)"
    if tool.name in taken:
        return f"there is already a tool named {tool.name!r}; rename yours"
    if reserved := [trait for trait in _RESERVED if getattr(tool, trait)]:
        return f"{tool.name!r} sets {', '.join(reserved)}, which only built-in tools may"
    return None
