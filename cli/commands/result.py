"""`errand result`: print the output of a finished task, or download an artifact."""

import json
from pathlib import Path
from typing import Any

import click
from errand.models import Artifact, Result

from cli.api import Api, parse, segment, wait_for_result
from cli.errors import CliError, Exit, NotFinished, NotFoundError, Refused, exit_of
from cli.ids import TaskId
from cli.options import patience_option, remote
from cli.render.output import PROGRAM, clean, emit, error_line, fetch_command, note, one_line, usage_line

EFFECTS_SHOWN = 20


@click.command()
@click.argument("task_id", type=TaskId())
@click.option("--wait", is_flag=True, help="Wait until the task ends.")
@click.option("--artifact", "name", help="Download this artifact instead of the output.")
@click.option(
    "--artifacts",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Download all artifacts into this folder.",
)
@click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@patience_option
@remote
def result(
    api: Api,
    task_id: str,
    wait: bool,
    name: str | None,
    folder: Path | None,
    target: Path | None,
    patience: int,
    as_json: bool,
) -> None:
    """Print the output of a finished task on stdout, and how it ended on stderr.

    The exit code is the outcome: 0 completed, 1 failed, 3 cancelled, 7 not finished yet.

    \b
    Examples:
      ./errand result ID --wait > answer.txt
      ./errand result ID --artifact report.md -o report.md
      ./errand result ID --artifacts out/
      ./errand result ID --json | jq .usage
    """
    answer = _wait(api, task_id, patience / 1_000) if wait else _fetch(api, task_id)
    found = parse(Result, answer)
    if folder is not None:
        # if the task saved a name several times, the last one is kept
        for artifact in {one.name: one for one in found.artifacts if not _is_elsewhere(one)}.values():
            folder.mkdir(parents=True, exist_ok=True)
            # only the last part of the name, because an agent chose it and `..` would leave the folder
            _write(api.request("GET", artifact.url).content, folder / Path(artifact.name).name)
    if name is not None:
        chosen = _choose(found, name)
        # an address is only printed: our key must not be sent to another server
        content = f"{clean(chosen.url)}\n".encode() if _is_elsewhere(chosen) else api.request("GET", chosen.url).content
        _write(content, target)
        return
    if as_json:
        emit(answer)
    else:
        output = "" if found.output is None else found.output
        text = clean(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
        if text or target:
            _write((text.rstrip("\n") + "\n").encode(errors="replace"), target)
        _show_ending(found)
    click.get_current_context().exit(int(exit_of(found.status)))


def _wait(api: Api, task_id: str, patience: float) -> Any:
    api.task(task_id)  # fail here for an unknown id or an unreachable server, instead of retrying
    try:
        return wait_for_result(api, task_id, patience=patience, notify=note)
    except KeyboardInterrupt:
        note(f"No longer waiting; the task continues. `{PROGRAM} result {task_id} --wait` waits again.")
        raise SystemExit(int(Exit.DETACHED)) from None


def _fetch(api: Api, task_id: str) -> Any:
    try:
        return api.get(f"/tasks/{segment(task_id)}/result")
    except Refused as refused:
        if refused.status != 409:
            raise
        raise NotFinished(
            f"{refused.message}\nWith --wait this command waits.", status=409, body=refused.body
        ) from None


def _show_ending(found: Result) -> None:
    partial = ", partial result" if found.partial else ""
    note(f"{found.status} ({found.reason or 'no reason given'}{partial}): {usage_line(found.usage)}")
    if found.error:
        note(f"  {error_line(found.error)}")
    for verdict in found.acceptance or []:
        met = "met" if verdict.passed else "not met"
        note(f"  {met}: {one_line(verdict.criterion)} ({one_line(verdict.why)})")
    for effect in found.effects[:EFFECTS_SHOWN]:
        note(f"  {effect.state}: {one_line(effect.description or effect.tool)}")
    for artifact in found.artifacts:
        where = one_line(artifact.url) if _is_elsewhere(artifact) else fetch_command(found.task_id, artifact.name)
        note(f"  artifact: {where}")


def _is_elsewhere(artifact: Artifact) -> bool:
    return not artifact.url.startswith("/")


def _choose(found: Result, name: str) -> Artifact:
    """The artifact with this name; if the task saved it several times, the last one."""
    chosen = next((artifact for artifact in reversed(found.artifacts) if artifact.name == name), None)
    if chosen is None:
        names = ", ".join(sorted({artifact.name for artifact in found.artifacts})) or "none"
        raise NotFoundError(f"the task has no artifact {name!r}; it has: {names}")
    return chosen


def _write(content: bytes, target: Path | None) -> None:
    if target is None:
        click.echo(content, nl=False)
        return
    write_output(target, content)
    note(f"wrote {target}")


def write_output(path: Path, content: str | bytes) -> None:
    try:
        # a lone surrogate in a model's text must not lose the whole file
        path.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from None
