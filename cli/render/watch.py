"""Watching a task until it ends: a story or NDJSON on stdout, the outcome as exit code, Ctrl-C to detach."""

from typing import NoReturn

import click

from cli.client.api import Api
from cli.client.errors import Exit, exit_of
from cli.client.follow import LAST, follow
from cli.render.output import PROGRAM, emit, note
from cli.render.story import Story


def watch(api: Api, task_id: str, *, after: int, patience_ms: int, as_json: bool) -> NoReturn:
    story = Story(task_id)
    status = ""

    def say(text: str) -> None:
        story.break_line()
        note(text)

    try:
        for event in follow(api, task_id, after=after, patience=patience_ms / 1_000, say=say):
            after = event["seq"]
            if event["type"] in LAST:
                status = event["status"]
            if as_json:
                emit(event)
            else:
                story.show(event)
    except KeyboardInterrupt:
        story.break_line()
        detached(task_id, after, "Detached")
        raise SystemExit(int(Exit.DETACHED)) from None
    if not status:  # all of it was seen before
        status = api.task(task_id)["status"]
        say(f"the task is {status}; nothing came after event {after}")
    click.get_current_context().exit(int(exit_of(status)))


def detached(task_id: str, after: int, how: str) -> None:
    since = f" --after {after}" if after else ""
    note(f"{how}; the task goes on without you.")
    note(f"  follow it:  {PROGRAM} attach {task_id}{since}")
    note(f"  its result: {PROGRAM} result {task_id} --wait")
    note(f"  stop it:    {PROGRAM} cancel {task_id}")
