"""`errand fork`: start a new conversation from the end of a session."""

import click
from errand.models import SessionHandle

from cli.api import Api, parse, segment
from cli.ids import TaskId
from cli.local_state import write_last
from cli.options import patience_option, remote
from cli.render.output import PROGRAM, emit, note
from cli.watch import show_detached, watch


@click.command()
@click.argument("session_id", type=TaskId())
@click.option("--input", "text", help="Continue with this message; without it the fork waits for its first message.")
@click.option("--agent", help="Another agent than the session's own.")
@click.option("--wait/--no-wait", " /--detach", default=True, help="Watch the answer to --input.  [default: wait]")
@patience_option
@remote
def fork(
    api: Api, session_id: str, text: str | None, agent: str | None, wait: bool, patience: int, as_json: bool
) -> None:
    """Start a new conversation with the history and files of a finished session; the old one stays as it is.

    \b
    Examples:
      ./errand fork SESSION
      ./errand fork SESSION --input "The same, but shorter"
    """
    origin = api.get(f"/sessions/{segment(session_id)}")["conversation_id"]
    body = {"from_session": session_id, "execute": text is not None}
    body |= {name: value for name, value in (("input", text), ("agent", agent)) if value is not None}
    answer = api.post(f"/conversations/{segment(origin)}/fork", body)
    handle = parse(SessionHandle, answer)
    write_last(api.address, handle.session_id)
    if text is not None and wait:
        watch(api, handle.session_id, after=0, patience_ms=patience, as_json=as_json)
    elif as_json:
        emit(answer)
    else:
        click.echo(handle.conversation_id)
        if text is None:
            note(f"Continue with: {PROGRAM} chat --conversation {handle.conversation_id}")
        else:
            show_detached(handle.session_id, 0, "Forked")
