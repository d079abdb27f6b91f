"""`errand up`, `status`, `down`: the embedded stack on this machine; `open`: its console in the browser."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import click

from cli.api import Api
from cli.errors import CliError, Exit, Unreachable
from cli.options import json_option, remote, settings
from cli.render.output import PROGRAM, clean, dim, emit, facts, note, table
from domain.amounts import format_count

if TYPE_CHECKING:
    from deploy.state import StackInfo
    from store.database import Pool

T = TypeVar("T")

# deploy is imported inside the commands: loading it is slow, and no other command needs it


@click.command()
@click.option("--detach", is_flag=True, help="Return once everything is ready; `down` stops it.")
@json_option
def up(detach: bool, as_json: bool) -> None:
    """Start everything on this machine: PostgreSQL, Temporal, the worker and the API.

    All data is in one directory: the next start resumes every task that was running. Ctrl-C stops everything. Without
    ANTHROPIC_API_KEY or OPENAI_API_KEY an offline stand-in answers, which is enough to try the sample agents. Settings
    such as ERRAND_PORT and ERRAND_DATA_DIR are environment variables; deploy/env.example lists them all.

    \b
    Examples:
      ./errand up
      ANTHROPIC_API_KEY=... ./errand up
      ./errand up --detach --json | jq -r .api_url
    """
    from deploy import local

    def ready(info: "StackInfo") -> None:
        info.problems = _problems()
        _emit(info) if as_json else _welcome(info, detach)

    def stopping() -> None:
        note(f"stopping; {_describe_unfinished() or 'no task is running'}")

    with _stack_errors():
        if not detach:
            asyncio.run(local.up(settings(), on_ready=ready, on_stop=stopping, log=note))
        elif (running := local.status(settings())) and running.ready:
            note(f"already running (pid {running.pid})")
            ready(running)
        else:
            info = local.start_detached(settings())
            for text in info.moved:  # which the stack's own process has logged
                note(text)
            ready(info)


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show each process of the stack: address, pid and health.

    Exit code 0: all are healthy; 1: some are not; 6: no stack is running here.
    """
    from deploy import local

    with _stack_errors():
        info = local.status(settings())
    if info is None:
        raise Unreachable(f"no stack is running here; `{PROGRAM} up` starts it")
    info.problems = _problems()
    if as_json:
        _emit(info)
    else:
        _addresses(info)
        healthy, unhealthy = click.style("healthy", fg="green"), click.style("unhealthy", fg="red")
        rows = [
            [part.name, healthy if part.healthy else unhealthy, str(part.pid or "-"), str(part.restarts), part.address]
            for part in info.parts
        ]
        table(["PROCESS", "HEALTH", "PID", "RESTARTS", "ADDRESS"], rows)
        for part in info.parts:
            if part.problem and not part.healthy:
                note(f"{part.name}: {part.problem}")
        _show_problems(info)
    if info.disk_full:
        note(f"the disk is full: {(info.disk_free or 0) // 1_000_000} MB are left at {info.data_dir}")
    if info.disk_full or not (info.ready and all(part.healthy for part in info.parts)):
        click.get_current_context().exit(int(Exit.FAILED))


@click.command()
@json_option
def down(as_json: bool) -> None:
    """Stop the stack. Running tasks continue at the next `up`."""
    from deploy import local

    with _stack_errors():
        # before the stop, because afterwards there is no database to ask
        unfinished = _describe_unfinished() if local.status(settings()) else ""
        stopped = local.down(settings())
    if as_json:
        emit({"stopped": stopped})
    else:
        click.echo("; ".join(filter(None, ("stopped", unfinished))) if stopped else "no stack was running")


@click.command()
@remote
def open(api: Api, as_json: bool) -> None:
    """Open the console in the browser, and print its address. With --json only print it.

    \b
    Examples:
      ./errand open
      ./errand open --url http://127.0.0.1:8700
    """
    import webbrowser  # looks for the installed ones

    address = f"{api.find_url().rstrip('/')}/"
    if as_json:
        emit({"url": address})
        return
    click.echo(address)
    if not webbrowser.open(address):
        note("there is no browser here; open the address above in one")


@contextlib.contextmanager
def _stack_errors() -> Iterator[None]:
    from deploy.state import StackError

    try:
        yield
    except StackError as error:
        raise CliError(str(error)) from None


