"""`errand up`, `status`, `down`: the embedded stack on this machine."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cli.client.errors import CliError, Exit, Unreachable
from cli.options import json_option, settings
from cli.render.output import PROGRAM, dim, emit, facts, note, table

if TYPE_CHECKING:
    from deploy.state import StackInfo

# deploy is imported inside the commands: it brings the whole stack, which no client needs


@click.command()
@click.option("--detach", is_flag=True, help="Return once everything is ready; `down` stops it.")
@json_option
def up(detach: bool, as_json: bool) -> None:
    """Start everything on this machine: PostgreSQL, Temporal, the worker and the API.

    Data stays in one directory: the next start resumes every task that was running. Ctrl-C stops it all. Without
    ANTHROPIC_API_KEY an offline model answers, which is enough to see the sample agents work. Settings such as
    ERRAND_PORT and ERRAND_DATA_DIR are environment variables; deploy/env.example lists them all.

    \b
    Examples:
      ./errand up
      ANTHROPIC_API_KEY=... ./errand up
      ./errand up --detach --json | jq -r .api_url
    """
    from deploy import local

    def ready(info: "StackInfo") -> None:
        _emit(info) if as_json else _welcome(info, detach)

    with _problems():
        if not detach:
            asyncio.run(local.up(settings(), on_ready=ready, log=note))
        elif (running := local.status(settings())) and running.ready:
            note(f"already running (pid {running.pid})")
            ready(running)
        else:
            ready(local.start_detached(settings()))


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show each part of the stack: address, process and health.

    Exit code 0: all well; 1: some part is not; 6: nothing is running here.
    """
    from deploy import local

    with _problems():
        info = local.status(settings())
    if info is None:
        raise Unreachable(f"no stack is running here; `{PROGRAM} up` starts it")
    if as_json:
        _emit(info)
    else:
        _addresses(info)
        rows = [
            [part.name, _health(part.healthy), str(part.pid or "-"), part.address, str(part.restarts), str(part.log)]
            for part in info.parts
        ]
        table(["PART", "HEALTH", "PID", "ADDRESS", "RESTARTS", "LOG"], rows)
    if not (info.ready and all(part.healthy for part in info.parts)):
        click.get_current_context().exit(int(Exit.FAILED))


@click.command()
@json_option
def down(as_json: bool) -> None:
    """Stop the stack. Running tasks go on at the next `up`."""
    from deploy import local

    with _problems():
        stopped = local.down(settings())
    if as_json:
        emit({"stopped": stopped})
    else:
        click.echo("stopped" if stopped else "nothing was running")


@contextlib.contextmanager
def _problems() -> Iterator[None]:
    from deploy.state import StackError

    try:
        yield
    except StackError as error:
        raise CliError(str(error)) from None


def _emit(info: "StackInfo") -> None:
    emit(info.model_dump(mode="json"))


def _health(healthy: bool) -> str:
    return click.style("well", fg="green") if healthy else click.style("unwell", fg="red")


def _addresses(info: "StackInfo") -> None:
    facts(
        [
            ("API", info.api_url),
            ("docs", info.docs_url),
            ("Temporal Web UI", info.temporal_ui_url or f"of the Temporal at {info.temporal_address}"),
            ("data", str(info.data_dir)),
            ("model", "offline stand-in, since ANTHROPIC_API_KEY is not set" if info.offline_model else "Anthropic"),
        ]
    )
    click.echo()


def _welcome(info: "StackInfo", detached: bool) -> None:
    from domain.policy.addresses import is_loopback  # here, since it brings the server's framework with it

    click.echo(click.style("Errand is ready.", fg="green", bold=True))
    _addresses(info)
    click.echo("Try it" + (":" if detached else " in another terminal:"))
    if not is_loopback(settings().host):
        click.echo(f"  export ERRAND_API_KEY=$({PROGRAM} keys create me)")
    click.echo(f'  {PROGRAM} run assistant "Look around the workspace and write a short report"')
    click.echo(
        dim(f"`{PROGRAM} down` stops it all." if detached else "Ctrl-C stops it all; tasks go on at the next start.")
    )
