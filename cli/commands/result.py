"""`errand result`: what came of a task, and its artifacts."""

import json
from pathlib import Path
from typing import Any

import click

from cli.client.api import Api, part
from cli.client.errors import Exit, NotFinished, NotFoundError, Refused, exit_of
from cli.client.follow import follow
from cli.options import patience_option, remote
from cli.render.output import PROGRAM, clean, emit, error_line, fetch_command, note, one_line, usage_line
from cli.render.saving import save

SHOWN = 20  # effects


@click.command()
@click.argument("task_id")
@click.option("--wait", is_flag=True, help="Wait until the task ends.")
@click.option("--artifact", "name", help="Fetch this artifact instead of the output.")
@click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@patience_option
@remote
def result(
    api: Api, task_id: str, wait: bool, name: str | None, target: Path | None, patience: int, as_json: bool
) -> None:
    """Print the output of a finished task; remarks about it go to stderr.

    The exit code tells the outcome: 0 completed, 1 failed, 3 cancelled, 7 not finished yet.

    \b
    Examples:
      ./errand result ID --wait > answer.txt
      ./errand result ID --artifact report.md -o report.md
      ./errand result ID --json | jq .usage
    """
    if wait:
        _wait(api, task_id, patience / 1_000)
    found = _fetch(api, task_id)
    if name is not None:
        content = _download(api, _choose(found, name))
        _write(content, target)
        return
    if as_json:
        emit(found)
    else:
        said = found.get("output")
        text = clean(said if isinstance(said, str) else "" if said is None else json.dumps(said, ensure_ascii=False))
        if text or target:
            _write((text.rstrip("\n") + "\n").encode(errors="replace"), target)
        _remarks(found)
    click.get_current_context().exit(int(exit_of(found["status"])))


def _wait(api: Api, task_id: str, patience: float) -> None:
    api.task(task_id)  # an unknown id, or no server, is told at once
    try:
        for _ in follow(api, task_id, patience=patience, say=note):
            pass
    except KeyboardInterrupt:
        note(f"No longer waiting; the task goes on. `{PROGRAM} result {task_id} --wait` waits again.")
        raise SystemExit(int(Exit.DETACHED)) from None


def _fetch(api: Api, task_id: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = api.get(f"/tasks/{part(task_id)}/result")
    except Refused as refused:
        if refused.status != 409:
            raise
        raise NotFinished(
            f"{refused.message}\nWith --wait this command waits.", status=409, body=refused.body
        ) from None
    return found


def _remarks(found: dict[str, Any]) -> None:
    partial = ", partial result" if found.get("partial") else ""
    note(f"{found['status']} ({found.get('reason') or 'no reason given'}{partial}): {usage_line(found['usage'])}")
    if found.get("error"):
        note(f"  {error_line(found['error'])}")
    for one in found.get("acceptance") or []:
        note(f"  {'met' if one['passed'] else 'not met'}: {one_line(one['criterion'])} ({one_line(one['why'])})")
    for effect in (found.get("effects") or [])[:SHOWN]:
        note(f"  {effect['state']}: {one_line(effect['description'] or effect['tool'])}")
    for artifact in found.get("artifacts") or []:
        note(f"  artifact: {fetch_command(found['task_id'], artifact['name'])}")


def _choose(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The artifact by its name; where a task saved it several times, the last one."""
    artifacts = found.get("artifacts") or []
    chosen: dict[str, Any] | None = next((one for one in reversed(artifacts) if one.get("name") == name), None)
    if chosen is None:
        names = ", ".join(sorted({str(one.get("name")) for one in artifacts})) or "none"
        raise NotFoundError(f"the task has no artifact {name!r}; it has: {names}")
    return chosen


def _download(api: Api, artifact: dict[str, Any]) -> bytes:
    return api.send("GET", artifact["url"]).content


def _write(content: bytes, target: Path | None) -> None:
    if target is None:
        click.echo(content, nl=False)
        return
    save(target, content)
    note(f"wrote {target}")
