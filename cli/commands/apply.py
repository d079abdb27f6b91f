"""`errand apply`: puts the changes that a task made in a repository into a checkout."""

import shutil
import subprocess
from pathlib import Path

import click

from cli.api import Api
from cli.errors import CliError, NotFoundError
from cli.ids import TaskId
from cli.options import remote
from cli.render.output import clean, emit, note
from domain.environments import PATCH


def fetch_patch(api: Api, task_id: str) -> bytes:
    """The changes of a finished task as a patch."""
    artifacts = api.result(task_id).artifacts
    patch = next((one for one in reversed(artifacts) if one.name == PATCH and one.url.startswith("/")), None)
    if patch is None:
        raise NotFoundError("the task has changed nothing in a repository, or it had none")
    return api.request("GET", patch.url).content


@click.command()
@click.argument("task_id", type=TaskId())
@click.argument("folder", required=False, default=".", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Only say whether the patch applies.")
@remote
def apply(api: Api, task_id: str, folder: Path, check: bool, as_json: bool) -> None:
    """Apply the changes of a task to the git checkout in FOLDER, the current one if you name none.

    Either all of them are applied or none. They stay uncommitted, so that you can look at them.

    \b
    Examples:
      ./errand run coder "Fix the failing test" --repo . && ./errand apply last
      ./errand apply ID --check
      ./errand diff ID
    """
    if shutil.which("git") is None:
        raise click.UsageError("this needs the program git (on Debian and Ubuntu: apt install git)")
    patch = fetch_patch(api, task_id)
    options = ["--check"] if check else ["--stat", "--apply"]
    done = subprocess.run(["git", "apply", *options, "-"], cwd=folder, input=patch, capture_output=True)
    if done.returncode != 0:
        raise CliError(f"nothing was changed: {clean(done.stderr.decode(errors='replace')).strip()}")
    if as_json:
        emit({"applied": not check, "bytes": len(patch)})
    elif check:
        note("the patch applies")
    else:
        click.echo(clean(done.stdout.decode(errors="replace")).rstrip())
