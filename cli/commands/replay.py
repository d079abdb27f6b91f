"""`errand replay`: a session's history on today's code; the same, or where it differs."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import click
from temporalio.client import WorkflowHistory

from cli.client.errors import CliError, NotFoundError
from cli.client.temporal import leaving, temporal
from cli.options import Duration, json_option
from cli.render.debugger import Watch
from cli.render.output import emit, note, one_line
from workflows import replay as replaying

DAY_MS = 24 * 3_600_000


@click.command()
@click.argument("source", required=False)
@click.option("--all", "everything", is_flag=True, help="All that ran lately or still runs: the release gate.")
@click.option("--since", type=Duration(), help="With --all: how far back.  [default: 1d]")
@click.option("--debug", is_flag=True, help="Stop in the debugger where the session takes a step.")
@click.option("--step", type=click.IntRange(min=1), help="With --debug: which one.  [default: 1]")
@json_option
@leaving
def replay(
    source: str | None, everything: bool, since: int | None, debug: bool, step: int | None, as_json: bool
) -> int:
    """Replay a session and its conversation on the code as it is now: SOURCE is a task id, a bundle of `errand export`,
    or a history file.

    The exit code is 0 if all decisions come out the same, and 1 if not; then the event where code and history part is
    named. Replaying calls no model and no tool, and needs no database; a file needs no Temporal either.

    \b
    Examples:
      ./errand replay ID
      ./errand replay bundle.json
      ./errand replay --all --since 7d       before a release
      ./errand replay ID --debug --step 3    look into its third step
    """
    if debug and source is None:
        raise click.UsageError("--debug needs a task id or a file")
    if (source is None) == (not everything):
        raise click.UsageError("give a task id or a file, or --all")
    if (since is not None and not everything) or (step is not None and not debug):
        raise click.UsageError("--since goes with --all, and --step with --debug")
    files = _from_file(Path(source)) if source and Path(source).is_file() else None
    if debug:
        return asyncio.run(_debug(source, files, step or 1))
    verdicts = asyncio.run(_replay(source, files, timedelta(milliseconds=DAY_MS if since is None else since), as_json))
    if not verdicts:
        raise NotFoundError("no history was found")
    parted = sum(1 for verdict in verdicts if not verdict.same)
    if as_json:
        emit({"replayed": len(verdicts), "parted": parted, "verdicts": [asdict(verdict) for verdict in verdicts]})
    else:
        note(f"{len(verdicts)} replayed, {len(verdicts) - parted} the same, {parted} parted")
    return 1 if parted else 0


async def _replay(
    source: str | None, files: list[WorkflowHistory] | None, since: timedelta, quiet: bool
) -> list[replaying.ReplayResult]:
    verdicts = []
    async for history in _histories(source, files, since):
        verdict = await replaying.replay(history)
        verdicts.append(verdict)
        if not quiet:
            _show(verdict)
    return verdicts


async def _debug(source: str | None, files: list[WorkflowHistory] | None, step: int) -> int:
    async for history in _histories(source, files, timedelta()):
        watch = Watch(step)
        await replaying.debug(history, watch)
        if watch.reached:
            return 0
    raise NotFoundError(f"no step {step} was found in it")


async def _histories(
    source: str | None, files: list[WorkflowHistory] | None, since: timedelta
) -> AsyncIterator[WorkflowHistory]:
    if source is None:
        async for history in replaying.recent(await temporal(), since):
            yield history
    elif files is not None:
        for history in files:
            yield history
    else:
        for history in await replaying.with_conversation(await temporal(), source):
            yield history


def _from_file(path: Path) -> list[WorkflowHistory]:
    try:
        document = json.loads(path.read_text())
        found = document.get("histories", [document])
        return [replaying.from_document(one) for one in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(f"{path.name} holds no history that can be read ({type(error).__name__})") from None


def _show(verdict: replaying.ReplayResult) -> None:
    if verdict.same:
        click.echo(f"same    {verdict.workflow_id}  ({verdict.events} events)")
        return
    place = f"at event {verdict.event_id} ({verdict.event_type})" if verdict.event_id else ""
    click.echo(f"PARTED  {verdict.workflow_id}  {place}: {one_line(verdict.reason or '')}")
