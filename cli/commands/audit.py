"""`errand audit`: show the audit log, or verify that nothing in it was changed or removed."""

import click
from errand.models import AuditEntry, AuditPage

from cli import audit_anchors as anchors
from cli.api import Api, parse, segment
from cli.errors import Exit
from cli.ids import resolve
from cli.options import remote
from cli.render.output import emit, note, one_line, table

VERIFY = "verify"


@click.command()
@click.argument("task_id", required=False, metavar="[ID | verify]")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="Show this many entries.")
@click.option("--head", help="With verify: the head of an earlier verification, which must still be in the log.")
@click.option(
    "--anchor",
    metavar="FILE|URL",
    help="With verify: keep the head outside. A file is appended to, and its last head must still be in the log; "
    "to a URL the head is posted.",
)
@remote
def audit(api: Api, task_id: str | None, limit: int, head: str | None, anchor: str | None, as_json: bool) -> None:
    """Show the audit log of one task or of all, newest last, or verify all of it.

    The exit code of `verify` is 1 if an entry was changed or is missing; the first such entry is printed.

    \b
    Examples:
      ./errand audit ID
      ./errand audit verify
      ./errand audit verify --anchor /mnt/elsewhere/audit.jsonl
    """
    if (head or anchor) is not None and task_id != VERIFY:
        raise click.UsageError("--head and --anchor need verify")
    if task_id == VERIFY:
        _verify(api, head or anchors.last_head(anchor), anchor, as_json)
        return
    path = f"/tasks/{segment(resolve(api, task_id))}/audit" if task_id else "/audit"
    found = api.get(path, limit=limit)
    if as_json:
        emit(found)
        return
    entries = parse(AuditPage, found).items[::-1]
    rows = [[one.at.isoformat()[:19], one.actor, one.action, _subject(one)] for one in entries]
    table(["AT", "ACTOR", "ACTION", "SUBJECT"], [[one_line(cell) for cell in row] for row in rows])
    if found["next_before"]:
        note(f"there are older entries; --limit shows more (at most 1000), GET {path}?before=N all of them")


def _subject(entry: AuditEntry) -> str:
    parts = [entry.session_id, entry.subject.replace("\n", ", "), entry.digest[:12]]
    return " ".join(part for part in parts if part)


def _verify(api: Api, head: str | None, anchor: str | None, as_json: bool) -> None:
    found = api.get("/audit/verify", head=head)
    # a head of a broken log must not become the next proof
    if anchor is not None and found["intact"]:
        anchors.keep(anchor, found["head"], found["entries"], found["chains"])
    if as_json:
        emit(found)
    elif found["intact"]:
        click.echo(f"intact: {found['entries']:,} entries in {found['chains']:,} chains")
        note(f"head {found['head']}; stored elsewhere, it proves later that nothing up to here was removed")
    else:
        broken = found["broken"]
        chain = f"conversation {broken['chain']}" if broken["chain"] else "the tenant's own chain"
        click.echo(f"BROKEN: {chain}, entry {broken['seq']}: {broken['problem']}")
    click.get_current_context().exit(int(Exit.OK if found["intact"] else Exit.FAILED))
