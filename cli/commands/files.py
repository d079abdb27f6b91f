"""`errand files`: list and delete uploaded files."""

import click
from errand.models import File, FilePage

from cli.api import Api, segment
from cli.options import page_options, remote
from cli.render.answers import print_list
from cli.render.output import age, emit, one_line, size


@click.group()
def files() -> None:
    """Uploaded files. `run --file` uploads one for a task."""


@files.command("list")
@click.option("--all", "everything", is_flag=True, help="Also show files that other keys have uploaded.")
@page_options("Files")
@remote
def list_files(api: Api, everything: bool, limit: int, cursor: str | None, as_json: bool) -> None:
    """List the files that you have uploaded, newest first. Artifacts are in the result of their task.

    \b
    Examples:
      ./errand files list
      ./errand files list --json | jq -r '.items[].file_id'
    """
    answer = api.get("/files", own=None if everything else "true", limit=limit, cursor=cursor)
    columns, more = ["FILE", "SIZE", "UPLOADED", "NAME"], f"files list{' --all' if everything else ''} --limit {limit}"
    print_list(answer, as_json, FilePage, columns, _row, empty="no uploaded files", more=more)


def _row(one: File) -> list[str]:
    return [one.file_id, size(one.size), age(one.created_at), one_line(one.name)]


@files.command("rm")
@click.argument("file_ids", nargs=-1, required=True, metavar="FILE...")
@remote
def remove_files(api: Api, file_ids: tuple[str, ...], as_json: bool) -> None:
    """Delete uploaded files by their ids. A file of an unfinished task is refused; workspaces keep their copies."""
    for file_id in file_ids:
        api.request("DELETE", f"/files/{segment(file_id)}")
        emit({"file_id": file_id, "deleted": True}) if as_json else click.echo(f"deleted {file_id}")
