"""`errand pull`: copies a task's changes in its workspace into a folder, or prints them as a patch; `apply`: puts those
that it made in a repository into a checkout."""

import contextlib
import subprocess
import tempfile
from pathlib import Path

import click
from errand.models import WorkspaceFile, WorkspaceListing

from cli.api import Api, parse, segment
from cli.errors import CliError, NotFoundError
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import clean, emit, note, one_line
from cli.repository import PLAIN, find_top, need_git
from cli.trees import find_repositories, is_left_out
from domain.environments import PATCH

_OF_ONE = f"{Path(PATCH).stem}-"
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
    nothing is written. Files that the task has removed are removed here too. What it has in `.git`, or in a folder that
    git takes for a repository, stays there.

    \b
    Examples:
      ./errand run assistant "Fix the tests" --dir . && ./errand pull last
      ./errand pull ID out/
      ./errand pull ID --patch | git apply
    """
    listed = parse(WorkspaceListing, api.get(f"/tasks/{segment(task_id)}/workspace"))
    repositories = find_repositories(one.path for one in listed.items if one.change != "removed")
    items = [one for one in listed.items if one.change and not is_left_out(one.path, repositories)]
    if len(items) < sum(one.change is not None for one in listed.items):  # git would run its hooks as the user
        note("left out: what the task has changed in .git or in a bare repository")
    if patch:
        _print_patch(api, task_id, items, as_json)
        return
    changed = [one for one in items if one.kind == "file" and one.kind_before in (None, "file")]
    _write(api, task_id, folder.resolve(), changed, force)
    if as_json:
        emit({"items": [{"path": one.path, "change": one.change} for one in changed]})
        return
    for one in changed:
        click.echo(f"{MARKS[one.change or '']} {one_line(one.path, 1_000)}")
    for one in items:
        if one not in changed and {one.kind, one.kind_before} - {"folder", None}:
            note(f"left out, since it is or was a link or a folder: {one_line(one.path)}")
    if not changed:
        note("the task has changed no file")


def _write(api: Api, task_id: str, folder: Path, changed: list[WorkspaceFile], force: bool) -> None:
    """Fetch and check everything first, so that a conflict leaves the folder unchanged."""
    contents: dict[WorkspaceFile, bytes | None] = {}
    problems = []
    for one in changed:
        target = folder / one.path
        try:
            if _is_obstructed(target):
                problems.append(f"{one_line(one.path)}: something else is in its place")
                continue
            present = target.read_bytes() if not force and target.exists() else None
        except OSError as error:
            problems.append(f"{one_line(one.path)}: {error.strerror}")
            continue
        new = None if one.change == "removed" else _content(api, task_id, one.path)
        if present not in (None, new):
            given = None if one.change == "added" else _content(api, task_id, one.path, before=True)
            if present != given:
                problems.append(f"{one_line(one.path)}: changed here")
        contents[one] = new
    if problems:
        raise CliError("nothing was written; --force overwrites what changed here:\n  " + "\n  ".join(problems))
    try:
        for one, content in contents.items():
            if content is None:
                (folder / one.path).unlink(missing_ok=True)
            else:
                _put(folder / one.path, content, one.mode)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from None


def _is_obstructed(target: Path) -> bool:
    """Whether something is in the way; a link here, or `..` in a path, must not lead the write elsewhere: a link to
    another folder in this one could lead to its hooks."""
    if target.parent.resolve() != target.parent or target.is_symlink():
        return True
    place = next(one for one in (target, *target.parents) if one.exists())
    return not (place.is_file() if place == target else place.is_dir())


def _put(target: Path, content: bytes, mode: int | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    # never writable for others, and always readable and writable for the user, whatever the agent has set
    target.chmod((mode or 0o644) & 0o755 | 0o600)


def _content(api: Api, task_id: str, path: str, *, before: bool = False) -> bytes:
    params = {"path": path} | ({"before": "true"} if before else {})
    return api.request("GET", f"/tasks/{segment(task_id)}/workspace/file", params=params).content


def _print_patch(api: Api, task_id: str, items: list[WorkspaceFile], as_json: bool) -> None:
    """What git finds between the files before and after: links are left out."""
    need_git("--patch")
    with tempfile.TemporaryDirectory(prefix="errand-") as place:
        top = Path(place).resolve()
        for side in ("a", "b"):
            (top / side).mkdir()
        for one in items:
            for side, kind, mode in (("a", one.kind_before, one.mode_before), ("b", one.kind, one.mode)):
                missing = kind != "file" or one.kind == "link" or (side == "b" and one.change == "removed")
                if not missing and not _is_obstructed(top / side / one.path):
                    _put(top / side / one.path, _content(api, task_id, one.path, before=side == "a"), mode)
        git = ["env", *(f"{name}={value}" for name, value in PLAIN.items()), "git", "diff", "--no-index", "--binary"]
        plain = ["--no-prefix", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv"]
        done = subprocess.run([*git, *plain, "a", "b"], cwd=top, capture_output=True)
    if done.returncode > 1:  # 1: they differ
        raise CliError(clean(done.stderr.decode(errors="replace")).strip())
    if as_json:
        emit({"patch": done.stdout.decode(errors="replace")})
    else:
        click.echo(done.stdout, nl=False)  # in the encoding of the files, whatever the terminal's is


# the changes of a task in a repository, as the patch that it has left


def fetch_patch(api: Api, task_id: str, repository: str | None = None) -> tuple[bytes, bool]:
    """The changes of a finished task as a patch, or those in one of its repositories; and whether it is of several."""
    artifacts, name = api.result(task_id).artifacts, PATCH.replace(".", f"-{repository}.") if repository else PATCH
    patch = next((one for one in reversed(artifacts) if one.name == name and one.url.startswith("/")), None)
    several = repository is None and any(one.name.startswith(_OF_ONE) for one in artifacts)
    if patch is None and several:
        raise NotFoundError("the changes are too large for one patch: take each repository's with --repository")
    if patch is None:
        raise NotFoundError("the task has changed nothing in a repository, or it had none")
    return api.request("GET", patch.url).content, several


@click.command()
@click.argument("task_id", type=TaskId())
@click.argument("folder", required=False, default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repository", help="If the task has several: only the changes in this one.")
@click.option("--check", is_flag=True, help="Only say whether the patch applies.")
@remote
def apply(api: Api, task_id: str, folder: Path, repository: str | None, check: bool, as_json: bool) -> None:
    """Apply the changes of a task to the git checkout in FOLDER, the current one if you name none.

    Either all of them are applied or none. They stay uncommitted, so that you can look at them. If the task has several
    repositories, FOLDER is the one in which their checkouts are, or --repository says of which one it is the checkout.

    \b
    Examples:
      ./errand run coder "Fix the failing test" --repo . && ./errand apply last
      ./errand apply ID --check
      ./errand diff ID
    """
    need_git("apply")
    patch, several = fetch_patch(api, task_id, repository)
    # git leaves out what is not below the folder in which it runs, and says nothing
    command = ["env", f"GIT_CEILING_DIRECTORIES={folder.resolve().parent}", "git", "apply"]
    if not several:
        with contextlib.suppress(click.UsageError):  # a folder without git takes a patch too
            folder = find_top(folder)
    options = ["--check"] if check else ["--stat", "--apply"]
    done = subprocess.run([*command, *options, "-"], cwd=folder, input=patch, capture_output=True)
    if done.returncode != 0:
        raise CliError(f"nothing was changed: {clean(done.stderr.decode(errors='replace')).strip()}")
    if as_json:
        emit({"applied": not check, "bytes": len(patch)})
    elif check:
        note("the patch applies")
    else:
        click.echo(clean(done.stdout.decode(errors="replace")).rstrip())
