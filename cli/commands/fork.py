"""`errand fork`: a new conversation that begins where a session ended."""

import click

from cli.client.api import Api, part
from cli.options import patience_option, remote
from cli.render.output import PROGRAM, emit, note
from cli.render.watch import detached, watch


@click.command()
@click.argument("session_id")
@click.option("--input", "text", help="Go on with this at once; without it the fork waits for its first message.")
@click.option("--agent", help="Another agent than the session's own.")
@click.option("--wait/--no-wait", " /--detach", default=True, help="Watch what --input leads to.  [default: wait]")
@patience_option
@remote
def fork(
    api: Api, session_id: str, text: str | None, agent: str | None, wait: bool, patience: int, as_json: bool
) -> None:
    """Begin a new conversation from what a finished session knew and had; the old one stays as it is.

    \b
    Examples:
      ./errand fork SESSION
      ./errand fork SESSION --input "The same, but shorter"
    """
    origin = api.get(f"/sessions/{part(session_id)}")["conversation_id"]
    body = {"from_session": session_id, "execute": text is not None}
    body |= {name: value for name, value in (("input", text), ("agent", agent)) if value is not None}
    handle = api.post(f"/conversations/{part(origin)}/fork", body)
    if text is not None and wait:
        watch(api, handle["session_id"], after=0, patience_ms=patience, as_json=as_json)
    elif as_json:
        emit(handle)
    else:
        click.echo(handle["conversation_id"])
        if text is None:
            note(f"Go on with: {PROGRAM} chat --conversation {handle['conversation_id']}")
        else:
            detached(handle["session_id"], 0, "Forked")
