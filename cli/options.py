"""Options and commands that several groups share, and how durations and rules are written on the command line."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cli.api import Api, segment
from cli.ids import resolve_arguments
from cli.render.answers import print_answer
from cli.render.output import clean, emit
from domain.policy.rules import Action
from settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Place = Callable[[Api, str], str]  # the path of what has this name

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


class Duration(click.ParamType[int, Any]):
    """A duration such as 30s, 10m, 2h, 1d or 1h30m; the value is in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        if not re.fullmatch(rf"(?:{_AMOUNT.pattern}\s*)+", text):
            self.fail(f"{value!r} is not a duration; write 30s, 10m, 2h, 1d or 1h30m", param, ctx)
        return int(sum(float(number) * _UNITS[unit] for number, unit in _AMOUNT.findall(text)))


class PermissionRule(click.ParamType[dict[str, str], Any]):
    """A permission rule such as `bash:rm *=deny`; the value has the form of the API."""

    name = "rule"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        # from the right, because a pattern may contain = itself
        call, _, action = str(value).rpartition("=")
        tool, _, pattern = call.partition(":")
        if not tool or action not in list(Action):
            self.fail(f"{value!r} is not a rule; write TOOL[:PATTERN]=allow, deny or ask", param, ctx)
        return {"permission": tool, "action": action} | ({"pattern": pattern} if pattern else {})


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")

no_input_option = click.option(
    "--no-input", is_flag=True, help="Ask for nothing: leave questions and approvals waiting."
)

detach_option = click.option("--detach", is_flag=True, help="Print the id and return, instead of watching it.")

patience_option = click.option(
    "--patience",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long to keep reconnecting while the API cannot be reached.",
)


files_option = click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Copy this file into the workspace, with its relative path. Repeatable.",
)

folders_option = click.option(
    "--dir",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Copy this folder into the workspace, without what .gitignore names. Repeatable.",
)

permissions_option = click.option(
    "--permission",
    "permissions",
    multiple=True,
    type=PermissionRule(),
    help="Rule TOOL[:PATTERN]=allow|deny|ask. Repeatable; the last that matches decides.",
)

_WORK_OPTIONS = (
    click.option("--ttl", type=Duration(), help="End the task after this long: 30s, 10m, 2h, 1d."),
    click.option(
        "--max-cost", "max_cost_usd", type=click.FloatRange(min=0, min_open=True), help="Cost budget in US dollars."
    ),
    click.option("--model", help="Another model than the agent's own."),
    *(files_option, folders_option, permissions_option),
)


def work_options(command: F) -> F:
    """The options of a piece of work that a task and a turn of a conversation have in common."""
    return _with(_WORK_OPTIONS, command)


def page_options(noun: str) -> Callable[[F], F]:
    """The options of a list that has pages."""
    limit = click.option(
        "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help=f"{noun} on one page."
    )
    return lambda command: _with((limit, click.option("--cursor", help="The cursor of the next page.")), command)


def _with(options: Sequence[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def settings() -> Settings:
    found = click.get_current_context().find_object(Settings)
    assert found is not None
    return found


def remote(command: F) -> F:
    """Decorate a command that calls the API: adds --url, --key and --json, and passes the client as `api`."""

    @click.option("--url", help="Address of the API.  [default: ERRAND_URL, else the running stack]")
    @click.option("--key", help="API key.  [default: ERRAND_API_KEY]")
    @json_option
    @functools.wraps(command)
    def call(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> Any:
        with Api(settings(), url=url, key=key) as api:
            return command(*args, api=api, **resolve_arguments(api, kwargs))

    return call  # type: ignore[return-value]


class ListGroup(click.Group):
    """Without a subcommand it lists: `errand schedules --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if bare and not ctx.resilient_parsing:  # completion offers the subcommands
            args = ["list", *args]
        return super().parse_args(ctx, args)


def below(path: str) -> Place:
    return lambda api, name: f"{path}/{segment(name)}"


def add_show(group: click.Group, place: Place, model: type[T], show: Callable[[T], object], text: str) -> None:
    @group.command("show", help=text)
    @click.argument("name")
    @remote
    def command(api: Api, name: str, as_json: bool) -> None:
        print_answer(api.get(place(api, name)), as_json, model, show)


def add_remove(group: click.Group, place: Place, text: str) -> None:
    @group.command("remove", help=text)
    @click.argument("name")
    @remote
    def command(api: Api, name: str, as_json: bool) -> None:
        api.request("DELETE", place(api, name))
        emit({"name": name, "removed": True}) if as_json else click.echo(f"{clean(name)} is removed.")
