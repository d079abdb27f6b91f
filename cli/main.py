"""The command `errand`: its subcommands, and what they all share."""

import importlib
import sys
import tomllib
from typing import Any

import click

from cli.errors import EXIT_CODES, Exit
from settings import ROOT, Settings, SettingsError

COMMANDS = {
    "up": "cli.commands.stack",
    "status": "cli.commands.stack",
    "down": "cli.commands.stack",
    "token": "cli.commands.stack",
    "run": "cli.commands.run",
    "chat": "cli.commands.chat",
    "attach": "cli.commands.attach",
    "tasks": "cli.commands.tasks",
    "show": "cli.commands.show",
    "result": "cli.commands.result",
    "trace": "cli.commands.trace",
    "budget": "cli.commands.budget",
    "inbox": "cli.commands.inbox",
    "answer": "cli.commands.answer",
    "approve": "cli.commands.approve",
    "cancel": "cli.commands.cancel",
    "steer": "cli.commands.steer",
    "interrupt": "cli.commands.interrupt",
    "promote": "cli.commands.promote",
    "conversations": "cli.commands.conversations",
    "tree": "cli.commands.tree",
    "mailbox": "cli.commands.mailbox",
    "fire": "cli.commands.fire",
    "fork": "cli.commands.fork",
    "terminate": "cli.commands.terminate",
    "rerun": "cli.commands.rerun",
    "diff": "cli.commands.diff",
    "replay": "cli.commands.replay",
    "export": "cli.commands.export",
    "files": "cli.commands.files",
    "schedules": "cli.commands.schedules",
    "triggers": "cli.commands.triggers",
    "subscriptions": "cli.commands.subscriptions",
    "deliveries": "cli.commands.deliveries",
    "agents": "cli.commands.agents",
    "audit": "cli.commands.audit",
    "keys": "cli.commands.keys",
    "secrets": "cli.commands.secrets",
}


class ErrandGroup(click.Group):
    """Lists commands in the order in which people need them, and gives Ctrl-C its usual exit code in all of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # imported only when called, so that a command does not wait for what the others import
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)
            raise SystemExit(int(Exit.DETACHED)) from None


def _print_version(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        click.echo(f"errand {project['version']}")
        ctx.exit()


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

    Every command takes --json. Results go to stdout, notes and errors to stderr.
    """
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end the command
    ctx.obj = settings
    ctx.color = False if settings.no_color or settings.term == "dumb" else None
