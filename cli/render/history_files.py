"""A conversation as files: descriptor.json, state.json and history.jsonl, as `errand export --state` writes them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cli.render.output_file import write_output
from domain.json_object import JsonObject

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
