"""`errand export`: write all data about a session to one file, for somebody without access to the database."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from cli.api import Api, events_so_far, segment
from cli.commands.result import write_output
from cli.errors import NotFoundError
from cli.ids import TaskId
from cli.options import remote
from cli.render.answers import print_done
from cli.temporal import exits_at_once, temporal
from domain.amounts import format_count
from domain.json_object import JsonObject
from workflows import replay as replaying


@click.command()
@click.argument("task_id", type=TaskId())
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.  [default: ID.json]"
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write descriptor.json, state.json and history.jsonl of the conversation into this directory instead.",
)
@remote
@exits_at_once
def export(api: Api, task_id: str, output: Path | None, state: Path | None, as_json: bool) -> int:
    """Write a session to one file: its histories and its conversation's, messages, events, the agent's definition and
    the audit log.

    `errand replay FILE` replays the file anywhere: without a database, Temporal or a model.

    \b
    Examples:
      ./errand export ID
      ./errand export ID -o case.json && ./errand replay case.json
      ./errand export ID --state folder
    """
    session = api.get(f"/sessions/{segment(task_id)}")
    if state is not None:
        return _export_state(api, session["conversation_id"], state, as_json)
    histories = asyncio.run(_histories(task_id, api.url))
    if not histories:
        # before anything is written: a bundle without histories cannot be replayed
        raise NotFoundError("Temporal no longer has a history of this session")
    bundle = {
        "format": "errand-bundle-1",
        "session": session,
        "agent": api.get(f"/tasks/{segment(task_id)}/agent"),
        "events": [*events_so_far(api, task_id)],
        "audit": [*api.items(f"/tasks/{segment(task_id)}/audit", position="before", limit=1000)][::-1],
        "histories": histories,
    }
    path = output or Path(f"{task_id}.json")
    write_output(path, json.dumps(bundle, indent=1))
    written = {"file": str(path), "histories": len(histories), "events": len(bundle["events"])}
    runs = "1 history" if len(histories) == 1 else f"{len(histories)} histories"
    print_done(written, as_json, f"wrote {path}: {runs}, {format_count(len(bundle['events']), 'event')}")
    return 0


def _export_state(api: Api, conversation_id: str, folder: Path, as_json: bool) -> int:
    conversation = api.get(f"/conversations/{segment(conversation_id)}")
    records = write_files(
        folder, conversation, api.items(f"/conversations/{segment(conversation_id)}/turns", full=True, limit=100)
    )
    said = f"wrote {folder}: descriptor.json, state.json, history.jsonl with {records} records"
    print_done({"directory": str(folder), "records": records}, as_json, said)
    return 0


async def _histories(task_id: str, url: str | None) -> list[dict[str, object]]:
    found = await replaying.with_conversation(await temporal(url), task_id)
    return [replaying.to_document(history) for history in found]


# a conversation as files, for --state


Record = JsonObject


def write_files(folder: Path, conversation: Record, turns: Iterable[Record]) -> int:
    """Write the three files; returns the number of records in the history."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = {"conversation_id": conversation["conversation_id"], **conversation["descriptor"]}
    write_output(folder / "descriptor.json", json.dumps(descriptor, indent=1) + "\n")
    write_output(folder / "state.json", json.dumps(conversation["state"], indent=1) + "\n")
    lines = [json.dumps(record, ensure_ascii=False) for record in history(conversation["state"]["markers"], turns)]
    write_output(folder / "history.jsonl", "".join(f"{line}\n" for line in lines))
    return len(lines)


def history(markers: list[Record], turns: Iterable[Record]) -> Iterator[Record]:
    """The records in order; the context is what follows the last marker."""
    passed = 0
    for turn in turns:
        while passed <= turn["generation"]:
            yield _marker(markers[passed])
            passed += 1
        for message in turn["display_messages"] or []:
            yield {**message, "session_id": turn["session_id"]}
    yield from map(_marker, markers[passed:])


def _marker(marker: Record) -> Record:
    return {"type": marker["kind"], "at": marker["at"]}
