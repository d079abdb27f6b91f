"""`errand terminate`: ends a conversation, or the thread of one subagent, permanently."""

import click

from cli.api import Api, segment
from cli.errors import NotFoundError
from cli.ids import ThreadIdType
from cli.options import remote
from cli.render.output import emit, note


@click.command()
@click.argument("thread_id", metavar="ID", type=ThreadIdType())
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@remote
def terminate(api: Api, thread_id: str, yes: bool, as_json: bool) -> None:
    """End a conversation: all its sessions stop, and it accepts nothing new. Its messages stay readable.

    With the reference of a subagent, which `show` and `tree` print, only that subagent and those below it end.

    \b
    Examples:
      ./errand terminate ID
      ./errand terminate ID --yes --json
    """
    if not yes and not as_json:
        # asked on stderr; with --json nobody may be there to answer, so that the flag counts as a yes
        click.confirm(f"End {thread_id} permanently?", abort=True, err=True)
    try:
        answer = api.post(f"/conversations/{segment(thread_id)}/terminate", {})
    except NotFoundError:  # a conversation's id is that of its main thread; any other thread belongs to a subagent
        answer = api.post(f"/threads/{segment(thread_id)}/terminate", {})
    if as_json:
        emit(answer)
    else:
        note("Terminated.")
