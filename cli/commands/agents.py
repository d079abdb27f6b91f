"""`errand agents`: list, show, add, refresh and remove agents, check the files of a folder, draw a graph."""

import re
import shlex
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path

import click

from agents.loader import check_agents, one_text
from agents.problems import AgentFileError, Catalogue
from cli.api import Api, segment
from cli.errors import CliError, Exit, NotFoundError
from cli.options import ListGroup, add_remove, below, json_option, remote, settings
from cli.render.output import clean, duration, emit, facts, one_line, table
from domain.agents.definition import AgentDefinition, Equipment, Side, SideKind
from domain.amounts import format_count
from domain.json_object import JsonObject

_LISTS = ("fallback_models", "tools", "handoffs")


class _AgentsGroup(ListGroup):
    """Treat a word that is not a subcommand as the name of an agent: `errand agents researcher` shows it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_AgentsGroup)
def agents() -> None:
    """List the agents, or show one of them with its prompt.

    \b
    Examples:
      ./errand agents
      ./errand agents researcher
      ./errand agents check
      ./errand agents add greeter.md
      ./errand agents refresh greeter
      ./errand agents remove greeter
      ./errand agents graph | tee agents.mmd
    """


@agents.command("list")
@remote
def list_agents(api: Api, as_json: bool) -> None:
    """List the agents that can be used."""
    answer = api.get("/agents")
    if as_json:
        emit(answer)
        return
    rows = [[item["name"], str(item.get("model") or "default"), item["description"]] for item in answer["items"]]
    table(["AGENT", "MODEL", "DESCRIPTION"], rows)


@agents.command()
@click.argument("name")
@remote
def show(api: Api, name: str, as_json: bool) -> None:
    """Show one agent with its prompt."""
    answer = api.get(f"/agents/{segment(name)}")
    emit(answer) if as_json else _show(answer)


@agents.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@remote
def add(api: Api, file: Path, as_json: bool) -> None:
    """Define an agent for your tenant, from a Markdown file; a changed file becomes a new version.

    The file is called <name>.md; prompts that its sides name are read from the folder `prompts` beside it. Running
    tasks keep the version they have.
    """
    try:
        text = one_text(file).encode()
    except AgentFileError as error:
        raise CliError(clean(str(error))) from None
    answer = api.ask("PUT", f"/agents/{segment(file.stem)}", content=text, headers={"Content-Type": "text/markdown"})
    emit(answer) if as_json else click.echo(f"{answer['name']}: version {answer['version']}")


@agents.command()
@click.argument("name")
@remote
def refresh(api: Api, name: str, as_json: bool) -> None:
    """Read the tool lists of an agent's MCP servers again; one that has changed makes a new version.

    Running tasks keep the version they have, in which a tool that has changed is refused.
    """
    answer = api.ask("POST", f"/agents/{segment(name)}/refresh")
    emit(answer) if as_json else click.echo(f"{answer['name']}: version {answer['version']}")


def _place(server: JsonObject) -> str:
    """The address or the command of an MCP server."""
    return server.get("url") or shlex.join(server["command"])


_REMOVE = "Remove an agent that your tenant has defined. Running tasks keep the version they have."
add_remove(agents, below("/agents"), _REMOVE)


@agents.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
def check(folder: Path | None, as_json: bool) -> None:
    """Check the agent files of a folder; without one, those that a worker loads. Your own tools are checked too.

    Nothing is changed. All problems of all files are listed, and the exit code is 1 if there are any.
    """
    # This imports everything that a worker does, which takes seconds: so only in this command, not for `errand --help`.
    from activities.handlers.registry import load_handlers
    from activities.hooks.hook import load_hooks
    from activities.tools.registry import load_tools

    module = settings().tools_module
    tools, handlers, hooks = load_tools(module), load_handlers(module), load_hooks(module)
    loaded = check_agents(folder or settings().agents_dir, Catalogue(tools.found, handlers.found, hooks.found))
    of_tools = list(dict.fromkeys([*tools.problems, *handlers.problems, *hooks.problems]))
    if as_json:
        problems = [
            {"file": wrong.file, "field": one.field, "message": one.message, "allowed": list(one.allowed)}
            for wrong in loaded.errors
            for one in wrong.problems
        ]
        problems += [{"file": module or "", "field": "", "message": one, "allowed": []} for one in of_tools]
        emit({"agents": sorted(loaded.agents), "problems": problems})
    else:
        for one in of_tools:
            click.echo(clean(one))
        for wrong in loaded.errors:
            click.echo(f"{wrong.file}:")
            for problem in wrong.problems:
                click.echo(f"  {clean(str(problem))}")
        found = f"{format_count(len(loaded.agents), 'agent')} can be used"
        click.echo(f"{found}; {format_count(len(loaded.errors), 'file')} cannot.")
    if loaded.errors or of_tools:
        raise SystemExit(int(Exit.FAILED))


@agents.command()
@click.argument("name", required=False)
@remote
def graph(api: Api, name: str | None, as_json: bool) -> None:
    """Print a Mermaid diagram: sides, handoffs, subagents. With NAME, only what that agent reaches."""
    known = {item["name"]: _definition(item) for item in api.get("/agents")["items"]}
    if name is not None and name not in known:
        raise NotFoundError(f"no agent {name!r} (there are: {', '.join(sorted(known))})")
    text = mermaid(known, name)
    emit({"mermaid": text}) if as_json else click.echo(text, nl=False)


def _definition(item: JsonObject) -> AgentDefinition:
    fields = {field: value for field, value in item.items() if field in AgentDefinition.model_fields}
    return AgentDefinition.model_validate(fields)


def _show(agent: JsonObject) -> None:
    """Print a definition; another server version may have other fields."""
    plain = [
        (field, one_line(str(agent[field]), 1_000))
        for field in ("name", "version", "mode", "description", "model")
        if agent.get(field)
    ]
    lists = [(field.replace("_", " "), ", ".join(map(str, agent.get(field) or []))) for field in _LISTS]
    subagents = [str(one.get("agent", "")) for one in agent.get("subagents") or []]
    subagents += [str(one.get("name", "")) for one in agent.get("subagent_tools") or []]
    limits = {name: value for name, value in (agent.get("limits") or {}).items() if value is not None}
    shown = ", ".join(_limit(name, value) for name, value in limits.items())
    rules = [
        f'{one["action"]} {one["permission"]} "{one.get("pattern", "*")}"' for one in agent.get("permissions") or []
    ]
    servers = [
        f"{name} ({_place(server)}, {format_count(len(server.get('tools') or []), 'tool')})"
        for name, server in (agent.get("mcp_servers") or {}).items()
    ]
    more = [
        ("mcp servers", one_line(", ".join(servers), 2_000)),
        ("limits", one_line(shown, 1_000)),
        ("permissions", one_line("; ".join(rules), 2_000) or "no rules: its tools run without asking"),
    ]
    facts([*plain, *lists, ("subagents", ", ".join(subagents)), *more])
    for prompt in (agent.get("prompts") or {}).values():
        click.echo(f"\n# {clean(str(prompt['name']))}\n\n{clean(str(prompt['text']))}")
    if agent.get("prompt"):
        click.echo("\n" + clean(str(agent["prompt"])))


def _limit(name: str, value: object) -> str:
    if name.endswith("_ms") and isinstance(value, int):
        return f"{name.removesuffix('_ms')} {duration(value / 1_000)}"
    return f"{name} {value}"


# a Mermaid diagram: the sides of agents, and which agent hands over to, starts or delegates to which


def mermaid(agents: Mapping[str, AgentDefinition], root: str | None = None) -> str:
    """The whole graph, or the part that can be reached from one agent."""
    shown = _reachable(agents, root) if root is not None else list(agents)
    lines = ["flowchart LR"]
    for name in shown:
        agent = agents[name]
        label = f"{name}<br/>{_who(agent.side('a'))} ⇄ {_who(agent.side('b'))}"
        lines.append(f'    {_node_id(name)}["{label}"]')
    for name in shown:
        lines += [
            f"    {_node_id(name)} {arrow} {_node_id(target)}"
            for target, arrow in _edges(agents[name])
            if target in agents
        ]
    return "\n".join(lines) + "\n"


def _who(side: Side) -> str:
    if side.label:
        return escape(side.label, quote=False).replace('"', "&quot;")
    return {SideKind.HUMAN: "people", SideKind.HANDLER: f"code {side.handler}"}.get(side.kind, "model")


def _edges(agent: AgentDefinition) -> Iterator[tuple[str, str]]:
    views: list[Equipment] = [agent, *agent.prompts.values()]
    for view in views:
        yield from ((name, "== handoff ==>") for name in view.handoffs)
        for tool in view.subagent_tools:
            traits = ["blocking" if tool.blocking else "background"]
            traits += ["resumable"] if tool.resumable else []
            traits += ["immediate"] if tool.immediate else []
            yield tool.name, f"-- {', '.join(traits)} -->"
        yield from ((reference.agent, "-. delegates .->") for reference in view.subagents)


def _reachable(agents: Mapping[str, AgentDefinition], root: str) -> list[str]:
    found, waiting = [], [root]
    while waiting:
        name = waiting.pop(0)
        if name in found or name not in agents:
            continue
        found.append(name)
        waiting += [target for target, _ in _edges(agents[name])]
    return found


def _node_id(name: str) -> str:
    return "agent_" + re.sub(r"[^a-z0-9]", "_", name)
