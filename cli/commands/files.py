"""`errand files`: delete uploaded files."""

import click

from cli.client.api import Api, segment
from cli.options import remote
from cli.render.output import emit


@click.group()
def files() -> None:
    """Uploaded files. `run --file` uploads one for a task."""


@files.command("rm")
@click.argument("file_ids", nargs=-1, required=True, metavar="FILE...")
@remote
def remove_files(api: Api, file_ids: tuple[str, ...], as_json: bool) -> None:
    """Delete uploaded files by their ids. A file of an unfinished task is refused; workspaces keep their copies."""
    for file_id in file_ids:
        api.send("DELETE", f"/files/{segment(file_id)}")
        emit({"file_id": file_id, "deleted": True}) if as_json else click.echo(f"deleted {file_id}")