def _emit(info: "StackInfo") -> None:
    emit({**info.model_dump(mode="json"), "temporal_ui_url": _ui_link(info)})


def _ui_link(info: "StackInfo") -> str | None:
    """The address of the Web UI with the secret that its first request needs, if this account may read it."""
    from deploy.data_dir import ui_access_file

    if info.temporal_ui_url is None:
        return None
    try:
        return f"{info.temporal_ui_url}/?access={ui_access_file(info.data_dir).read_text().strip()}"
    except OSError:
        return info.temporal_ui_url


def _problems() -> list[str]:
    """Problems with the model, with agent files and with own tools."""
    from store import workers

    return _ask(workers.problems) or []


def _describe_unfinished() -> str:
    """A sentence about the tasks that a stop interrupts; empty if there are none."""
    from domain.sessions.session import TERMINAL
    from store import figures

    counts = _ask(figures.sessions_by_status) or {}
    number = sum(count for status, count in counts.items() if status not in TERMINAL)
    return f"{format_count(number, 'task')} will continue at the next start" if number else ""


def _ask(query: "Callable[[Pool], Awaitable[T]]") -> T | None:
    """Ask the stack's database; None while it does not answer."""
    from cli.database import with_database

    given = settings()

    def ask() -> T | None:
        with contextlib.suppress(CliError):
            # a stack that is stopping or broken must not delay `status` and `down`
            return with_database(query, given, seconds=3)
        return None

    with ThreadPoolExecutor(1) as thread:  # in a thread, because `up` has an event loop in this one
        return thread.submit(ask).result()


def _show_problems(info: "StackInfo") -> None:
    for problem in info.problems:
        click.echo(click.style(clean(problem), fg="yellow"))
    if info.problems:
        click.echo(dim(f"Everything else can be used. `{PROGRAM} status` shows what is still wrong."))


def _addresses(info: "StackInfo") -> None:
    facts(
        [
            ("console", f"{info.api_url}/"),
            ("API", info.api_url),
            ("API's docs", info.docs_url),
            ("Temporal Web UI", _ui_link(info) or f"that of the Temporal server at {info.temporal_address}"),
            ("data", str(info.data_dir)),
            ("logs", str(info.parts[0].log.parent) if info.parts else None),
            ("model", _model(info)),
            ("web search", info.search or "none: set ERRAND_SEARCH_URL, ERRAND_BRAVE_KEY or ERRAND_SEARCH_MODEL"),
        ]
    )
    click.echo()


def _model(info: "StackInfo") -> str:
    if info.offline_model:
        others = ", ".join(sorted(settings().model_providers.named.keys() - {"anthropic"}))
        also = f" and ERRAND_DEFAULT_MODEL names no model of {others}" if others else ""
        return f"offline stand-in, since ANTHROPIC_API_KEY is not set{also}"
    from agents.loader import load_prices  # slow to import

    named, given = f"{info.model} at {info.model_endpoint}", settings()
    if load_prices(given.prices_file, given.model_providers).price(info.model) is None:
        return f"{named}; its price is unknown, so at most {given.unpriced_tokens:,} tokens per task, and no cost limit"
    if not info.cost_limit:
        return f"{named}; no cost limit per task (ERRAND_DEFAULT_COST_USD)"
    return f"{named}; at most ${info.cost_limit:.2f} per task (ERRAND_DEFAULT_COST_USD, or run --max-cost)"


def _welcome(info: "StackInfo", detached: bool) -> None:
    from deploy.state import is_loopback  # slow to import

    click.echo(click.style("Errand is ready.", fg="green", bold=True))
    _addresses(info)
    _show_problems(info)
    click.echo("Try it" + (":" if detached else " in another terminal:"))
    if not is_loopback(settings().host):
        click.echo(f"  export ERRAND_API_KEY=$({PROGRAM} keys create me)")
    click.echo(f"  {PROGRAM} demo look")
    click.echo(f'  {PROGRAM} run assistant "Look around the workspace and write a short report" --dir .')
    stop = f"`{PROGRAM} down`" if detached else "Ctrl-C"
    click.echo(dim(f"{stop} stops everything; tasks continue at the next start."))
