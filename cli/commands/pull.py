"""`errand pull`: copies a task's changes in its workspace into a folder, or prints them as a patch."""

import difflib
from pathlib import Path

import click

from cli.client.api import Api, segment
from cli.client.models import WorkspaceFileInfo, WorkspaceInfo
from cli.client.response import parse
from cli.errors import CliError
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import emit, note, one_line

MARKS = {"added": "A", "modified": "M", "removed": "D"}


@click.command()
@click.argument("task_id", type=TaskId())
@click.argument("folder", required=False, default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option("--patch", is_flag=True, help="Print a diff instead of writing files.")
@click.option("--force", is_flag=True, help="Overwrite files that have changed here in the meantime.")
@remote
def pull(api: Api, task_id: str, folder: Path, patch: bool, force: bool, as_json: bool) -> None:
    """Fetch the files that a task has changed in its workspace into FOLDER, the current one if you name none.

    A file whose content here differs from what the task was given is not overwritten: all such files are listed, and
    nothing is written. Files that the task has removed are removed here too.

    \b
    Examples:
      ./errand run assistant "Fix the tests" --dir . && ./errand pull last
      ./errand pull ID out/
      ./errand pull ID --patch | git apply
    """
    listed = parse(WorkspaceInfo, api.get(f"/tasks/{segment(task_id)}/workspace"))
    changed = [one for one in listed.items if one.change and one.kind == "file"]
    if patch:
        for one in changed:
            click.echo(_diff(api, task_id, one), nl=False)
        return
    others = [one for one in listed.items if one.change and one.kind == "link"]
    _write(api, task_id, folder.resolve(), changed, force)
    if as_json:
        emit({"items": [{"path": one.path, "change": one.change} for one in changed]})
        return
    for one in changed:
        click.echo(f"{MARKS[one.change or '']} {one_line(one.path, 1_000)}")
    for one in others:
        note(f"left out, since it is a link: {one_line(one.path)}")
    if not changed:
        note("the task has changed no file")


def _write(api: Api, task_id: str, folder: Path, changed: list[WorkspaceFileInfo], force: bool) -> None:
    """Fetch and check everything first, so that a conflict leaves the folder unchanged."""
    contents: dict[Path, bytes | None] = {}
    problems = []
    for one in changed:
        target = folder / one.path
        if not target.parent.resolve().is_relative_to(folder) or target.is_symlink() or target.is_dir():
            problems.append(f"{one_line(one.path)}: a link or a folder is in its place")
            continue
        new = None if one.change == "removed" else _content(api, task_id, one.path)
        if not force and target.exists() and (here := target.read_bytes()) != new:
            given = None if one.change == "added" else _content(api, task_id, one.path, before=True)
            if here != given:
                problems.append(f"{one_line(one.path)}: changed here")
        contents[target] = new
    if problems:
        raise CliError("nothing was written; --force overwrites what changed here:\n  " + "\n  ".join(problems))
    modes = {folder / one.path: one.mode for one in changed}
    try:
        for target, content in contents.items():
            if content is None:
                target.unlink(missing_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod((modes[target] or 0o644) & 0o755 | 0o600)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from None


def _content(api: Api, task_id: str, path: str, *, before: bool = False) -> bytes:
    params = {"path": path} | ({"before": "true"} if before else {})
    return api.send("GET", f"/tasks/{segment(task_id)}/workspace/file", params=params).content


def _diff(api: Api, task_id: str, one: WorkspaceFileInfo) -> str:
    """Print the changes in the form that git and patch read."""
    old = b"" if one.change == "added" else _content(api, task_id, one.path, before=True)
    new = b"" if one.change == "removed" else _content(api, task_id, one.path)
    try:
        before, after = old.decode().splitlines(keepends=True), new.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return f"Binary files a/{one.path} and b/{one.path} differ\n"
    source = "/dev/null" if one.change == "added" else f"a/{one.path}"
    target = "/dev/null" if one.change == "removed" else f"b/{one.path}"
    made = [
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
        for line in difflib.unified_diff(before, after, source, target)
    ]
    mode = "new file mode 100644\n" if one.change == "added" else ""
    mode = "deleted file mode 100644\n" if one.change == "removed" else mode
    return f"diff --git a/{one.path} b/{one.path}\n{mode}" + "".join(made) if made else ""
