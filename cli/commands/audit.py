"""`errand audit`: who did what, and the proof that nothing of it was changed or taken out."""

from typing import Any

import click

from cli.client.api import Api, part
from cli.client.errors import Exit
from cli.options import remote
from cli.render.output import emit, note, one_line, table

VERIFY = "verify"


@click.command()
@click.argument("task_id", required=False, metavar="[ID | verify]")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Most entries to show.")
@click.option("--head", help="With verify: a head that an earlier verification named must still be there.")
@remote
def audit(api: Api, task_id: str | None, limit: int, head: str | None, as_json: bool) -> None:
    """Show the audit log, of one task or of all, newest last; or verify all of it.

    The exit code of `verify` is 1 if an entry was changed or is missing; the first such place is named.

    \b
    Examples:
      ./errand audit ID
      ./errand audit verify
    """
    if head is not None and task_id != VERIFY:
        raise click.UsageError("--head goes with verify")
    if task_id == VERIFY:
        _verify(api, head, as_json)
        return
    path = f"/tasks/{part(task_id)}/audit" if task_id else "/audit"
    found = api.get(path, limit=limit)
    if as_json:
        emit(found)
        return
    rows = [[entry["at"][:19], entry["actor"], entry["action"], _words(entry)] for entry in reversed(found["items"])]
    table(["AT", "WHO", "WHAT", "OF"], [[one_line(cell) for cell in row] for row in rows])
    if found["next_before"]:
        note(f"there are older entries; --limit shows more (at most 1000), GET {path}?before=N all of them")


def _words(entry: dict[str, Any]) -> str:
    words = [entry["session_id"], entry["subject"].replace("\n", ", "), entry["digest"][:12]]
    return " ".join(word for word in words if word)


def _verify(api: Api, head: str | None, as_json: bool) -> None:
    found = api.get("/audit/verify", head=head)
    if as_json:
        emit(found)
    elif found["intact"]:
        click.echo(f"intact: {found['entries']:,} entries in {found['chains']:,} chains")
        note(f"head {found['head']}; kept elsewhere, it proves later that nothing up to here is gone")
    else:
        broken = found["broken"]
        where = f"conversation {broken['chain']}" if broken["chain"] else "the tenant's own chain"
        click.echo(f"BROKEN: {where}, entry {broken['seq']}: {broken['problem']}")
    click.get_current_context().exit(int(Exit.OK if found["intact"] else Exit.FAILED))
