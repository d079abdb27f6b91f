"""The command `errand`: its subcommands, and their common behaviour."""

import importlib
import sys
from typing import Any

import click
from errand import __version__

from cli.errors import EXIT_CODES, Exit
from cli.render.output import PROGRAM
from settings import Settings, SettingsError, check_environment

# grouped by purpose, in the order in which people need them
GROUPS: dict[str, tuple[str, ...]] = {
    "The stack": ("up", "open", "demo", "status", "down"),
    "Tasks": (
        "run",
        "chat",
        "attach",
        "tasks",
        "show",
        "result",
        "pull",
        "apply",
        "cancel",
        "steer",
        "interrupt",
        "promote",
        "budget",
    ),
    "Questions and approvals": ("inbox", "answer", "approve", "variables"),
    "Conversations": ("conversations", "tree", "mailbox", "fire", "fork", "terminate"),
    "Looking closer": ("trace", "rerun", "diff", "attempts", "replay", "export", "audit"),
    "Schedules and notifications": ("schedules", "triggers", "subscriptions", "deliveries"),
    "Setting up": (
        *("config", "models", "agents", "environments", "credentials", "keys", "secrets", "mcp", "completion"),
    ),
}
SHARED = {  # modules with several commands; each other command has a module of its own name
    "stack": ("up", "open", "status", "down"),
    "pull": ("apply",),
    "tasks": ("show", "attach"),
    "control": ("cancel", "steer", "interrupt", "promote", "terminate"),
    "inbox": ("answer", "approve"),
    "conversations": ("tree", "mailbox", "fire", "fork"),
    "trace": ("diff", "attempts"),
    "subscriptions": ("deliveries",),
    "keys": ("secrets",),
}
MODULES = {name: module for module, names in SHARED.items() for name in names}
COMMANDS = {name: f"cli.commands.{MODULES.get(name, name)}" for names in GROUPS.values() for name in names}


class ErrandGroup(click.Group):
    """Lists commands in groups, and gives Ctrl-C its usual exit code in all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # imported only when called, so that a command does not wait for the imports of others
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        return _as_typed(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, names in GROUPS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(100)) for name, command in commands if command]
            with formatter.section(group):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # the shell's prompt begins on a new line after ^C
            click.echo(err=True)
            raise SystemExit(int(Exit.DETACHED)) from None


def _print_version(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        click.echo(f"errand {__version__}")
        ctx.exit()


def _as_typed(command: click.Command) -> click.Command:
    """The examples of the help as people type them: the program is ./errand only in the checkout."""
    command.help = command.help and command.help.replace("./errand", PROGRAM)
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        _as_typed(one)
    return command


@click.group(cls=ErrandGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXIT_CODES)
@click.option(
    "--version", is_flag=True, callback=_print_version, expose_value=False, is_eager=True, help="Print the version."
)
@click.pass_context
def errand(ctx: click.Context) -> None:
    """Durable async agents: submit a task, hang up, come back to the result.

    \b
    First steps:
      ./errand up                                         start everything on this machine
      ./errand run assistant "Look around the workspace"  submit a task and watch it
      ./errand attach ID                                  watch it again, from anywhere
      ./errand result ID                                  print its result
      ./errand chat                                       talk with an agent and watch its subagents

    Commands that print data take --json. Results go to stdout, notes and errors to stderr.
    """
    try:
        check_environment()
        settings = Settings.from_env()
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not crash the command
    ctx.obj = settings
    ctx.color = False if settings.no_color or settings.term == "dumb" else None


_as_typed(errand)
