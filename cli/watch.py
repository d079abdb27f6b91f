"""Watches a task until it ends: prints its events, exits with its outcome, and detaches at Ctrl-C."""

import sys
from typing import Any, NoReturn

import click

from cli.answering import answer_by_typing, answer_command, open_requests, show_request
from cli.api import ENDS, Api, EventData, follow
from cli.errors import Exit, exit_of
from cli.ids import write_last
from cli.render.event_printer import EventPrinter
from cli.render.output import PROGRAM, emit, note


def watch_or_detach(
    api: Api,
    task_id: str,
    answer: Any,
    *,
    detach: bool,
    patience_ms: int,
    as_json: bool,
    action: str,
    no_input: bool = False,
) -> None:
    """What a command does after the server has accepted a task with this `answer`."""
    write_last(api.address, task_id)
    if not detach:
        watch(api, task_id, after=0, patience_ms=patience_ms, as_json=as_json, no_input=no_input)
    if as_json:
        emit(answer)
    else:
        click.echo(task_id)
        show_detached(task_id, 0, action)


def watch(api: Api, task_id: str, *, after: int, patience_ms: int, as_json: bool, no_input: bool = False) -> NoReturn:
    asks = not (no_input or as_json) and sys.stdin.isatty() and sys.stdout.isatty()
    printer = EventPrinter(task_id, api.find_url)
    status = ""

    def notify(text: str) -> None:
        printer.break_line()
        note(text)

    try:
        for event in follow(api, task_id, after=after, patience=patience_ms / 1_000, notify=notify):
            after = event["seq"]
            if event["type"] in ENDS:
                status = event["status"]
            if as_json:
                emit(event)
            elif not (asks and _ask(api, event, printer)):
                printer.show(event)
    except KeyboardInterrupt:
        printer.break_line()
        show_detached(task_id, after, "Detached")
        raise SystemExit(int(Exit.DETACHED)) from None
    if not status:  # every event was seen before
        status = api.task(task_id).status
        notify(f"the task is {status}; no event came after {after}")
    click.get_current_context().exit(int(exit_of(status)))


def _ask(api: Api, event: EventData, printer: EventPrinter) -> bool:
    """Ask the person at the terminal, if the event is a question that nobody has answered yet."""
    if event["type"] != "input_required":
        return False
    request = next((one for one in open_requests(api, event["session_id"]) if one.id == event["request_id"]), None)
    # answered meanwhile, or an event of the past: the printer shows it like any other
    if request is None:
        return False
    printer.break_line()
    show_request(request, hint=False)
    if not answer_by_typing(api, request):
        note(f"  {answer_command(request.session_id, request.id, request.kind)}")
    return True


def show_detached(task_id: str, after: int, action: str) -> None:
    """Print that the task continues, and the commands that follow, read and stop it."""
    since = f" --after {after}" if after else ""
    note(f"{action}; the task continues without you.")
    note(f"  follow it:  {PROGRAM} attach {task_id}{since}")
    note(f"  its result: {PROGRAM} result {task_id} --wait")
    note(f"  stop it:    {PROGRAM} cancel {task_id}")
