"""`errand replay`: replay histories on the current code, and name the event at which it decides otherwise."""

import asyncio
import inspect
import json
import os
import pdb
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import click
from errand.models import ReplayVerdict
from temporalio.client import WorkflowHistory
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from cli.api import Api
from cli.errors import CliError, NotFoundError
from cli.ids import resolve
from cli.options import Duration, json_option, settings
from cli.render.output import emit, note, one_line
from cli.temporal import exits_at_once, key_ring, temporal
from domain.amounts import format_count
from domain.ids import is_id
from workflows import replay as replaying
from workflows.codec import data_converter
from workflows.replay import loop_above

DAY_MS = 24 * 3_600_000


@click.command()
@click.argument("source", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="All workflows that ran lately or are still running: the release gate."
)
@click.option("--since", type=Duration(), help="With --all: how far back to look.  [default: 1d]")
@click.option("--debug", is_flag=True, help="Stop in the debugger at a step of the session.")
@click.option("--step", type=click.IntRange(min=1), help="With --debug: the step.  [default: 1]")
@json_option
@exits_at_once
def replay(
    source: str | None, everything: bool, since: int | None, debug: bool, step: int | None, as_json: bool
) -> int:
    """Replay a session and its conversation on the current code. SOURCE is a task id, a bundle of `errand export`, or a
    history file.

    The exit code is 0 if the code makes the same decisions, else 1; then the event at which they differ is printed.
    Replaying calls no model and no tool, and needs no database; a file needs no Temporal either.

    \b
    Examples:
      ./errand replay ID
      ./errand replay bundle.json
      ./errand replay --all --since 7d       before a release
      ./errand replay ID --debug --step 3    debug its third step
    """
    if debug and source is None:
        raise click.UsageError("--debug needs a task id or a file")
    if (source is None) == (not everything):
        raise click.UsageError("give a task id or a file, or --all")
    if (since is not None and not everything) or (step is not None and not debug):
        raise click.UsageError("--since needs --all, and --step needs --debug")
    files = _from_file(source) if source else None
    # a whole id needs no API, only Temporal
    if source and files is None and not is_id(source):
        with Api(settings()) as api:
            source = resolve(api, source)
    if debug:
        return asyncio.run(_debug(source, files, step or 1))
    results = asyncio.run(_replay(source, files, timedelta(milliseconds=DAY_MS if since is None else since), as_json))
    if not results:
        raise NotFoundError("no history was found")
    different = sum(1 for result in results if not result.same)
    if as_json:
        emit({"replayed": len(results), "parted": different, "verdicts": [result.model_dump() for result in results]})
    else:
        note(f"{len(results)} replayed, {len(results) - different} the same, {different} different")
    return 1 if different else 0


async def _replay(
    source: str | None, files: list[WorkflowHistory] | None, since: timedelta, quiet: bool
) -> list[ReplayVerdict]:
    results = []
    async for history in _histories(source, files, since):
        result = await replaying.replay(history, data_converter(key_ring()))
        results.append(result)
        if not quiet:
            _show(result)
    return results


async def _debug(source: str | None, files: list[WorkflowHistory] | None, step: int) -> int:
    async for history in _histories(source, files, timedelta()):
        breakpoint = StepBreakpoint(step)
        await replaying.debug(history, breakpoint, data_converter(key_ring()))
        if breakpoint.reached:
            return 0
    raise NotFoundError(f"the history has no step {step}")


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


def _from_file(source: str) -> list[WorkflowHistory] | None:
    """The histories of a bundle or of a history file; None if there is no such file."""
    path = Path(source)
    try:
        if not path.is_file():
            return None
    except (OSError, ValueError):  # not a possible file name
        return None
    try:
        document = json.loads(path.read_text())
        found = document.get("histories", [document])
        return [replaying.from_document(one) for one in found]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(f"{path.name} contains no readable history ({type(error).__name__})") from None


def _show(result: ReplayVerdict) -> None:
    if result.same:
        click.echo(f"same       {result.workflow_id}  ({format_count(result.events, 'event')})")
        return
    event = f"at event {result.event_id} ({result.event_type})" if result.event_id else ""
    click.echo(f"DIFFERENT  {result.workflow_id}  {event}: {one_line(result.reason or '')}")


# the debugger of --debug, and the interceptor that starts it at one step


STOP_NOWHERE = -1  # pdb's value of `stoplineno` after `continue`


class Debugger(pdb.Pdb):
    def stop_in(self, frame: FrameType) -> None:
        """Open a prompt in an outer frame now; `set_trace` would wait until that frame runs its next line."""
        self.reset()
        outer: FrameType | None = frame
        while outer is not None:
            outer.f_trace = self.trace_dispatch
            self.botframe, outer = outer, outer.f_back
        self.interaction(frame, None)
        if self.breaks or self.stoplineno != STOP_NOWHERE:
            sys.settrace(self.trace_dispatch)

    def do_quit(self, arg: str) -> bool | None:
        """End the process: pdb's own exception, raised inside the workflow, would look like a failure of the replay."""
        sys.stdout.flush()
        os._exit(0)

    do_q = do_exit = do_EOF = do_quit


class StepBreakpoint(Interceptor):
    """Starts the debugger in the session's loop when it calls the model in the given step."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.reached = False

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        breakpoint = self

        class Outbound(WorkflowOutboundInterceptor):
            def start_activity(self, input: StartActivityInput) -> "ActivityHandle[Any]":
                breakpoint.activity_started(input, inspect.currentframe())
                return super().start_activity(input)

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound))

        return Inbound

    def activity_started(self, input: StartActivityInput, frame: FrameType | None) -> None:
        if self.reached or input.activity != "call_model" or input.args[0].step != self.step:
            return
        self.reached = True
        note("`line`, `state` and `session` are the loop's variables; n: to the model's reply, c: to the end, q: quit")
        Debugger(skip=["temporalio.*", "asyncio.*", "contextlib"]).stop_in(loop_above(frame))
