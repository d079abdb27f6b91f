"""`errand open`: the console in the browser."""

import click

from cli.api import Api
from cli.options import remote
from cli.render.output import emit, note


@click.command()
@remote
def open(api: Api, as_json: bool) -> None:
    """Open the console in the browser, and print its address. With --json only print it.

    \b
    Examples:
      ./errand open
      ./errand open --url http://127.0.0.1:8700
    """
    import webbrowser  # looks for the installed ones

    address = f"{api.find_url().rstrip('/')}/"
    if as_json:
        emit({"url": address})
        return
    click.echo(address)
    if not webbrowser.open(address):
        note("there is no browser here; open the address above in one")
