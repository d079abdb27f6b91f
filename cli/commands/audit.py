"""`errand audit`: show the audit log, or verify that nothing in it was changed or removed."""

import json
from datetime import UTC, datetime
from pathlib import Path

import click
import httpx2
from errand.models import AuditPage, Verification

from cli.api import Api, parse, segment
from cli.errors import CliError, Exit
from cli.ids import resolve
from cli.options import remote
from cli.render.output import emit, moment, note, one_line, table

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
        _verify(api, head or last_head(anchor), anchor, as_json)
        return
    path = f"/tasks/{segment(resolve(api, task_id))}/audit" if task_id else "/audit"
    found = api.get(path, limit=limit)
    if as_json:
        emit(found)
        return
    entries = parse(AuditPage, found).items[::-1]
    rows = []
    for one in entries:
        parts = [one.session_id, one.subject.replace("\n", ", "), one.digest[:12]]
        rows.append([moment(one.at), one.actor, one.action, " ".join(filter(None, parts))])
    table(["AT", "ACTOR", "ACTION", "SUBJECT"], [[one_line(cell) for cell in row] for row in rows])
    if found["next_before"]:
        note(f"there are older entries; --limit shows more (at most 1000), GET {path}?before=N all of them")


def _verify(api: Api, head: str | None, anchor: str | None, as_json: bool) -> None:
    answer = api.get("/audit/verify", head=head)
    found = parse(Verification, answer)
    # a head of a broken log must not become the next proof
    if anchor is not None and found.intact:
        keep(anchor, found.head, found.entries, found.chains)
    if as_json:
        emit(answer)
    elif found.intact:
        click.echo(f"intact: {found.entries:,} entries in {found.chains:,} chains")
        note(f"head {found.head}; stored elsewhere, it proves later that nothing up to here was removed")
    elif broken := found.broken:
        chain = f"conversation {broken.chain}" if broken.chain else "the tenant's own chain"
        click.echo(f"BROKEN: {chain}, entry {broken.seq}: {broken.problem}")
    click.get_current_context().exit(int(Exit.OK if found.intact else Exit.FAILED))


# anchors: heads of the log, kept outside of the platform, in a growing file or at an address


TIMEOUT_S = 20.0


def last_head(anchor: str | None) -> str | None:
    """The last head in a file; None if there is none yet, and for an address, which only receives."""
    if anchor is None or _is_url(anchor) or not Path(anchor).exists():
        return None
    try:
        lines = [line for line in Path(anchor).read_text().splitlines() if line.strip()]
        return str(json.loads(lines[-1])["head"]) or None if lines else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"{anchor} cannot be read as a list of heads ({type(error).__name__})") from None


def keep(anchor: str, head: str, entries: int, chains: int) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"at": at, "head": head, "entries": entries, "chains": chains})
    try:
        if _is_url(anchor):
            headers = {"content-type": "application/json"}
            httpx2.post(anchor, content=line, headers=headers, timeout=TIMEOUT_S).raise_for_status()
        else:
            # appended and never rewritten: earlier heads prove what the log once contained
            with Path(anchor).open("a") as file:
                file.write(f"{line}\n")
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise CliError(f"the head could not be kept ({type(error).__name__})") from None


def _is_url(anchor: str) -> bool:
    return anchor.startswith(("https://", "http://"))
