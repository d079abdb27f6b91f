"""`errand pull`: copies a task's changes in its workspace into a folder, or prints them as a patch; `apply`: puts those
that it made in a repository into a checkout."""

import contextlib
import difflib
import re
import shutil
import subprocess
from pathlib import Path

import click
from errand.models import WorkspaceFile, WorkspaceListing

from cli.api import Api, parse, segment
from cli.errors import CliError, NotFoundError
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import clean, emit, note, one_line
from cli.repository import find_top
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
    nothing is written. Files that the task has removed are removed here too.

    \b
    Examples:
      ./errand run assistant "Fix the tests" --dir . && ./errand pull last
      ./errand pull ID out/
      ./errand pull ID --patch | git apply
    """
    listed = parse(WorkspaceListing, api.get(f"/tasks/{segment(task_id)}/workspace"))
    changed = [found for one in listed.items if (found := _of_file(one))]
    if patch:
        _print_patch(api, task_id, changed, as_json)
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


def _of_file(one: WorkspaceFile) -> WorkspaceFile | None:
    """The change as one of a file: what was a folder or a link before is added, what has become a folder is removed."""
    if not one.change or one.kind == "link":
        return None
    was, is_now = one.kind_before == "file", one.kind == "file" and one.change != "removed"
    if not was and not is_now:
        return None
    return one.model_copy(update={"change": "modified" if was and is_now else "added" if is_now else "removed"})


def _write(api: Api, task_id: str, folder: Path, changed: list[WorkspaceFile], force: bool) -> None:
    """Fetch and check everything first, so that a conflict leaves the folder unchanged."""
    contents: dict[Path, bytes | None] = {}
    problems = []
    removed = {folder / one.path for one in changed if one.change == "removed"}
    for one in changed:
        target = folder / one.path
        try:
            if _is_obstructed(target, folder, removed):
                problems.append(f"{one_line(one.path)}: something else is in its place")
                continue
            present = target.read_bytes() if not force and target.is_file() else None
        except OSError as error:
            problems.append(f"{one_line(one.path)}: {error.strerror}")
            continue
        new = None if one.change == "removed" else _content(api, task_id, one.path)
        if present not in (None, new):
            given = None if one.change == "added" else _content(api, task_id, one.path, before=True)
            if present != given:
                problems.append(f"{one_line(one.path)}: changed here")
        contents[target] = new
    if problems:
        raise CliError("nothing was written; --force overwrites what changed here:\n  " + "\n  ".join(problems))
    modes = {folder / one.path: one.mode for one in changed}
    try:
        for target in removed:  # first, since a file may become a folder, and a folder a file
            target.unlink(missing_ok=True)
        for target, content in contents.items():
            if content is None:
                continue
            if target.is_dir():
                for empty in sorted((target, *target.rglob("*")), reverse=True):
                    empty.rmdir()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            # never writable for others, and always readable and writable for the user, whatever the agent has set
            target.chmod((modes[target] or 0o644) & 0o755 | 0o600)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}") from None


def _is_obstructed(target: Path, folder: Path, removed: set[Path]) -> bool:
    """Whether something is where the file or its folders belong that the task has not removed."""
    # a link here, or `..` in a path, must not lead the write out of the folder
    if not target.parent.resolve().is_relative_to(folder) or target.is_symlink():
        return True
    above = (one for one in target.parents if one != folder and one.is_relative_to(folder))
    if any(one.exists() and not one.is_dir() and one not in removed for one in above):
        return True
    if target.is_dir():  # a folder that has become a file
        return any((one.is_symlink() or not one.is_dir()) and one not in removed for one in target.rglob("*"))
    return target.exists() and not target.is_file()  # a device or a pipe


def _content(api: Api, task_id: str, path: str, *, before: bool = False) -> bytes:
    params = {"path": path} | ({"before": "true"} if before else {})
    return api.request("GET", f"/tasks/{segment(task_id)}/workspace/file", params=params).content


def _print_patch(api: Api, task_id: str, changed: list[WorkspaceFile], as_json: bool) -> None:
    diffs = {one.path: _diff(api, task_id, one) for one in changed}
    text = "".join(diff for diff in diffs.values() if diff is not None)
    binary = [path for path, diff in diffs.items() if diff is None]
    if as_json:
        emit({"patch": text, "left_out": binary})
        return
    click.echo(text.encode(), nl=False)  # in the encoding of the files, whatever the terminal's is
    for path in binary:
        note(f"left out, since it is not text: {one_line(path)}; without --patch it is copied")


def _diff(api: Api, task_id: str, one: WorkspaceFile) -> str | None:
    """The change in the form that `git apply` reads; None if the file is not text."""
    old = b"" if one.change == "added" else _content(api, task_id, one.path, before=True)
    new = b"" if one.change == "removed" else _content(api, task_id, one.path)
    # git's own sign of a binary file
    if old != new and b"\0" in old + new:
        return None
    try:
        before, after = _lines(old.decode()), _lines(new.decode())
    except UnicodeDecodeError:
        return None
    source, target = _quote(f"a/{one.path}"), _quote(f"b/{one.path}")
    header = [f"diff --git {source} {target}"]
    now, then = _git_mode(one.mode), _git_mode(one.mode_before)
    if one.change == "added":
        header, source = [*header, f"new file mode {now}"], "/dev/null"
    elif one.change == "removed":
        header, target = [*header, f"deleted file mode {then}"], "/dev/null"
    elif now != then:
        header += [f"old mode {then}", f"new mode {now}"]
    hunks = list(difflib.unified_diff(before, after))[2:]
    if hunks:
        # a name with a space ends with a tab, so that what follows is not taken for a part of it
        header += [
            f"{mark} {name}" + ("\t" if " " in name else "") for mark, name in (("---", source), ("+++", target))
        ]
    elif len(header) == 1:
        return ""  # only permissions that git does not know have changed
    ended = [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in hunks]
    return "\n".join(header) + "\n" + "".join(ended)


def _lines(text: str) -> list[str]:
    """Lines with their ends, as git has them: str.splitlines would also split at form feeds and the like."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _git_mode(mode: int | None) -> str:
    return "100755" if (mode or 0) & 0o100 else "100644"


def _quote(name: str) -> str:
    """A name as git writes it: in quotes, if it has characters that would end it."""
    if not re.search(r'["\\\x00-\x1f\x7f]', name):
        return name
    return '"' + re.sub(r'["\\\x00-\x1f\x7f]', lambda found: f"\\{ord(found[0]):03o}", name) + '"'


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
    if shutil.which("git") is None:
        raise click.UsageError("this needs the program git (on Debian and Ubuntu: apt install git)")
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
